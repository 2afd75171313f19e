//! The objects that are known to wait for their shard to let go.
//!
//! An acknowledged object carries no label that tells who had it. Who remembers that needs to look at that shard's
//! children only, and at all children otherwise: forgetting costs time, nothing else.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use ringside_ring::RingName;
use tokio::time::Instant;

use crate::metrics::Metrics;

/// Objects remembered at most: memory must not grow with the objects (DESIGN, "Sharder").
const CAPACITY: usize = 10_000;

struct Drain {
    shard: String,
    last_seen: Instant,
}

/// The drains of one ring; clones share them.
#[derive(Clone)]
pub(crate) struct Drains {
    ring: RingName,
    metrics: Metrics,
    by_uid: Arc<Mutex<HashMap<String, Drain>>>,
}

impl Drains {
    /// None known.
    pub(crate) fn new(ring: RingName, metrics: Metrics) -> Self {
        Self { ring, metrics, by_uid: Arc::default() }
    }

    /// `shard` was asked to let go of the object, and has not done so.
    pub(crate) fn remember(&self, uid: &str, shard: &str) {
        let mut by_uid = self.by_uid.lock();
        if by_uid.len() < CAPACITY || by_uid.contains_key(uid) {
            by_uid.insert(uid.to_owned(), Drain { shard: shard.to_owned(), last_seen: Instant::now() });
        }
        self.metrics.draining(&self.ring, by_uid.len());
    }

    /// Who was asked to let go of the object.
    pub(crate) fn previous(&self, uid: &str) -> Option<String> {
        self.by_uid.lock().get(uid).map(|drain| drain.shard.clone())
    }

    /// The object has an owner again, or is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let mut by_uid = self.by_uid.lock();
        by_uid.remove(uid);
        self.metrics.draining(&self.ring, by_uid.len());
    }

    /// A pass over all objects that began at `start` has seen all that drain: the others are gone.
    pub(crate) fn forget_unseen_since(&self, start: Instant) {
        let mut by_uid = self.by_uid.lock();
        by_uid.retain(|_, drain| drain.last_seen >= start);
        self.metrics.draining(&self.ring, by_uid.len());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_whole_pass_does_not_see_is_forgotten() {
        let drains = Drains::new("example".parse().unwrap(), Metrics::default());
        drains.remember("gone", "a");
        drains.remember("here", "a");
        tokio::time::advance(Duration::from_secs(1)).await;
        let start = Instant::now();
        drains.remember("here", "a");
        drains.forget_unseen_since(start);
        assert_eq!((drains.previous("gone"), drains.previous("here")), (None, Some("a".into())));
        drains.forget("here");
        assert_eq!(drains.previous("here"), None);
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let drains = Drains::new("example".parse().unwrap(), Metrics::default());
        for i in 0..=CAPACITY {
            drains.remember(&i.to_string(), "a");
        }
        assert_eq!(drains.by_uid.lock().len(), CAPACITY);
        drains.remember("0", "b");
        assert_eq!(drains.previous("0").as_deref(), Some("b"));
    }
}
