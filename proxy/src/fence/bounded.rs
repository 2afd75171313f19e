//! What is remembered of objects, by uid and by name: up to a bound, beyond which the oldest make room.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
};

use super::{Uid, writes::Target};

/// Such a memory.
#[derive(Debug)]
pub(super) struct Bounded<V> {
    by_uid: HashMap<Uid, BoundedEntry<V>>,
    /// By the hash of what a request names: with a random key, as here, no two names will share one.
    by_name: HashMap<u64, Uid>,
    hasher: RandomState,
    /// In the order in which they came, with what tells several entries of one object apart.
    order: VecDeque<(u64, Uid)>,
    last: u64,
    evicted: u64,
}

#[derive(Debug)]
struct BoundedEntry<V> {
    name: u64,
    /// How many had come by then.
    at: u64,
    value: V,
}

impl<V> Default for Bounded<V> {
    fn default() -> Self {
        let (by_uid, by_name, hasher, order) = Default::default();
        Self { by_uid, by_name, hasher, order, last: 0, evicted: 0 }
    }
}

impl<V> Bounded<V> {
    /// Remembers an object as the youngest. Returns the uid of the one that had the name before.
    pub(super) fn insert(&mut self, name: &Target, uid: Uid, value: V) -> Option<Uid> {
        let name = self.hasher.hash_one(name);
        self.last += 1;
        self.order.push_back((self.last, uid.clone()));
        self.by_uid.insert(uid.clone(), BoundedEntry { name, at: self.last, value });
        self.by_name.insert(name, uid)
    }

    /// Forgets the oldest, if there are too many. What was forgotten on purpose or remembered again still stands in the order,
    /// at its old place.
    pub(super) fn evict(&mut self, most: usize) -> Option<V> {
        while self.by_uid.len() > most || self.order.len() > 2 * most {
            let (at, uid) = self.order.pop_front()?;
            if self.by_uid.get(&uid).is_some_and(|it| it.at == at) {
                self.evicted += 1;
                return self.forget(&uid);
            }
        }
        None
    }

    pub(super) fn forget(&mut self, uid: &str) -> Option<V> {
        let BoundedEntry { name, value, .. } = self.by_uid.remove(uid)?;
        if self.by_name.get(&name).is_some_and(|it| **it == *uid) {
            self.by_name.remove(&name);
        }
        Some(value)
    }

    /// Another object has that name now. Returns the uid of the one that had it.
    pub(super) fn release_name(&mut self, name: &Target) -> Option<Uid> {
        self.by_name.remove(&self.hasher.hash_one(name))
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        (self.by_uid, self.by_name, self.order) = Default::default();
    }

    pub(super) fn by_name(&self, name: &Target) -> Option<&Uid> {
        self.by_name.get(&self.hasher.hash_one(name))
    }

    pub(super) fn get(&self, uid: &str) -> Option<&V> {
        self.get_since(uid, 0)
    }

    /// Returns the value of this uid, if it came after so many others.
    pub(super) fn get_since(&self, uid: &str, before: u64) -> Option<&V> {
        self.by_uid.get(uid).filter(|it| it.at > before).map(|it| &it.value)
    }

    /// How many have come so far.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn count(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }
}
