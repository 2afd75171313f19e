//! How long changes wait until work on them begins.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use ringside_e2e::checker::{Event, Record, Uid, percentile};

use super::load::Change;

/// The spread of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub count: usize,
    /// Of 100, 50 took no longer.
    pub p50: Duration,
    /// The same of 99.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Times {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let [p50, p99, longest] = [50, 99, 100].map(|percent| percentile(&times, percent).unwrap_or_default());
        Self { count: times.len(), p50, p99, longest }
    }
}

/// When work on each object began, and on which generation.
#[derive(Debug, Default)]
pub(super) struct Starts(HashMap<Uid, Vec<Start>>);

#[derive(Debug)]
struct Start {
    at: Duration,
    generation: i64,
    instance: String,
}

impl Starts {
    /// From what was recorded.
    pub(super) fn of(journal: &[Record]) -> Self {
        let mut all = Self::default();
        for Record { at, event } in journal {
            if let Event::Started { uid, generation, instance } = event {
                let start = Start { at: *at, generation: *generation, instance: instance.clone() };
                all.0.entry(uid.clone()).or_default().push(start);
            }
        }
        all
    }

    /// How long these changes waited, those that wait still until now.
    pub(super) fn waited<'a>(&self, changes: impl IntoIterator<Item = &'a Change>, now: Duration) -> Times {
        let waited = changes.into_iter().map(|change| self.at(change).unwrap_or(now).saturating_sub(change.sent));
        Times::of(waited.collect())
    }

    /// How often within this time work began on a generation that another replica had begun before.
    pub(super) fn twice(&self, from: Duration, until: Duration) -> usize {
        self.0.values().map(|starts| twice(starts, from, until)).sum()
    }

    /// When work on a change began; that on a later one covers it.
    fn at(&self, change: &Change) -> Option<Duration> {
        let starts = self.0.get(&change.uid)?;
        starts.iter().find(|start| start.generation >= change.generation).map(|start| start.at)
    }
}

fn twice(starts: &[Start], from: Duration, until: Duration) -> usize {
    let mut first = HashMap::<i64, &str>::new();
    let mut again = HashSet::new();
    for Start { at, generation, instance } in starts {
        let by = *first.entry(*generation).or_insert(instance);
        if by != instance && (from..until).contains(at) {
            again.insert((generation, instance));
        }
    }
    again.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(second: u64, generation: i64, instance: &str) -> Record {
        let event = Event::Started { uid: "u".to_owned(), generation, instance: instance.to_owned() };
        Record { at: Duration::from_secs(second), event }
    }

    fn change(second: u64, generation: i64) -> Change {
        Change { uid: "u".to_owned(), generation, sent: Duration::from_secs(second) }
    }

    #[test]
    fn work_on_a_later_generation_covers_a_change_and_what_waits_still_waits_until_now() {
        let starts = Starts::of(&[start(1, 1, "a"), start(5, 3, "a")]);
        let waited = starts.waited(&[change(2, 2), change(4, 3), change(6, 4)], Duration::from_secs(16));
        assert_eq!((waited.count, waited.p50.as_secs(), waited.longest.as_secs()), (3, 3, 10));
    }

    #[test]
    fn only_another_replica_does_work_twice() {
        let starts = Starts::of(&[start(1, 1, "a"), start(2, 1, "a"), start(3, 1, "b"), start(4, 2, "b")]);
        let seconds = |from, until| starts.twice(Duration::from_secs(from), Duration::from_secs(until));
        assert_eq!((seconds(0, 9), seconds(0, 3), seconds(4, 9)), (1, 0, 0));
    }
}
