//! The drains under way: how many, how old, and a word about those that take too long.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::drain::Drained;

/// The drains under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drains(Arc<Mutex<Register>>);

#[derive(Debug, Default)]
struct Register {
    next_id: u64,
    entries: HashMap<u64, Entry>,
    deadline: Duration,
}

#[derive(Debug)]
struct Entry {
    object: Arc<Drained>,
    since: Instant,
    phase: Phase,
    reported: bool,
}

/// What a drain waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Watches and lists that may still show the object.
    Views,
    /// The grace time.
    Grace,
    /// The API server.
    Acknowledgement,
}

impl Phase {
    fn describe(self) -> &'static str {
        match self {
            Self::Views => "a watch or list of the controller that has not seen it go",
            Self::Grace => "the grace time, which begins anew with each write to the object",
            Self::Acknowledgement => "the API server's answer to the acknowledgement",
        }
    }
}

/// A word about drains that take too long.
#[derive(Debug)]
pub(super) struct Report {
    /// For people.
    pub(super) line: String,
    /// The oldest of them.
    pub(super) oldest: Arc<Drained>,
}

/// One drain in the register, until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay {
    drains: Drains,
    id: u64,
}

impl Drains {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a drain may take before it is reported. Writes of others hold none for longer either: by then any reconcile
    /// that answers at all has ended.
    pub(super) fn deadline(&self) -> Duration {
        self.0.lock().deadline
    }

    /// The ring says how long that is.
    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.0.lock().deadline = deadline;
    }

    pub(super) fn begin(&self, object: Arc<Drained>, now: Instant) -> UnderWay {
        let mut register = self.0.lock();
        register.next_id += 1;
        let id = register.next_id;
        register.entries.insert(id, Entry { object, since: now, phase: Phase::Views, reported: false });
        UnderWay { drains: self.clone(), id }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// The age of the oldest.
    pub fn oldest(&self, now: Instant) -> Option<Duration> {
        let oldest = self.0.lock().entries.values().map(|entry| entry.since).min()?;
        Some(now.saturating_duration_since(oldest))
    }

    /// Warns of drains older than the deadline: of each once, and in one line for all that are new.
    pub(super) fn report(&self, now: Instant) -> Option<Report> {
        let mut register = self.0.lock();
        let deadline = register.deadline;
        let late = |entry: &&mut Entry| !entry.reported && now.saturating_duration_since(entry.since) >= deadline;
        let late: Vec<_> = register.entries.values_mut().filter(late).collect();
        let oldest = late.iter().min_by_key(|entry| entry.since)?;
        let (age, Drained { resource, namespace, name, uid, .. }) =
            (now.saturating_duration_since(oldest.since), &*oldest.object);
        let waits_for = oldest.phase.describe();
        let count = late.len();
        tracing::warn!(
            count,
            %resource,
            namespace,
            name,
            uid,
            waits_for,
            ?age,
            "drained objects can't be let go yet; this is the oldest of them"
        );
        let namespace = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let line = format!(
            "{count} drained objects are held for longer than {deadline:?}; the oldest is {resource} {namespace}{name}, \
             drained {}s ago, which waits for {waits_for}",
            age.as_secs()
        );
        let oldest = oldest.object.clone();
        late.into_iter().for_each(|entry| entry.reported = true);
        Some(Report { line, oldest })
    }
}

impl UnderWay {
    pub(super) fn phase(&self, phase: Phase) {
        if let Some(entry) = self.drains.0.lock().entries.get_mut(&self.id) {
            entry.phase = phase;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.drains.0.lock().entries.remove(&self.id);
    }
}
