//! What happens in a system: the records, judged, and the picture of the moment.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use kube::{Client, ResourceExt as _};
use ringside_ring::RingName;
use tokio::sync::mpsc::UnboundedReceiver;

use super::SystemError;
use crate::{
    checker::{Checker, Event, Record, Report},
    collector::Recorder,
    observer::{Observer, Picture},
    website::Website,
};

/// A handle that can be cloned, so that somebody can look on while the system is worked with.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recorder: Recorder,
    judged: Mutex<Judged>,
    observer: OnceLock<Observer>,
}

#[derive(Debug)]
struct Judged {
    checker: Checker,
    records: UnboundedReceiver<Record>,
    /// All that was recorded, where somebody wants to look it up.
    journal: Option<Vec<Record>>,
}

impl Monitor {
    pub(super) fn new(recorder: Recorder, records: UnboundedReceiver<Record>) -> Self {
        let judged = Mutex::new(Judged { checker: Checker::new(), records, journal: None });
        Self(Arc::new(Inner { recorder, judged, observer: OnceLock::new() }))
    }

    /// Starts to watch the objects and shards of the ring. There is one ring: a second call changes nothing.
    pub(super) fn observe(&self, client: &Client, ring: &RingName, namespace: Option<&str>) {
        self.0.observer.get_or_init(|| Observer::start(client, ring, namespace, self.0.recorder.clone()));
    }

    pub(super) fn check(&self) -> Result<(), SystemError> {
        match self.0.observer.get() {
            Some(observer) if !observer.is_running() => Err(SystemError::ObserverEnded),
            _ => Ok(()),
        }
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        self.0.recorder.now()
    }

    /// Records what the API server answered to a change. Not left to the watch alone: whoever waits for the work on it
    /// must not be told that all is done because the watch has not shown it yet.
    pub fn wrote(&self, website: &Website) {
        let (uid, generation) = (website.uid().unwrap_or_default(), website.metadata.generation.unwrap_or_default());
        let name = format!("{}/{}", website.namespace().unwrap_or_default(), website.name_any());
        self.0.recorder.record(Event::Written { uid, name, generation });
    }

    /// What is there now.
    pub fn picture(&self) -> Picture {
        self.0.observer.get().map(Observer::picture).unwrap_or_default()
    }

    /// Asks the checker, once it has taken in all that was recorded.
    pub fn judge<T>(&self, question: impl FnOnce(&Checker) -> T) -> T {
        let mut judged = self.0.judged.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(record) = judged.records.try_recv() {
            if let Some(journal) = &mut judged.journal {
                journal.push(record.clone());
            }
            judged.checker.record(record);
        }
        question(&judged.checker)
    }

    /// Keeps all that is recorded from now on, for [`Monitor::journal`].
    pub fn keep_journal(&self) {
        self.judge(|_| ());
        self.0.judged.lock().unwrap_or_else(PoisonError::into_inner).journal.get_or_insert_default();
    }

    /// What was recorded since that was asked for.
    pub fn journal(&self) -> Vec<Record> {
        self.judge(|_| ());
        self.0.judged.lock().unwrap_or_else(PoisonError::into_inner).journal.clone().unwrap_or_default()
    }

    /// Forgets what was recorded so far.
    pub fn reset(&self) {
        self.judge(|_| ());
        self.0.judged.lock().unwrap_or_else(PoisonError::into_inner).checker = Checker::new();
    }

    /// The verdict on what was recorded: forgotten is what waited for longer than `bound`.
    pub fn report(&self, bound: Duration) -> Report {
        let now = self.now();
        self.judge(|checker| checker.report(now, bound))
    }
}
