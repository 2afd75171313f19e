//! Which objects stay with another shard than the hash ring names, as during a roll-out: their children are compared with
//! them, and not with the hash ring.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Objects that are known at most: memory must not grow with the objects. Beyond that a child is compared with its owner only
/// where it is not at home itself.
const CAPACITY: usize = 100_000;

/// Hashes of their uids: two that are the same cost a read.
#[derive(Default)]
pub(super) struct Away(HashSet<u64>);

impl Away {
    pub(super) fn insert(&mut self, uid: &str) {
        if self.0.len() < CAPACITY {
            self.0.insert(hash(uid));
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(uid))
    }
}

fn hash(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}
