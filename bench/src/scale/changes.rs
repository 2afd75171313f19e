//! What changes wait for while replicas come and go.

use std::{fmt, time::Duration};

use anyhow::ensure;
use k8s_openapi::jiff::Timestamp;
use ringside_e2e::{
    checker::{Cause, Gap, Handover, Report, Verdict},
    system::Return,
};

use super::{
    Running,
    arrangement::GRACE,
    latency::{Starts, Times},
    load::Change,
};
use crate::say;

/// An object should be without a replica for no longer, beyond the grace.
const SOON: Duration = Duration::from_secs(1);

/// Something that happens to replicas, or to the sharder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// One more starts.
    ScaleOut,
    /// The oldest ends in order.
    ScaleIn,
    /// Each is replaced: the next one is ready before one ends.
    RollingUpdate,
    /// The oldest dies without a word.
    Kill,
    /// The sharder is gone for so long, and a replica dies in the middle of it.
    Outage(Duration),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScaleOut => f.write_str("a replica joins"),
            Self::ScaleIn => f.write_str("a replica leaves"),
            Self::RollingUpdate => f.write_str("all are replaced"),
            Self::Kill => f.write_str("a replica dies"),
            Self::Outage(time) => write!(f, "a replica dies, no sharder for {} s", time.as_secs()),
        }
    }
}

/// What was felt of it.
#[derive(Clone, Debug)]
pub struct Felt {
    /// What happened.
    pub event: Event,
    /// The replicas before it.
    pub replicas: usize,
    /// From its beginning until each object was where it belongs.
    pub took: Duration,
    /// What changes waited for that were made before, meanwhile, and afterwards.
    pub waited: [Times; 3],
    /// Moves between replicas that were there, from the drain to the next owner.
    pub moved: Times,
    /// How many of them took less than a second beyond the grace.
    pub in_time: usize,
    /// Objects whose owner was gone, from its death, or the release of its Lease, to the next one.
    pub taken_over: Times,
    /// Generations that were worked on by a second replica.
    pub twice: usize,
    /// Objects that two replicas worked on at once.
    pub overlaps: usize,
}

/// When an event was, on the monitor's clock and on the wall.
#[derive(Clone, Copy, Debug)]
struct During {
    began: Duration,
    /// The death of a replica, where there was one.
    died: Option<Duration>,
    ended: Duration,
    wall: [Timestamp; 2],
}

/// What was felt of all events, and meanwhile.
#[derive(Clone, Debug)]
pub struct Course {
    /// Changes a second.
    pub per_second: f64,
    /// Each event.
    pub felt: Vec<Felt>,
    /// When each began, since the beginning.
    pub marks: Vec<(Event, Duration)>,
    /// The longest that a change waited which was made in each second since the beginning.
    pub waited: Vec<Duration>,
}

/// Goes through the events one by one, at so many changes a second.
///
/// # Errors
/// When the system fails, or a replica wrote to another's object.
pub async fn go_through(running: &mut Running, per_second: f64, events: &[Event]) -> anyhow::Result<Course> {
    let load = running.load(per_second).await?;
    let beginning = running.system.monitor().now();
    let mut passed = Vec::new();
    for event in events {
        let replicas = running.replicas();
        say(format_args!("{replicas} replicas at {per_second:.1} changes a second: {event}"));
        passed.push((*event, replicas, pass(running, *event).await?));
    }
    tokio::time::sleep(running.shape.window).await;
    let changes = load.stop().await?;
    running.settle().await?;
    let (journal, now) = (running.system.monitor().journal(), running.system.monitor().now());
    let verdict = running.system.judge_writes().await?;
    ensure!(verdict.foreign.is_empty(), "a replica wrote to another's object: {:#?}", verdict.foreign);
    let report = running.system.monitor().report(Duration::MAX);
    let seen = Seen { starts: Starts::of(&journal), changes, verdict, report, window: running.shape.window, now };
    let felt = passed.iter().map(|(event, replicas, during)| seen.felt(*event, *replicas, *during)).collect();
    let marks = passed.iter().map(|(event, _, during)| (*event, during.began.saturating_sub(beginning))).collect();
    Ok(Course { per_second, felt, marks, waited: seen.by_second(beginning) })
}

/// Lets an event pass, after a time in which nothing happened.
async fn pass(running: &mut Running, event: Event) -> anyhow::Result<During> {
    tokio::time::sleep(running.shape.window).await;
    let (began, first) = (running.system.monitor().now(), Timestamp::now());
    let mut died = None;
    match event {
        Event::ScaleOut => running.add().await?,
        Event::ScaleIn => running.remove_oldest().await?,
        Event::RollingUpdate => {
            for _ in 0..running.replicas() {
                running.add().await?;
                running.counted().await?;
                running.remove_oldest().await?;
            }
        }
        Event::Kill => {
            died = Some(began);
            running.kill_oldest().await?;
        }
        Event::Outage(time) => {
            running.system.kill_sharders().await?;
            tokio::time::sleep(time / 2).await;
            died = Some(running.system.monitor().now());
            running.kill_oldest().await?;
            tokio::time::sleep(time / 2).await;
            running.system.return_sharders(Return::OtherPod).await?;
        }
    }
    running.owned().await?;
    let ended = running.system.monitor().now();
    Ok(During { began, died, ended, wall: [first, Timestamp::now()] })
}

impl During {
    fn contains(self, at: Duration) -> bool {
        (self.began..=self.ended).contains(&at)
    }
}

/// All that was seen.
struct Seen {
    starts: Starts,
    changes: Vec<Change>,
    verdict: Verdict,
    report: Report,
    window: Duration,
    now: Duration,
}

impl Seen {
    fn waited(&self, from: Duration, until: Duration) -> Times {
        let made = self.changes.iter().filter(|change| (from..until).contains(&change.sent));
        self.starts.waited(made, self.now)
    }

    fn felt(&self, event: Event, replicas: usize, during: During) -> Felt {
        let During { began, died, ended, wall: [first, last] } = during;
        let phases = [(began.saturating_sub(self.window), began), (began, ended), (ended, ended + self.window)];
        let moves: Vec<_> =
            self.verdict.handovers.iter().filter(|one| (first..=last).contains(&one.at)).map(Handover::whole).collect();
        let in_time = moves.iter().filter(|took| **took < GRACE + SOON).count();
        let gone = self.report.gaps.iter().filter(|gap| during.contains(gap.from));
        let since = |gap: &Gap| match gap.cause {
            Cause::Dead => died,
            Cause::Released => Some(gap.from),
            Cause::Created | Cause::Unassigned => None,
        };
        let taken_over =
            gone.filter_map(|gap| Some(gap.until.unwrap_or(self.now).saturating_sub(since(gap)?))).collect();
        Felt {
            event,
            replicas,
            took: ended.saturating_sub(began),
            waited: phases.map(|(from, until)| self.waited(from, until)),
            moved: Times::of(moves),
            in_time,
            taken_over: Times::of(taken_over),
            twice: self.starts.twice(began, ended),
            overlaps: self.report.overlaps.iter().filter(|overlap| during.contains(overlap.second.1)).count(),
        }
    }

    fn by_second(&self, beginning: Duration) -> Vec<Duration> {
        let mut seconds = vec![Vec::new(); usize::try_from((self.now - beginning).as_secs()).unwrap_or(0) + 1];
        for change in &self.changes {
            let at = change.sent.saturating_sub(beginning).as_secs();
            if let Some(made) = usize::try_from(at).ok().and_then(|at| seconds.get_mut(at)) {
                made.push(change);
            }
        }
        seconds.into_iter().map(|made| self.starts.waited(made, self.now).longest).collect()
    }
}
