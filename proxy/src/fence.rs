//! The fence: keeps late writes away from objects that this shard lets go, and knows which writes are under way.
//!
//! Written by two rooms. The stage of the same name enters every request that changes something before it is sent
//! ([`Fence::enter`]) and leaves when the API server has answered. The handover says which objects are drained
//! ([`Fence::drained`]), waits until no write about one is under way and none has been for the grace time
//! ([`Guard::quiet`]), and closes the fence for it right before the acknowledgement ([`Guard::close`]). From then on
//! the stage refuses what concerns the object (DESIGN, "Handover", 2 b, 2 c, 4).
//!
//! All of that is decided under one lock, so no write slips in between the last look and the acknowledgement.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use tokio::time::Instant;

mod moved;
mod moves;
#[cfg(test)]
mod tests;
mod writes;

use moved::Moved;
pub use moves::Guard;
use moves::Moves;
use writes::Writes;
pub use writes::{About, Target, Ticket};

/// An object's uid. Shared: it stands in several indexes.
pub type Uid = Arc<str>;

/// An object that this shard lets go, or has let go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moving {
    /// Its resource.
    pub resource: GroupResource,
    /// Its namespace, if the resource has them.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid: one deleted and made again under the same name is another object.
    pub uid: Uid,
}

/// The fence of this shard. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    writes: Writes,
    moves: Moves,
    moved: Moved,
    floors: HashMap<GroupResource, ResourceVersion>,
}

/// What the fence holds, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Writes under way, those included that nobody waits for any more.
    pub writes: usize,
    /// The age of the oldest of them: it may hold a drain.
    pub oldest_write: Duration,
    /// Objects let go that are remembered.
    pub moved: usize,
    /// Objects let go that were forgotten, because there were too many.
    pub moved_evicted: u64,
}

impl Fence {
    /// Without any memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A drain is under way: requests about the object still pass, and are counted. `version` is a resourceVersion at
    /// which it was seen drained; `grace` is how long nothing may be sent about it before it is let go.
    #[must_use]
    pub fn drained(&self, object: Moving, version: &ResourceVersion, grace: Duration) -> Guard {
        let mut registry = self.0.lock();
        let floor = registry.floors.entry(object.resource.clone()).or_insert_with(|| version.clone());
        if *floor < *version {
            *floor = version.clone();
        }
        // A new drain of an object that came back.
        registry.moved.forget(&object.uid);
        let notify = registry.moves.begin(object.clone(), grace, Instant::now());
        Guard::new(self.clone(), object, notify)
    }

    /// The highest resourceVersion at which an object of the resource was seen drained: F of DESIGN, "Handover", 5.
    pub fn floor(&self, resource: &GroupResource) -> Option<ResourceVersion> {
        self.0.lock().floors.get(resource).cloned()
    }

    /// A request that may change something is about to be sent. It counts until the ticket is gone, and longer where
    /// the API server did not answer it.
    #[must_use]
    pub fn enter(&self, about: About) -> Ticket {
        let now = Instant::now();
        let mut registry = self.0.lock();
        registry.moves.touch(&about, now);
        let id = registry.writes.begin(about, now);
        Ticket::new(self.clone(), id)
    }

    /// Which object of that name was let go, if one was.
    pub fn moved_by_name(&self, target: &Target) -> Option<Moving> {
        self.0.lock().moved.by_name(target)
    }

    /// Whether the object of that uid was let go.
    pub fn moved_by_uid(&self, uid: &str) -> Option<Moving> {
        self.0.lock().moved.by_uid(uid)
    }

    /// An object that was let go is this shard's again: its labels say so.
    pub fn came_back(&self, uid: &str) {
        self.0.lock().moved.forget(uid);
    }

    /// What it holds at the moment.
    pub fn numbers(&self) -> Numbers {
        let now = Instant::now();
        let mut registry = self.0.lock();
        registry.writes.prune(now);
        Numbers {
            writes: registry.writes.count(),
            oldest_write: registry.writes.oldest(now),
            moved: registry.moved.count(),
            moved_evicted: registry.moved.evicted(),
        }
    }
}
