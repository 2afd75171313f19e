//! The objects that are known to wait for their shard to let go.
//!
//! An acknowledged object carries no label that tells who had it. Who remembers that needs to look at that shard's
//! children only, and at all children otherwise: forgetting costs time, nothing else.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use ringside_ring::{RingName, cluster_ring::GroupResource};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// Objects remembered at most: memory must not grow with the objects (DESIGN, "Sharder").
const CAPACITY: usize = 10_000;

struct Drain {
    resource: GroupResource,
    shard: String,
    since: Instant,
    last_seen: Instant,
}

#[derive(Default)]
struct Register {
    by_uid: HashMap<String, Drain>,
    by_age: BTreeSet<(Instant, String)>,
}

/// The drains of one ring; clones share them.
#[derive(Clone)]
pub(crate) struct Drains {
    ring: RingName,
    metrics: Metrics,
    register: Arc<Mutex<Register>>,
}

impl Drains {
    /// None known.
    pub(crate) fn new(ring: RingName, metrics: Metrics) -> Self {
        Self { ring, metrics, register: Arc::default() }
    }

    /// `shard` was asked to let go of the object, and has not done so.
    pub(crate) fn remember(&self, resource: &GroupResource, uid: &str, shard: &str) {
        let now = Instant::now();
        let mut register = self.register.lock();
        if let Some(drain) = register.by_uid.get_mut(uid) {
            shard.clone_into(&mut drain.shard);
            drain.last_seen = now;
        } else if register.by_uid.len() < CAPACITY {
            let drain = Drain { resource: resource.clone(), shard: shard.to_owned(), since: now, last_seen: now };
            register.by_uid.insert(uid.to_owned(), drain);
            register.by_age.insert((now, uid.to_owned()));
        }
        self.tell(&register);
    }

    /// Who was asked to let go of the object.
    pub(crate) fn previous(&self, uid: &str) -> Option<String> {
        self.register.lock().by_uid.get(uid).map(|drain| drain.shard.clone())
    }

    /// The object has an owner again, or is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let mut register = self.register.lock();
        if let Some(drain) = register.by_uid.remove(uid) {
            register.by_age.remove(&(drain.since, uid.to_owned()));
        }
        self.tell(&register);
    }

    /// A pass over all objects of a resource that began at `start` has seen all of them that drain: the others are gone.
    pub(crate) fn forget_unseen_since(&self, resource: &GroupResource, start: Instant) {
        let mut register = self.register.lock();
        let Register { by_uid, by_age } = &mut *register;
        by_uid.retain(|_, drain| drain.resource != *resource || drain.last_seen >= start);
        by_age.retain(|(_, uid)| by_uid.contains_key(uid));
        self.tell(&register);
    }

    fn tell(&self, register: &Register) {
        let oldest = register.by_age.first().map(|(since, _)| SystemTime::now() - since.elapsed());
        self.metrics.draining(&self.ring, register.by_uid.len(), oldest);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    fn resource(name: &str) -> GroupResource {
        GroupResource { group: String::new(), resource: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_whole_pass_does_not_see_is_forgotten() {
        let drains = Drains::new("example".parse().unwrap(), Metrics::default());
        drains.remember(&resource("xs"), "gone", "a");
        drains.remember(&resource("xs"), "here", "a");
        drains.remember(&resource("ys"), "other", "a");
        tokio::time::advance(Duration::from_secs(1)).await;
        let start = Instant::now();
        drains.remember(&resource("xs"), "here", "a");
        drains.forget_unseen_since(&resource("xs"), start);
        assert_eq!((drains.previous("gone"), drains.previous("here")), (None, Some("a".into())));
        assert_eq!(drains.previous("other").as_deref(), Some("a"), "another resource's pass is another");
        drains.forget("other");
        drains.forget("here");
        assert_eq!(drains.previous("here"), None);
        let register = drains.register.lock();
        assert!(register.by_uid.is_empty() && register.by_age.is_empty());
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let drains = Drains::new("example".parse().unwrap(), Metrics::default());
        for i in 0..=CAPACITY {
            drains.remember(&resource("xs"), &i.to_string(), "a");
        }
        assert_eq!(drains.register.lock().by_uid.len(), CAPACITY);
        drains.remember(&resource("xs"), "0", "b");
        assert_eq!(drains.previous("0").as_deref(), Some("b"));
    }
}
