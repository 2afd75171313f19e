//! Whether a watch has shown all that there was at some moment.
//!
//! A write of ours that began after that moment has a version. The events of one watch come in order. So once the watch has
//! delivered that version, it has shown all that existed at that moment. Versions are of one resource, and a watch of one namespace
//! proves nothing of others.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Writes whose versions are awaited at most. Of more, the earliest are not: those who wait need another write, or a list.
const MAX_WRITES: usize = 1024;

/// A moment in the order of what this process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

impl Mark {
    /// This moment: after all earlier ones.
    pub(crate) fn now() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

#[derive(Default)]
struct State {
    delivered: u64,
    /// What existed then has been shown.
    proven: Mark,
    /// Versions of writes that were not delivered yet, with the moments when these began.
    writes: Vec<(u64, Mark)>,
}

impl State {
    fn deliver(&mut self, version: u64) {
        self.delivered = self.delivered.max(version);
        let arrived = self.writes.extract_if(.., |(version, _)| *version <= self.delivered);
        self.proven = arrived.map(|(_, began)| began).chain([self.proven]).max().unwrap_or_default();
    }
}

/// The progress of one watch.
pub(crate) struct Progress(watch::Sender<State>);

impl Default for Progress {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl Progress {
    /// The watch has delivered everything up to this version.
    pub(crate) fn delivered(&self, version: u64) {
        self.0.send_if_modified(|state| {
            let before = state.proven;
            state.deliver(version);
            state.proven != before
        });
    }

    /// A write to an object that the watch shows was answered with this version. It began after `began`.
    pub(crate) fn wrote(&self, began: Mark, version: u64) {
        self.0.send_if_modified(|state| {
            let before = state.proven;
            if state.writes.len() >= MAX_WRITES {
                state.writes.remove(0);
            }
            state.writes.push((version, began));
            state.deliver(0);
            state.proven != before
        });
    }

    /// A list of all that the watch shows was taken in. It began after `began`, and is of this version. One that is older than what was
    /// delivered says that the API server's time went back: then no earlier version counts.
    pub(crate) fn listed(&self, began: Mark, version: u64) {
        self.0.send_modify(|state| {
            if version < state.delivered {
                (state.delivered, state.writes) = (0, Vec::new());
            }
            state.proven = state.proven.max(began);
            state.deliver(version);
        });
    }

    /// The API server's time went back: nothing is known of what it shows now.
    pub(crate) fn went_back(&self) {
        self.0.send_modify(|state| *state = State::default());
    }

    /// Whether the watch has delivered this version.
    #[cfg(test)]
    pub(crate) fn has_delivered(&self, version: u64) -> bool {
        self.0.borrow().delivered >= version
    }

    /// Whether what existed at this moment has been shown.
    pub(crate) fn is_proven(&self, since: Mark) -> bool {
        self.0.borrow().proven > since
    }

    /// Whether a write is on its way that will prove this.
    pub(crate) fn is_awaited(&self, since: Mark) -> bool {
        self.0.borrow().writes.iter().any(|(_, began)| *began > since)
    }

    /// Returns once what existed at this moment has been shown.
    ///
    /// # Cancel safety
    /// Nothing is lost: the caller bounds the time, and lists after that.
    pub(crate) async fn proven(&self, since: Mark) {
        // The sender lives in `self`, so this fails never.
        let _ = self.0.subscribe().wait_for(|state| state.proven > since).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after a restore: what existed then has to be listed first.
    #[test]
    fn nothing_is_proven_when_time_went_back() {
        let progress = Progress::default();
        progress.listed(Mark::now(), 1_000);
        progress.went_back();
        let acknowledged = Mark::now();
        progress.wrote(Mark::now(), 520);
        assert!(!progress.is_proven(Mark::default()) && !progress.is_proven(acknowledged));
        progress.delivered(520);
        assert!(progress.is_proven(acknowledged));
    }

    #[test]
    fn write_before_the_moment_proves_nothing() {
        let progress = Progress::default();
        let before = Mark::now();
        let acknowledged = Mark::now();
        progress.wrote(before, 7);
        progress.delivered(9);
        assert!(progress.has_delivered(9) && !progress.is_proven(acknowledged));
    }

    #[test]
    fn write_after_the_moment_proves_once_delivered() {
        let progress = Progress::default();
        let acknowledged = Mark::now();
        progress.wrote(Mark::now(), 7);
        assert!(progress.is_awaited(acknowledged));
        progress.delivered(6);
        assert!(!progress.is_proven(acknowledged));
        progress.delivered(8);
        assert!(progress.is_proven(acknowledged) && !progress.is_awaited(acknowledged));
        assert!(!progress.is_proven(Mark::now()), "what came since is unknown");
    }

    #[test]
    fn answer_may_come_after_the_event() {
        let progress = Progress::default();
        let acknowledged = Mark::now();
        let began = Mark::now();
        progress.delivered(7);
        progress.wrote(began, 7);
        assert!(progress.is_proven(acknowledged));
    }

    #[test]
    fn older_list_ends_what_versions_said() {
        let progress = Progress::default();
        progress.delivered(90);
        let acknowledged = Mark::now();
        progress.wrote(Mark::now(), 95);
        let began = Mark::now();
        progress.listed(began, 40);
        assert!(progress.is_proven(acknowledged), "by the list");
        let later = Mark::now();
        progress.wrote(Mark::now(), 41);
        assert!(!progress.is_proven(later) && !progress.has_delivered(41));
        progress.delivered(41);
        assert!(progress.is_proven(later));
    }

    #[tokio::test(start_paused = true)]
    async fn waiter_returns_when_proven() {
        let progress = Progress::default();
        let acknowledged = Mark::now();
        progress.wrote(Mark::now(), 7);
        let waits = progress.proven(acknowledged);
        let shows = async {
            tokio::task::yield_now().await;
            progress.delivered(7);
        };
        tokio::join!(waits, shows);
        assert!(progress.is_proven(acknowledged));
    }

    #[test]
    fn memory_of_writes_is_bounded() {
        let progress = Progress::default();
        let first = Mark::now();
        (1..=2000).for_each(|version| progress.wrote(Mark::now(), version));
        assert_eq!(progress.0.borrow().writes.len(), MAX_WRITES);
        progress.delivered(2000);
        assert!(progress.is_proven(first));
    }
}
