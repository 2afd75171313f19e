//! Shards whose Lease vanished while they held it: somebody deleted it, or took its ring label off.
//!
//! Such a shard works on until it notices, at its next renewal at the latest. There is no Lease that the sharder could
//! acquire, so time alone says when it is gone; until then it takes part in partitioning, and is counted, as an
//! expired one: it is there, and does not renew. It keeps its weight: what moves now would move again when it is gone.

use std::collections::BTreeMap;

use ringside_ring::{Moment, RingName, ShardName, Weight, lease::vanished_until};

use super::book::{LeaseKey, Observed};

/// The shards, and until when each of them counts. A process that starts later does not know them.
#[derive(Debug, Default)]
pub(super) struct Vanished(BTreeMap<(LeaseKey, RingName), Last>);

#[derive(Debug)]
struct Last {
    shard: ShardName,
    weight: Weight,
    until: Moment,
}

impl Vanished {
    /// The Lease, last seen as `last`, was seen to be gone at `now`.
    pub(super) fn insert(&mut self, key: &LeaseKey, last: &Observed, now: Moment) {
        if let Some(until) = vanished_until(&last.facts, now) {
            let (namespace, shard, ring) = (&key.namespace, &last.shard, &last.ring);
            tracing::warn!(%ring, %shard, namespace, "the Lease of a shard that held it vanished; giving the shard time to notice");
            let last_seen = Last { shard: shard.clone(), weight: last.weight(), until };
            self.0.insert((key.clone(), ring.clone()), last_seen);
        }
    }

    /// There is a Lease again, which says what its shard is.
    pub(super) fn appeared(&mut self, key: &LeaseKey, ring: &RingName) {
        self.0.remove(&(key.clone(), ring.clone()));
    }

    /// Forgets those whose time is over; returns whether there were any.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        let before = self.0.len();
        self.0.retain(|_, last| now < last.until);
        self.0.len() != before
    }

    /// When the time of the first is over.
    pub(super) fn next(&self) -> Option<Moment> {
        self.0.values().map(|last| last.until).min()
    }

    /// The shards with their rings and weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RingName, &ShardName, Weight)> {
        self.0.iter().map(|((_, ring), last)| (ring, &last.shard, last.weight))
    }
}
