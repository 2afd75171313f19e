//! All loads on all ways, in rounds: within a round each load has all ways one after the other.

use std::{path::PathBuf, time::Duration};

use super::{
    loads::{LOADS, Load, MANY, Turn, turn},
    memory::{Resident, resident},
    started::{Started, Target},
    upstream::Shape,
    ways::Way,
};
use crate::say;

/// How much of everything, in all rounds together.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the names of the loads have in them that are measured.
    pub only: String,
    /// How often all ways take turns.
    pub rounds: usize,
    /// Requests of each load that has many connections; a quarter where it has one.
    pub requests: usize,
    /// Bytes that are listed.
    pub list: usize,
    /// Events of each encoding.
    pub events: usize,
    /// Watches for the memory.
    pub watches: usize,
    /// What the API server answers.
    pub shape: Shape,
}

impl Plan {
    fn units(&self, load: Load) -> usize {
        let all = match load {
            Load::Get(_, MANY) | Load::Patch => self.requests,
            Load::Get(..) => self.requests / 4,
            Load::List => self.list,
            Load::Events(_) => self.events,
        };
        all.div_ceil(self.rounds.max(1))
    }
}

/// What a load took on a way, in all rounds.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Microseconds of processor time for each unit, a figure for each round.
    pub cpu: Vec<f64>,
    /// Units.
    pub units: f64,
    /// All of its time.
    pub took: Duration,
    /// Of the requests, sorted.
    pub latencies: Vec<Duration>,
}

impl Figures {
    fn add(&mut self, turn: Turn) {
        self.cpu.push(turn.cpu.as_secs_f64() * 1e6 / turn.units.max(1.0));
        self.units += turn.units;
        self.took += turn.took;
        self.latencies.extend(turn.latencies);
        self.latencies.sort_unstable();
    }

    /// Microseconds of processor time for a unit, in the middle of the rounds.
    #[must_use]
    pub fn cpu_of_unit(&self) -> Option<f64> {
        let mut rounds = self.cpu.clone();
        rounds.sort_by(f64::total_cmp);
        let (low, high) = (rounds.get(rounds.len().checked_sub(1)? / 2)?, rounds.get(rounds.len() / 2)?);
        Some(f64::midpoint(*low, *high))
    }

    /// The latency that so many of a hundred requests did not exceed, in microseconds.
    #[must_use]
    pub fn latency(&self, percent: usize) -> Option<f64> {
        Some(ringside_e2e::checker::percentile(&self.latencies, percent)?.as_secs_f64() * 1e6)
    }
}

/// A run.
#[derive(Debug, Default)]
pub struct Measured {
    pub(super) loads: Vec<(Load, Way, Figures)>,
    pub(super) resident: Vec<(Way, Resident)>,
    pub(super) watches: usize,
    pub(super) missing: Vec<(Way, String)>,
    pub(super) failed: Vec<(String, anyhow::Error)>,
}

impl Measured {
    /// The figures of a load on a way.
    #[must_use]
    pub fn figures(&self, load: Load, way: Way) -> Option<&Figures> {
        self.loads.iter().find(|(a, b, figures)| (*a, *b) == (load, way) && figures.units > 0.0).map(|it| &it.2)
    }
}

/// Starts all, with this proxy or one that is built, and measures. What fails is in the result.
///
/// # Errors
/// When something of ours can't be started.
pub async fn measure(plan: &Plan, proxy: Option<PathBuf>) -> anyhow::Result<Measured> {
    let started = Started::start(plan.shape, proxy).await?;
    let mut measured = Measured { missing: started.missing.clone(), watches: plan.watches, ..Measured::default() };
    for (target, process) in started.targets.iter().filter_map(|target| Some((target, target.process?))) {
        say(format_args!("memory: {}", target.way.name()));
        match resident(target, process, plan.watches).await {
            Ok(resident) => measured.resident.push((target.way, resident)),
            Err(fault) => measured.failed.push((format!("memory, {}", target.way.name()), fault)),
        }
    }
    for round in 0..plan.rounds {
        for load in LOADS.into_iter().filter(|load| load.name().contains(&plan.only)) {
            one(&mut measured, &started.targets, load, (round, plan)).await;
        }
    }
    Ok(measured)
}

/// A load on all ways, each of them first, second and so on in turn.
async fn one(measured: &mut Measured, targets: &[Target], load: Load, (round, plan): (usize, &Plan)) {
    say(format_args!("round {} of {}: {}", round + 1, plan.rounds, load.name()));
    for at in 0..targets.len() {
        let target = &targets[(at + round) % targets.len()];
        match turn(target, load, plan.units(load)).await {
            Ok(turn) => {
                let known = measured.loads.iter().position(|it| (it.0, it.1) == (load, target.way));
                let place = known.unwrap_or_else(|| {
                    measured.loads.push((load, target.way, Figures::default()));
                    measured.loads.len() - 1
                });
                measured.loads[place].2.add(turn);
            }
            Err(fault) => measured.failed.push((format!("{}, {}", load.name(), target.way.name()), fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_in_the_middle_of_the_rounds() {
        let of = |rounds: &[f64]| Figures { cpu: rounds.to_vec(), ..Figures::default() }.cpu_of_unit();
        assert_eq!(
            (of(&[]), of(&[3.0]), of(&[9.0, 1.0, 2.0]), of(&[4.0, 2.0])),
            (None, Some(3.0), Some(2.0), Some(3.0))
        );
    }
}
