//! The most changes a second that replicas keep up with.

use std::time::Duration;

use anyhow::ensure;

use super::{
    Running,
    latency::Starts,
    usage::{Moment, Usage},
};
use crate::say;

/// How long 99 of 100 changes may wait until work on them begins.
const OBJECTIVE: Duration = Duration::from_secs(1);
/// Where the machine is busier, it is the bound.
const BUSY: f64 = 0.85;
/// A rate was made where no fewer changes were, of all.
const MADE: f64 = 0.98;
/// The write of its ConfigMap has the controller work on an object once more.
const RECONCILES: f64 = 2.0;
/// Where less is not kept, something is wrong.
const LEAST: f64 = 0.05;

/// The steps in which the limit is looked for. Rates are parts of what the work alone would allow.
#[derive(Clone, Copy, Debug)]
pub struct Climb {
    first: f64,
    more: f64,
    /// How often the rate between one that is kept and one that is not is tried.
    halvings: usize,
}

impl Climb {
    /// The limit is known to a hundredth, or so.
    pub const FINE: Self = Self { first: 0.8, more: 0.1, halvings: 3 };
    /// Few steps, which say little.
    pub const COARSE: Self = Self { first: 1.0, more: 1.0, halvings: 0 };
}

/// A rate, and what came of it.
#[derive(Clone, Debug)]
pub struct Step {
    /// Changes a second.
    pub per_second: f64,
    /// What 50 of 100 changes waited for no longer than.
    pub p50: Duration,
    /// The same of 99 of 100.
    pub p99: Duration,
    /// The part of the changes that the API server took in time.
    pub made: f64,
    /// What it took.
    pub usage: Usage,
}

impl Step {
    fn is_kept(&self) -> bool {
        self.p99 <= OBJECTIVE && self.made >= MADE
    }
}

/// What keeps replicas from more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// They have all hands full.
    Replicas,
    /// This machine.
    Machine,
}

/// The most that replicas keep up with.
#[derive(Clone, Debug)]
pub struct Limit {
    /// As the table calls them.
    pub name: String,
    /// How many.
    pub replicas: usize,
    /// Whether they have proxies.
    pub proxied: bool,
    /// The fullest one's part of the objects, to the mean.
    pub fullest: f64,
    /// Resident memory of one before there were objects.
    pub idle: f64,
    /// The highest rate that was kept.
    pub kept: Step,
    /// Why not more.
    pub bound: Bound,
}

/// Finds it.
///
/// # Errors
/// When the system fails, or keeps no rate.
pub async fn find(running: &Running) -> anyhow::Result<Limit> {
    let shape = running.shape;
    let (replicas, fullest) = (running.replicas(), running.fullest());
    let nominal = (replicas * shape.workers) as f64 / (RECONCILES * shape.work.as_secs_f64()) / fullest;
    let (kept, bound) = climb(shape.climb, nominal, |rate| measure(running, rate)).await?;
    let (name, proxied, idle) = (running.name(), running.has_proxies(), running.idle());
    Ok(Limit { name, replicas, proxied, fullest, idle, kept, bound })
}

/// The highest rate that is kept, and why not more: the rate grows in steps until one is not kept, and then those between are tried.
async fn climb<F>(steps: Climb, nominal: f64, measure: impl Fn(f64) -> F) -> anyhow::Result<(Step, Bound)>
where
    F: Future<Output = anyhow::Result<Step>>,
{
    let Climb { first, more, halvings } = steps;
    let mut kept = measure(first * nominal).await?;
    while !kept.is_kept() {
        ensure!(kept.per_second > LEAST * nominal, "{:.1} changes a second are too many", kept.per_second);
        kept = measure(kept.per_second / 2.0).await?;
    }
    let mut missed = loop {
        let next = measure(kept.per_second + more * nominal).await?;
        if !next.is_kept() {
            break next;
        }
        kept = next;
    };
    for _ in 0..halvings {
        let between = measure(f64::midpoint(kept.per_second, missed.per_second)).await?;
        if between.is_kept() {
            kept = between;
        } else {
            missed = between;
        }
    }
    Ok((kept, bound(&missed)))
}

fn bound(missed: &Step) -> Bound {
    if missed.usage.machine > BUSY || missed.made < MADE { Bound::Machine } else { Bound::Replicas }
}

/// One rate for the time of a window.
async fn measure(running: &Running, per_second: f64) -> anyhow::Result<Step> {
    let before = Moment::of(&running.system)?;
    let load = running.load(per_second).await?;
    tokio::time::sleep(running.shape.window).await;
    let changes = load.stop().await?;
    let usage = Moment::of(&running.system)?.since(&before);
    // The wait of a change that is still queued ends here as well.
    running.settle().await?;
    let monitor = running.system.monitor();
    let waited = Starts::of(&monitor.journal()).waited(&changes, monitor.now());
    let made = changes.len() as f64 / (per_second * running.shape.window.as_secs_f64());
    let step = Step { per_second, p50: waited.p50, p99: waited.p99, made, usage };
    say(format_args!(
        "{}: {per_second:.1} changes a second waited {:.0?} and {:.0?} (50 and 99 of 100); the machine was busy for {:.0} %",
        running.name(),
        step.p50,
        step.p99,
        100.0 * step.usage.machine,
    ));
    Ok(step)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn limit(most: f64, machine: f64) -> anyhow::Result<(Step, Bound)> {
        climb(Climb::FINE, 100.0, |per_second| async move {
            let p99 = if per_second > most { 2 * OBJECTIVE } else { OBJECTIVE };
            Ok(Step { per_second, p50: p99, p99, made: 1.0, usage: Usage { machine, ..Usage::default() } })
        })
        .await
    }

    #[tokio::test]
    async fn the_limit_is_found_within_a_step_of_the_last_halving_whatever_the_first_rate() {
        for most in [12.0, 79.0, 93.0, 131.0] {
            let (kept, bound) = limit(most, 0.5).await.unwrap();
            assert!(kept.per_second <= most && kept.per_second > most - 2.6, "{} of {most}", kept.per_second);
            assert_eq!(bound, Bound::Replicas);
        }
        assert_eq!(limit(93.0, 0.95).await.unwrap().1, Bound::Machine);
        assert!(limit(1.0, 0.5).await.is_err(), "what keeps nothing is no limit");
    }
}
