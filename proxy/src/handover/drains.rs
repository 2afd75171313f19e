//! The drains under way: how many, how old, and a word about those that take too long.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ringside_ring::doing;
use tokio::{sync::watch, time::Instant};

use crate::views::{BlockingView, DrainingObject};

/// The drains under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drains(Arc<Mutex<Register>>);

#[derive(Debug, Default)]
struct Register {
    next_id: u64,
    entries: HashMap<u64, Entry>,
    deadline: Duration,
    /// Tells when one has ended, or was refused.
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct Entry {
    object: Arc<DrainingObject>,
    since: Instant,
    phase: Phase,
    /// The last client that did not read what it waits for.
    reader: Option<String>,
    /// What the API server said to the last attempt to acknowledge it.
    refused: Option<String>,
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
            Self::Grace => "the grace time, which restarts with each request of the controller about the object",
            Self::Acknowledgement => "the API server's answer to the acknowledgement",
        }
    }
}

/// Why drains take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Their shard can't release them yet.
    Held,
    /// It has, but the API server refuses the acknowledgement: no shard works on them.
    Refused,
}

/// A word about drains that take too long.
#[derive(Debug)]
pub(super) struct Report {
    /// What is the matter.
    pub(super) reason: Reason,
    /// For people.
    pub(super) line: String,
    /// The oldest of them.
    pub(super) oldest: Arc<DrainingObject>,
}

/// One drain in the register, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    drains: Drains,
    id: u64,
}

impl Drains {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a drain may take before it is reported, as the ring says.
    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.0.lock().deadline = deadline;
    }

    /// What was set last; zero before that.
    pub(super) fn deadline(&self) -> Duration {
        self.0.lock().deadline
    }

    pub(crate) fn begin(&self, object: Arc<DrainingObject>, now: Instant) -> UnderWay {
        let mut register = self.0.lock();
        register.next_id += 1;
        let id = register.next_id;
        let entry = Entry { object, since: now, phase: Phase::Views, reader: None, refused: None, reported: false };
        register.entries.insert(id, entry);
        UnderWay { drains: self.clone(), id }
    }

    /// Returns once there is none, but for those that the API server would not take.
    pub async fn none(&self) {
        let mut changes = self.0.lock().changes.subscribe();
        while self.0.lock().entries.values().any(|entry| entry.refused.is_none()) {
            // The sender is `self`.
            let _ = changes.changed().await;
        }
    }

    /// Those that began first, at most so many.
    pub fn oldest(&self, at_most: usize, now: Instant) -> Vec<doing::Drain> {
        let register = self.0.lock();
        let mut all: Vec<_> = register.entries.values().collect();
        all.sort_by_key(|entry| entry.since);
        let told = all.into_iter().take(at_most).map(|entry| doing::Drain {
            resource: entry.object.resource.to_string(),
            object: entry.object.place(),
            waits_for: entry.waits_for(),
            millis: doing::millis(entry.age(now)),
        });
        told.collect()
    }

    /// How many have begun so far.
    pub fn begun(&self) -> u64 {
        self.0.lock().next_id
    }

    /// How many there are, and the age of the oldest.
    pub fn all(&self, now: Instant) -> (usize, Duration) {
        self.of(now, |_| true)
    }

    /// How many of them the API server refused to take from this shard, or did not answer, and the age of the oldest.
    pub fn refused(&self, now: Instant) -> (usize, Duration) {
        self.of(now, |entry| entry.refused.is_some())
    }

    fn of(&self, now: Instant, which: impl Fn(&Entry) -> bool) -> (usize, Duration) {
        let register = self.0.lock();
        let ages = register.entries.values().filter(|entry| which(entry)).map(|entry| entry.age(now));
        ages.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    /// Warns of drains older than the deadline: of each once, and once more when its acknowledgement is refused; in one
    /// line for all that are new of a kind.
    pub(super) fn report(&self, now: Instant) -> Vec<Report> {
        let mut register = self.0.lock();
        let deadline = register.deadline;
        let late = register.entries.values_mut().filter(|entry| !entry.reported && entry.age(now) >= deadline);
        let (refused, held): (Vec<_>, Vec<_>) = late.partition(|entry| entry.refused.is_some());
        let reports = [(Reason::Held, held), (Reason::Refused, refused)];
        reports.into_iter().filter_map(|(reason, late)| report(reason, late, deadline, now)).collect()
    }
}

impl DrainingObject {
    /// `NAMESPACE/NAME`, for people.
    fn place(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("{namespace}/"));
        format!("{}{}", namespace.unwrap_or_default(), self.name)
    }
}

impl Entry {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn waits_for(&self) -> String {
        match &self.refused {
            None => match self.reader.as_ref().filter(|_| self.phase == Phase::Views) {
                Some(reader) => format!("{}: {reader}", self.phase.describe()),
                None => self.phase.describe().to_owned(),
            },
            Some(error) => format!("the API server to take it from this shard: {error}"),
        }
    }
}

fn report(reason: Reason, mut late: Vec<&mut Entry>, deadline: Duration, now: Instant) -> Option<Report> {
    let oldest = late.iter().min_by_key(|entry| entry.since)?;
    let (age, waits_for, count) = (oldest.age(now), oldest.waits_for(), late.len());
    let DrainingObject { resource, namespace, name, uid, .. } = &*oldest.object;
    let place = oldest.object.place();
    tracing::warn!(
        count,
        %resource,
        namespace,
        name,
        uid = &**uid,
        waits_for,
        ?age,
        "can't release drained objects yet; this is the oldest"
    );
    let line = format!(
        "{count} drained objects are held for longer than {deadline:?}; the oldest is {resource} {place}, \
         drained {}s ago, which waits for {waits_for}",
        age.as_secs()
    );
    let oldest = oldest.object.clone();
    late.iter_mut().for_each(|entry| entry.reported = true);
    Some(Report { reason, line, oldest })
}

impl UnderWay {
    pub(super) fn phase(&self, phase: Phase) {
        if let Some(entry) = self.drains.0.lock().entries.get_mut(&self.id) {
            entry.phase = phase;
        }
    }

    /// It waits for this view, whose client has something to read.
    pub(super) fn waits_for_reader(&self, view: &BlockingView) {
        let (agent, bytes) = view.client();
        let reader = format!("{bytes} bytes or more wait to be read by the client {agent}");
        if let Some(entry) = self.drains.0.lock().entries.get_mut(&self.id) {
            entry.reader = Some(reader);
        }
    }

    /// The API server did not take the acknowledgement.
    pub(super) fn refused(&self, error: String) {
        let mut register = self.drains.0.lock();
        if let Some(entry) = register.entries.get_mut(&self.id) {
            entry.reported &= entry.refused.is_some();
            entry.refused = Some(error);
            register.changes.send_replace(());
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut register = self.drains.0.lock();
        register.entries.remove(&self.id);
        register.changes.send_replace(());
    }
}
