//! Which objects are known to be this shard's: those whose labels were seen to say so, in this tenure of the Lease.
//!
//! In the beginning none is: a controller that outlived a restart of the proxy, or a gap in its Lease, may know objects
//! that moved meanwhile. An object stops being known when its drain begins, for it may be moved without an
//! acknowledgement then. What is known of a controlled object holds only together with what is known of its owner, for
//! it is moved with that one, and has no drain of its own.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    sync::Arc,
};

use super::{Uid, writes::Target};
use crate::{membership::Term, policy::Policy};

/// How many are known at most. Each takes some 200 bytes; one that is forgotten costs a question at its next write.
const MAX_KNOWN: usize = 16_384;

/// The time in which knowledge holds: one uninterrupted hold on the Lease, under one set of resources.
#[derive(Clone, Debug)]
pub struct Era {
    /// The hold on the Lease.
    pub term: Term,
    /// The ring's resources.
    pub policy: Arc<Policy>,
}

impl PartialEq for Era {
    fn eq(&self, other: &Self) -> bool {
        self.term.is_same(&other.term) && Arc::ptr_eq(&self.policy, &other.policy)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Territory {
    era: Option<Era>,
    by_uid: HashMap<Uid, Known>,
    /// By the hash of what a request names: with a random key, as here, no two names will share one.
    by_name: HashMap<u64, Uid>,
    hasher: RandomState,
    order: VecDeque<(u64, Uid)>,
    next: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Known {
    name: u64,
    /// The object of the ring that controls it.
    owner: Option<Uid>,
    at: u64,
}

impl Territory {
    /// An object's labels say that it is this shard's.
    pub(super) fn learn(&mut self, era: &Era, target: &Target, uid: Uid, owner: Option<Uid>) {
        if self.era.as_ref() != Some(era) {
            (self.by_uid, self.by_name, self.order) = Default::default();
            self.era = Some(era.clone());
        }
        let name = self.hasher.hash_one(target);
        self.next += 1;
        // Another one of the name is gone, and what was known by its uid holds for nothing that it controlled.
        if let Some(before) = self.by_name.insert(name, uid.clone()).filter(|before| *before != uid) {
            self.by_uid.remove(&before);
        }
        self.order.push_back((self.next, uid.clone()));
        self.by_uid.insert(uid, Known { name, owner, at: self.next });
        while self.order.len() > MAX_KNOWN
            && let Some((at, uid)) = self.order.pop_front()
        {
            if self.by_uid.get(&uid).is_some_and(|known| known.at == at) {
                self.forget(&uid);
                self.evicted += 1;
            }
        }
    }

    pub(super) fn forget(&mut self, uid: &str) {
        let Some(known) = self.by_uid.remove(uid) else { return };
        if self.by_name.get(&known.name).is_some_and(|it| **it == *uid) {
            self.by_name.remove(&known.name);
        }
    }

    /// The same of whatever has this name, whenever that was learned.
    pub(super) fn forget_name(&mut self, target: &Target) {
        if let Some(uid) = self.by_name.remove(&self.hasher.hash_one(target)) {
            self.by_uid.remove(&uid);
        }
    }

    pub(super) fn by_name(&self, era: &Era, target: &Target) -> Option<&Uid> {
        self.holds(era).then(|| self.by_name.get(&self.hasher.hash_one(target)))?
    }

    /// Who controls a known object, if anybody does.
    pub(super) fn owner(&self, era: &Era, uid: &str) -> Option<Option<&Uid>> {
        self.holds(era).then(|| self.by_uid.get(uid))?.map(|known| known.owner.as_ref())
    }

    fn holds(&self, era: &Era) -> bool {
        self.era.as_ref() == Some(era)
    }

    pub(super) fn count(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }
}
