//! Writes under way, and writes that may still be carried out though no client awaits the answer.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ringside_ring::{REQUEST_LIFETIME, cluster_ring::GroupResource};
use tokio::time::{Instant, sleep};

use super::{Fence, Registry, Uid};
use crate::views::DrainingObject;

/// How long a deletion of many outlives its request. Its handler has no deadline but that of the API server's requests
/// (`--request-timeout`, 60 s by default), and it deletes by name what it listed at its beginning, whatever the labels
/// say by then.
pub(super) const DELETION_LIFETIME: Duration = Duration::from_secs(65);
/// How many of those are told apart. Each is a cancelled write of the last half minute; beyond that all objects wait
/// for the one that is forgotten.
const MAX_LINGERING: usize = 4096;

/// What a request names by its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The resource.
    pub resource: GroupResource,
    /// The namespace; without one and without a name: all of them.
    pub namespace: Option<String>,
    /// The object's name; without one: all objects there.
    pub name: Option<String>,
}

/// What a request concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The object or objects that it names.
    pub target: Option<Target>,
    /// These objects, and those that control them.
    pub uids: HashSet<Uid>,
}

impl Target {
    /// Of one object.
    pub fn of(object: &DrainingObject) -> Self {
        let DrainingObject { resource, namespace, name, .. } = object;
        Self { resource: resource.clone(), namespace: namespace.clone(), name: Some(name.clone()) }
    }

    fn names(&self, object: &DrainingObject) -> bool {
        let all = self.name.is_none();
        self.resource == object.resource
            && self.name.as_ref().is_none_or(|name| *name == object.name)
            && ((all && self.namespace.is_none()) || self.namespace == object.namespace)
    }
}

impl About {
    /// How long the API server may carry it out after it has been left.
    fn outlives(&self) -> Duration {
        let is_of_many = self.target.as_ref().is_some_and(|target| target.name.is_none());
        if is_of_many { DELETION_LIFETIME } else { REQUEST_LIFETIME }
    }

    /// Whether the object is among it.
    pub(super) fn concerns(&self, object: &DrainingObject) -> bool {
        self.uids.contains(&object.uid) || self.target.as_ref().is_some_and(|target| target.names(object))
    }
}

#[derive(Debug)]
struct Write {
    about: About,
    since: Instant,
    /// Until when it may still be carried out, if no client awaits its answer.
    unanswered_until: Option<Instant>,
}

/// Requests under way that may change something, and cancelled ones that linger.
#[derive(Debug, Default)]
pub(super) struct Writes {
    next_id: u64,
    by_id: HashMap<u64, Write>,
    /// Those that linger, by when they end.
    lingering: BTreeSet<(Instant, u64)>,
    /// Until when a write about anything may still be carried out.
    unknown_until: Option<Instant>,
    evicted: u64,
}

/// Whether anything is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// A client awaits an answer.
    Open,
    /// No client does, but something may be carried out until then.
    Until(Instant),
    /// Nothing.
    None,
}

impl Writes {
    pub(super) fn begin(&mut self, about: About, now: Instant) -> u64 {
        self.next_id += 1;
        self.by_id.insert(self.next_id, Write { about, since: now, unanswered_until: None });
        self.next_id
    }

    /// Anything may be carried out that was sent up to now.
    pub(super) fn assume(&mut self, now: Instant) {
        self.unknown_until = Some(now + REQUEST_LIFETIME);
    }

    pub(super) fn about(&mut self, id: u64) -> Option<&mut About> {
        self.by_id.get_mut(&id).map(|write| &mut write.about)
    }

    /// The API server has answered, or was not asked, or can't carry it out any more.
    fn end(&mut self, id: u64) -> Option<About> {
        self.by_id.remove(&id).map(|write| write.about)
    }

    /// Marks a write whose answer no client awaits any more: the API server may still carry it out.
    fn linger(&mut self, id: u64, now: Instant) -> Option<About> {
        let write = self.by_id.get_mut(&id)?;
        let until = now + write.about.outlives();
        write.unanswered_until = Some(until);
        let about = write.about.clone();
        self.lingering.insert((until, id));
        if self.lingering.len() > MAX_LINGERING
            && let Some((until, forgotten)) = self.lingering.pop_first()
        {
            self.by_id.remove(&forgotten);
            self.unknown_until = self.unknown_until.max(Some(until));
            self.evicted += 1;
        }
        Some(about)
    }

    /// One that can't be carried out any more, and until when it could; it is forgotten.
    pub(super) fn pop_ended(&mut self, now: Instant) -> Option<(Instant, About)> {
        self.lingering.first().filter(|(until, _)| *until <= now)?;
        let (until, id) = self.lingering.pop_first()?;
        self.end(id).map(|about| (until, about))
    }

    /// Returns until when writes about unknown objects could be carried out, once that is over.
    pub(super) fn pop_unknown_ended(&mut self, now: Instant) -> Option<Instant> {
        self.unknown_until.take_if(|until| *until <= now)
    }

    /// What is under way about an object.
    pub(super) fn traffic(&self, object: &DrainingObject) -> Traffic {
        let mut until = self.unknown_until;
        for write in self.by_id.values().filter(|write| write.about.concerns(object)) {
            let Some(unanswered_until) = write.unanswered_until else { return Traffic::Open };
            until = until.max(Some(unanswered_until));
        }
        until.map_or(Traffic::None, Traffic::Until)
    }

    /// Of what was not forgotten: whether nothing at all is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.by_id.is_empty() && self.unknown_until.is_none()
    }

    pub(super) fn count(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn lingering(&self) -> usize {
        self.lingering.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn oldest(&self, now: Instant) -> Duration {
        let oldest = self.by_id.values().map(|write| write.since).min();
        oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl Registry {
    /// The request concerns the objects of these uids, too.
    fn name(&mut self, write_guard: u64, uids: &[Uid]) {
        let Some(about) = self.writes.about(write_guard) else { return };
        about.uids.extend(uids.iter().cloned());
    }
}

/// A request that may change something, while it is under way.
///
/// Dropped between being sent and being answered, it counts for as long as the API server may still carry it out.
#[derive(Debug)]
pub struct WriteGuard {
    fence: Fence,
    id: u64,
    /// How long it may be carried out after it has been left; of a deletion of many only its answer says when it is over.
    outlives: Duration,
    sent: AtomicBool,
    outcome_unknown: AtomicBool,
}

impl WriteGuard {
    pub(super) fn new(fence: Fence, about: About) -> Self {
        let outlives = about.outlives();
        let id = fence.0.lock().writes.begin(about, Instant::now());
        Self { fence, id, outlives, sent: AtomicBool::new(false), outcome_unknown: AtomicBool::new(false) }
    }

    /// It also concerns the objects of these uids: what it writes, and who controls that.
    ///
    /// # Errors
    /// Returns the one of them that was released already.
    pub fn check_and_add(&self, uids: &[Uid]) -> Result<(), Arc<DrainingObject>> {
        let mut registry = self.fence.0.lock();
        if let Some(moved) = uids.iter().find_map(|uid| registry.moved.get(uid)) {
            return Err(moved.object.clone());
        }
        registry.name(self.id, uids);
        Ok(())
    }

    /// It may concern the objects of these uids: it holds their drains while their labels are asked for, and no longer if it is
    /// refused then.
    pub fn add_candidates(&self, uids: &[Uid]) {
        self.fence.0.lock().name(self.id, uids);
    }

    /// It is sent now.
    pub fn sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
        self.outcome_unknown.store(true, Ordering::Relaxed);
        self.fence.0.lock().moves.sent(Instant::now());
    }

    /// The API server has carried it out, or refused it, or never got it.
    pub fn answered(&self) {
        self.outcome_unknown.store(false, Ordering::Relaxed);
    }

    /// Notes that the API server refused its credentials. It does not show the controller at work, and leaves the grace
    /// as it was.
    pub fn refused(&self) {
        self.answered();
        self.sent.store(false, Ordering::Relaxed);
    }

    /// Returns when the API server can't carry it out any more, though it has not answered: its client has left now. Never for a
    /// deletion of many.
    pub async fn outlived(&self) {
        if self.outlives == DELETION_LIFETIME {
            std::future::pending::<()>().await;
        }
        sleep(self.outlives).await;
        self.answered();
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut registry = self.fence.0.lock();
        registry.prune(now);
        let about = if *self.outcome_unknown.get_mut() {
            registry.writes.linger(self.id, now)
        } else {
            registry.writes.end(self.id)
        };
        if let Some(about) = about {
            registry.moves.end_write(&about, self.sent.get_mut().then_some(now));
        }
    }
}
