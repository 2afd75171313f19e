//! Shards without Lease: when they are gone.
//!
//! A Lease vanishes when a user deletes it, or takes its ring label off. Its shard works on until it notices, at its next
//! renewal at the latest. There is no Lease that the sharder could acquire, so time alone says when the shard is gone.
//!
//! Where this replica saw the Lease vanish, the shard takes part in partitioning until then, as an expired one. It keeps its
//! weight: what moves now would move again when it is gone. A replica that has just begun can't know which Leases vanished
//! before. So any name that an object carries may be that of a working shard, and keeps that object for as long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ringside_ring::{
    Moment, RingName, ShardName, Weight,
    lease::{unknown_until, vanished_until},
};

use super::book::{LeaseKey, Observed};

/// The shards whose Lease this replica saw vanish, and how long any other name counts.
#[derive(Debug, Default)]
pub(super) struct Vanished {
    shards: BTreeMap<(LeaseKey, RingName), Last>,
    /// Until when names that were never seen may be those of working shards; `None` before all Leases were seen.
    unknown_until: Option<Moment>,
    /// The shards that were seen to have released their Lease, or to have lost it, before that.
    gone: BTreeSet<(RingName, ShardName)>,
}

#[derive(Debug)]
struct Last {
    shard: ShardName,
    weight: Weight,
    group: Option<String>,
    until: Moment,
}

impl Vanished {
    /// All Leases were seen for the first time.
    pub(super) fn complete(&mut self, now: Moment) {
        self.unknown_until = Some(unknown_until(now));
    }

    /// How long a name without Lease may still be that of a working shard.
    pub(super) fn unknown_for(&self, ring: &RingName, shard: &str, now: Moment) -> Duration {
        let is_gone = self.gone.iter().any(|(of, gone)| of == ring && gone.as_str() == shard);
        self.unknown_until.filter(|_| !is_gone).map(|until| until.since(now)).unwrap_or_default()
    }

    /// Names that were never seen count as gone from now on.
    #[cfg(test)]
    pub(super) fn know_all(&mut self) {
        self.unknown_until = Some(Moment::default());
    }

    /// The Lease, last seen as `last`, was seen to be gone at `now`.
    pub(super) fn insert(&mut self, key: &LeaseKey, last: &Observed, now: Moment) {
        if let Some(until) = vanished_until(&last.facts, now) {
            let (namespace, shard, ring) = (&key.namespace, &last.shard, &last.ring);
            tracing::warn!(%ring, %shard, namespace, "the Lease of a shard that held it vanished; giving the shard time to notice");
            let (shard, weight, group) = (shard.clone(), last.weight(), last.group().map(str::to_owned));
            let last_seen = Last { shard, weight, group, until };
            self.shards.insert((key.clone(), ring.clone()), last_seen);
        } else if self.unknown_until.is_some_and(|until| now < until) {
            self.gone.insert((last.ring.clone(), last.shard.clone()));
        }
    }

    /// Its shard is to have no objects, for as long as it may work.
    pub(super) fn empty(&mut self, key: &LeaseKey) {
        self.shards.iter_mut().filter(|((of, _), _)| of == key).for_each(|(_, last)| last.weight = Weight::ZERO);
    }

    /// The weights of a ring's shards, of the Leases that `which` says.
    pub(super) fn weights(&self, ring: &RingName, which: impl Fn(&LeaseKey) -> bool) -> impl Iterator<Item = Weight> {
        let those = self.shards.iter().filter(move |((key, of), _)| of == ring && which(key));
        those.map(|(_, last)| last.weight)
    }

    /// There is a Lease again, which says what its shard is.
    pub(super) fn appeared(&mut self, key: &LeaseKey, ring: &RingName) {
        self.shards.remove(&(key.clone(), ring.clone()));
    }

    /// Whether a shard of the same name, in another namespace, has not had the time to notice.
    pub(super) fn has_other(&self, key: &LeaseKey, ring: &RingName) -> bool {
        self.shards.keys().any(|(other, of)| of == ring && other.name == key.name && other != key)
    }

    /// Whether a shard of this name has not had the time to notice.
    pub(super) fn has(&self, ring: &RingName, shard: &str) -> bool {
        self.shards.iter().any(|((_, of), last)| of == ring && last.shard.as_str() == shard)
    }

    /// Forgets those whose time is over; returns whether there were any.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        let before = self.shards.len();
        self.shards.retain(|_, last| now < last.until);
        self.shards.len() != before
    }

    /// When the time of the first is over.
    pub(super) fn next(&self) -> Option<Moment> {
        self.shards.values().map(|last| last.until).min()
    }

    /// The shards with their rings and weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RingName, &ShardName, Weight)> {
        self.shards.iter().map(|((_, ring), last)| (ring, &last.shard, last.weight))
    }

    /// The groups of a ring's shards that are of one.
    pub(super) fn groups(&self, ring: &RingName) -> impl Iterator<Item = (ShardName, String)> {
        let of_ring = self.shards.iter().filter(move |((_, of), _)| of == ring);
        of_ring.filter_map(|(_, last)| Some((last.shard.clone(), last.group.clone()?)))
    }
}
