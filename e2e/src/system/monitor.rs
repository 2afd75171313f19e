//! What happens in a system: the records, judged, and the picture of the moment.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::ResourceExt as _;

use crate::{
    checker::{Checker, Event, Record, Report, Seen},
    observer::{Change, Observed, Picture},
    website::Website,
};

/// One order of everything that is recorded, with one clock. A handle that can be cloned, so that a caller can look on
/// while the system is worked with.
#[derive(Clone, Debug)]
pub struct Monitor {
    begun: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    checker: Checker,
    journal: Vec<Record>,
    observed: Option<Observed>,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that something happened now.
    pub(crate) fn record(&self, event: Event) {
        self.state().record(self.now(), event);
    }

    /// From now on watches show what is there.
    pub(crate) fn begin(&self, observed: Observed) {
        self.state().observed = Some(observed);
    }

    /// Records what a watch shows.
    pub(crate) fn observe(&self, change: Change) {
        let mut state = self.state();
        let events = state.observed.as_mut().map(|observed| observed.apply(change));
        events.into_iter().flatten().for_each(|event| state.record(self.now(), event));
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Records what the API server answered to a change. Not left to the watch alone: a caller that waits for the work
    /// on it must not be told that all is done because the watch has not shown it yet.
    pub fn wrote(&self, website: &Website) {
        let (uid, generation) = (website.uid().unwrap_or_default(), website.metadata.generation.unwrap_or_default());
        let name = format!("{}/{}", website.namespace().unwrap_or_default(), website.name_any());
        self.record(Event::Written { uid, name, generation });
    }

    /// What is there now.
    pub fn picture(&self) -> Picture {
        self.state().observed.as_ref().map(Observed::picture).unwrap_or_default()
    }

    /// Every version of objects that watches have shown.
    pub(super) fn versions(&self) -> Vec<Seen> {
        self.state().observed.as_ref().map(|observed| observed.versions.clone()).unwrap_or_default()
    }

    /// Asks the checker. Nothing is recorded meanwhile, so the question may ask the monitor for nothing.
    pub fn judge<T>(&self, question: impl FnOnce(&Checker) -> T) -> T {
        question(&self.state().checker)
    }

    /// All that was recorded.
    pub fn journal(&self) -> Vec<Record> {
        self.state().journal.clone()
    }

    /// Forgets what was recorded so far.
    pub fn reset(&self) {
        let mut state = self.state();
        (state.checker, state.journal) = Default::default();
    }

    /// The verdict on what was recorded: forgotten is what waited for longer than `bound`.
    pub fn report(&self, bound: Duration) -> Report {
        let now = self.now();
        self.judge(|checker| checker.report(now, bound))
    }
}

impl State {
    fn record(&mut self, at: Duration, event: Event) {
        let record = Record { at, event };
        self.journal.push(record.clone());
        self.checker.record(record);
    }
}
