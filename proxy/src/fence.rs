//! The fence: keeps late writes away from objects that this shard releases, and knows which writes are under way.
//!
//! Two modules write to it. The stage of the same name enters every request that changes something before it is sent
//! ([`Fence::enter`]) and leaves when the API server has answered. The handover says which objects are drained
//! ([`Fence::drained`]), waits until no write about one is under way and none has been for the grace time
//! ([`DrainGuard::wait_idle`]), and closes the fence for it right before the acknowledgement ([`DrainGuard::close`]). From then on
//! the stage refuses what concerns the object (DESIGN, "Handover", 2 b, 2 c, 4).
//!
//! All of that is decided under one lock, so no write slips in between the last look and the acknowledgement.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ringside_ring::{MAX_OWNER_DEPTH, REQUEST_LIFETIME, ResourceVersion, cluster_ring::GroupResource};
use tokio::time::Instant;

use crate::views::DrainingObject;

mod bounded;
mod moves;
mod owned;
mod owner_changes;
#[cfg(test)]
mod tests;
mod writes;

use bounded::Bounded;
pub use moves::DrainGuard;
use moves::Moves;
pub use owned::CacheScope;
use owned::OwnedObjects;
use owner_changes::OwnerChanges;
use writes::Writes;
pub use writes::{About, Target, WriteGuard};

/// An object's uid. Shared: it stands in several indexes.
pub type Uid = Arc<str>;

/// The fence of this shard. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    writes: Writes,
    moves: Moves,
    /// The objects that were released. What concerns one that is not remembered is compared with its live labels. Those say
    /// nothing of one that was released a moment ago and is without owner yet ([`Fence::has_evicted_recent`]).
    moved: Bounded<Released>,
    owned: OwnedObjects,
    owner_changes: OwnerChanges,
    floors: HashMap<GroupResource, ResourceVersion>,
    /// In which term all drains of a resource were listed last.
    listed: HashMap<GroupResource, u64>,
    /// Until when an object may be without owner that was released and is not remembered.
    forgotten_until: Option<Instant>,
}

/// How many released objects are remembered. The views remember most of them as well; to forget one costs a question when its
/// former owner writes.
const MAX_MOVED: usize = 4096;

/// An object that was released.
#[derive(Debug)]
struct Released {
    object: Arc<DrainingObject>,
    when: Instant,
}

/// When a question was sent: its answer does not count for objects that were released after that.
#[derive(Clone, Copy, Debug)]
pub struct AskedAt(u64);

/// What the fence knows of an object without asking the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedOwner {
    /// It is this shard's, and so is who controls it, who controls that, and so on: the uids of all of them.
    Ours(Vec<Uid>),
    /// This shard released it, or an object that controls it. It may be back.
    Moved,
    /// Its labels have to be asked for.
    Unknown,
}

/// What the fence holds, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Writes under way, those included whose answer no client awaits any more.
    pub writes: usize,
    /// The age of the oldest of them: it may hold a drain.
    pub oldest_write: Duration,
    /// Released objects that are remembered.
    pub moved: usize,
    /// Released objects that were forgotten, because there were too many.
    pub moved_evicted: u64,
    /// Objects that are known to be this shard's.
    pub known: usize,
    /// Of those how many were forgotten, because there were too many.
    pub known_evicted: u64,
    /// Of the writes those whose answer no client awaits.
    pub lingering: usize,
    /// Of those how many were forgotten, because there were too many: anything may be carried out since.
    pub lingering_evicted: u64,
    /// Objects that were given another owner lately.
    pub owner_changes: usize,
    /// How often there was no room for one: nothing is learned of any object since.
    pub adopted_evicted: u64,
}

impl Fence {
    /// Without any memory.
    pub fn new(after_restart: bool) -> Self {
        let fence = Self::default();
        if after_restart {
            fence.follow_another();
        }
        fence
    }

    /// Assumes writes and releases of the proxy before, of unknown objects. The API server may still carry out what
    /// that proxy sent. What that proxy released may have no next owner yet.
    pub(crate) fn follow_another(&self) {
        let (mut registry, now) = (self.0.lock(), Instant::now());
        registry.writes.assume(now);
        registry.forgotten_until = Some(now + REQUEST_LIFETIME);
    }

    /// Whether the API server can carry out nothing any more that passed here.
    pub fn is_idle(&self) -> bool {
        let mut registry = self.0.lock();
        registry.prune(Instant::now());
        registry.writes.is_idle()
    }

    /// A drain is under way, as is seen in the term with this number. Where it began within that, as it was not
    /// [`Fence::listed`], requests about the object still pass, and are counted; else the controller was not shown the
    /// object since, and perhaps the sharder does not wait for an acknowledgement. `grace` is how long nothing may be
    /// sent about it before it is released.
    #[must_use]
    pub fn drained(&self, object: Arc<DrainingObject>, grace: Duration, term: u64) -> DrainGuard {
        let mut registry = self.0.lock();
        let floor = registry.floors.entry(object.resource.clone()).or_insert_with(|| object.version.clone());
        if *floor < object.version {
            *floor = object.version.clone();
        }
        // What was released before and came back stays closed until its labels were seen: so does what is drained by
        // one and the same move as before, whose acknowledgement may still be on its way.
        registry.owned.forget(&object.uid);
        let is_open = registry.moved.get(&object.uid).is_none();
        let began = Some(term).filter(|term| is_open && registry.is_listed(&object.resource, *term));
        let notify = registry.moves.begin(object.clone(), (grace, began), Instant::now());
        DrainGuard::new(self.clone(), object, notify)
    }

    /// The controller has ended, and sends nothing any more: the grace of every drain counts from the last of its writes, or
    /// from when that is carried out. Returns when that was, as far as it is known by now; none where nothing was ever sent.
    pub fn ends(&self) -> Option<Instant> {
        self.0.lock().moves.end_all()
    }

    /// The highest resourceVersion at which an object of the resource was seen drained: F of DESIGN, "Handover", 5.
    pub fn floor(&self, resource: &GroupResource) -> Option<ResourceVersion> {
        self.0.lock().floors.get(resource).cloned()
    }

    /// The API server's time went back: at which resourceVersions objects of the resource were drained says nothing any more.
    pub fn went_back(&self, resource: &GroupResource) {
        self.0.lock().floors.remove(resource);
    }

    /// A request that may change something is about to be sent. It counts until the guard is dropped, and longer where
    /// the API server did not answer it.
    #[must_use]
    pub fn enter(&self, about: About) -> WriteGuard {
        WriteGuard::new(self.clone(), about)
    }

    /// What is known of the object that a request names.
    pub fn cached_owner(&self, cache_scope: &CacheScope, target: &Target) -> CachedOwner {
        let registry = self.0.lock();
        if registry.moved.by_name(target).is_some() {
            return CachedOwner::Moved;
        }
        let uid = registry.moves.by_name(target).or_else(|| registry.owned.by_name(cache_scope, target));
        uid.map_or(CachedOwner::Unknown, |uid| registry.cached_owner(cache_scope, uid))
    }

    /// What is known of the object with that uid.
    pub fn standing_of(&self, cache_scope: &CacheScope, uid: &Uid) -> CachedOwner {
        self.0.lock().cached_owner(cache_scope, uid)
    }

    /// Whether this shard is to release one of these objects, or has released it.
    pub fn is_leaving(&self, uids: &[Uid]) -> bool {
        let registry = self.0.lock();
        uids.iter().any(|uid| registry.moves.contains(uid) || registry.moved.get(uid).is_some())
    }

    /// All is known of a resource that was drained when the term with that number had begun: what is seen from here on
    /// began within it.
    pub fn listed(&self, resource: &GroupResource, term: u64) {
        self.0.lock().listed.insert(resource.clone(), term);
    }

    /// Whether a drain of this object is under way that began within this hold on the Lease.
    pub fn lets_go_of(&self, cache_scope: &CacheScope, uid: &str) -> bool {
        self.0.lock().moves.began(cache_scope, uid)
    }

    /// Whether an object that is drained at this moment may have been shown as this shard's within this hold on the Lease: the
    /// drain was seen to begin within it, or is about to be.
    pub fn was_ours(&self, cache_scope: &CacheScope, resource: &GroupResource, uid: &str) -> bool {
        let registry = self.0.lock();
        match registry.moves.contains(uid) {
            true => registry.moves.began(cache_scope, uid),
            false => registry.is_listed(resource, cache_scope.term.number),
        }
    }

    /// Whether this shard has released this object.
    pub fn has_moved(&self, uid: &str) -> bool {
        self.0.lock().moved.get(uid).is_some()
    }

    /// Whether an object may have been released that has no next owner yet, and is not remembered. The proxy before
    /// released it, or there were too many. This ends, as objects that stay without owner have to be written to as
    /// well. A released object has an owner again long before.
    pub fn has_evicted_recent(&self) -> bool {
        self.0.lock().forgotten_until.is_some_and(|until| Instant::now() < until)
    }

    /// Something is about to be asked.
    pub fn asking(&self) -> AskedAt {
        AskedAt(self.0.lock().moved.last())
    }

    /// Whether an answer that shows this object at this version as the shard's is from before its drain, or from before
    /// its release: it was asked for then, and came late. One that is newer than the drain says that it was taken back,
    /// which this shard's own watch may show a moment later.
    pub fn predates_drain(&self, uid: &str, version: Option<&ResourceVersion>, asked: AskedAt) -> bool {
        self.0.lock().predates_drain(uid, version, asked)
    }

    /// The labels of an object said that it is this shard's and stays so: it came back, if it was released. `owner` is
    /// the object of the ring that controls it. An answer that was overtaken by a drain says nothing.
    pub fn record_owned(
        &self,
        cache_scope: &CacheScope,
        target: &Target,
        uid: &Uid,
        owner: Option<Uid>,
        asked: AskedAt,
    ) {
        let mut registry = self.0.lock();
        if registry.predates_drain(uid, None, asked) {
            return;
        }
        registry.moved.forget(uid);
        registry.moved.release_name(target);
        if !registry.owner_changes.contains(target, Instant::now()) {
            registry.owned.record_owned(cache_scope, target, uid, owner);
        }
    }

    /// Notes that an object is about to be given another owner, or that the answer to that has come. Who controls it is
    /// asked each time, until two things are over. The API server can't carry out that write any more, and no answer
    /// from before it can come. This does not depend on a client that waits.
    pub fn owner_changes(&self, target: &Target) {
        let mut registry = self.0.lock();
        registry.owner_changes.add(target, Instant::now());
        registry.owned.forget_name(target);
    }

    /// An object is about to be deleted: one of the same name after it is another.
    pub fn forget(&self, target: &Target) {
        self.0.lock().owned.forget_name(target);
    }

    /// What it holds at the moment.
    pub fn numbers(&self) -> Numbers {
        let now = Instant::now();
        let mut registry = self.0.lock();
        registry.prune(now);
        Numbers {
            writes: registry.writes.count(),
            oldest_write: registry.writes.oldest(now),
            moved: registry.moved.count(),
            moved_evicted: registry.moved.evicted(),
            known: registry.owned.count(),
            known_evicted: registry.owned.evicted(),
            lingering: registry.writes.lingering(),
            lingering_evicted: registry.writes.evicted(),
            owner_changes: registry.owner_changes.count(now),
            adopted_evicted: registry.owner_changes.evicted(),
        }
    }
}

impl Registry {
    /// Remembers a released object. One that has to be forgotten for it may still be without owner, if it was released
    /// lately.
    fn remember(&mut self, object: Arc<DrainingObject>) {
        let (name, uid) = (Target::of(&object), object.uid.clone());
        // Twice as a rule: when the fence closes, and when its drain has ended.
        self.moved.insert(&name, uid, Released { object, when: Instant::now() });
        while let Some(forgotten) = self.moved.evict(MAX_MOVED) {
            self.forgotten_until = self.forgotten_until.max(Some(forgotten.when + REQUEST_LIFETIME));
        }
    }

    fn is_listed(&self, resource: &GroupResource, term: u64) -> bool {
        self.listed.get(resource) == Some(&term)
    }

    fn predates_drain(&self, uid: &str, version: Option<&ResourceVersion>, asked: AskedAt) -> bool {
        let left = self.moved.get_since(uid, asked.0).map(|left| &left.object.version);
        let mut drained = self.moves.drained(uid).into_iter().chain(left);
        drained.any(|drained| version.is_none_or(|version| version <= drained))
    }

    fn cached_owner(&self, cache_scope: &CacheScope, uid: &Uid) -> CachedOwner {
        let (mut chain, mut uid) = (Vec::new(), uid);
        while chain.len() < MAX_OWNER_DEPTH {
            if self.moved.get(uid).is_some() {
                return CachedOwner::Moved;
            }
            chain.push(uid.clone());
            // While its drain is under way it is this shard's.
            let owner =
                if self.moves.began(cache_scope, uid) { Some(None) } else { self.owned.owner(cache_scope, uid) };
            match owner {
                None => return CachedOwner::Unknown,
                Some(None) => return CachedOwner::Ours(chain),
                Some(Some(owner)) => uid = owner,
            }
        }
        CachedOwner::Unknown
    }
}
