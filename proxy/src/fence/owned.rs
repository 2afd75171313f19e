//! Which objects are known to be this shard's: those whose labels were seen to say so, during this hold on the Lease.
//!
//! In the beginning none is: a controller that outlived a restart of the proxy, or a gap in its Lease, may know objects
//! that moved meanwhile. An object stops being known when its drain begins, for it may be moved without an
//! acknowledgement then. What is known of a controlled object holds only together with what is known of its owner, for
//! it is moved with that one, and has no drain of its own.

use std::sync::Arc;

use super::{Uid, bounded::Bounded, writes::Target};
use crate::{membership::LeaseTerm, policy::Policy};

/// How many are known at most. Each takes some 200 bytes; one that is forgotten costs a question at its next write.
const MAX_KNOWN: usize = 16_384;

/// The time in which knowledge holds: one uninterrupted hold on the Lease, under one set of resources.
#[derive(Clone, Debug)]
pub struct CacheScope {
    /// The hold on the Lease.
    pub term: LeaseTerm,
    /// The ring's resources.
    pub policy: Arc<Policy>,
}

impl PartialEq for CacheScope {
    fn eq(&self, other: &Self) -> bool {
        self.term.is_same(&other.term) && Arc::ptr_eq(&self.policy, &other.policy)
    }
}

/// Objects that are known to be this shard's, in one [`CacheScope`].
#[derive(Debug, Default)]
pub(super) struct OwnedObjects {
    cache_scope: Option<CacheScope>,
    /// Each with the object of the ring that controls it.
    known: Bounded<Option<Uid>>,
}

impl OwnedObjects {
    /// An object's labels say that it is this shard's.
    pub(super) fn record_owned(&mut self, cache_scope: &CacheScope, target: &Target, uid: &Uid, owner: Option<Uid>) {
        if !self.holds(cache_scope) {
            self.known.clear();
            self.cache_scope = Some(cache_scope.clone());
        }
        // Another one of the name is gone, and what was known by its uid holds for nothing that it controlled.
        if let Some(before) = self.known.insert(target, uid.clone(), owner).filter(|before| before != uid) {
            self.known.forget(&before);
        }
        while self.known.evict(MAX_KNOWN).is_some() {}
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.known.forget(uid);
    }

    /// Forgets the object that has this name, whenever that was learned.
    pub(super) fn forget_name(&mut self, target: &Target) {
        if let Some(uid) = self.known.release_name(target) {
            self.known.forget(&uid);
        }
    }

    pub(super) fn by_name(&self, cache_scope: &CacheScope, target: &Target) -> Option<&Uid> {
        self.holds(cache_scope).then(|| self.known.by_name(target))?
    }

    /// Returns the owner that controls a known object, if it has one.
    pub(super) fn owner(&self, cache_scope: &CacheScope, uid: &str) -> Option<Option<&Uid>> {
        self.holds(cache_scope).then(|| self.known.get(uid))?.map(Option::as_ref)
    }

    fn holds(&self, cache_scope: &CacheScope) -> bool {
        self.cache_scope.as_ref() == Some(cache_scope)
    }

    pub(super) fn count(&self) -> usize {
        self.known.count()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.known.evicted()
    }
}
