//! The objects that are known to wait for their shard to let go.
//!
//! An acknowledged object carries no label that tells who had it. Who remembers that needs to look at that shard's
//! children only, and at all children otherwise: forgetting costs time, nothing else.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
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
    /// The value of the drain label: another one is another drain.
    id: String,
    /// Whether it was reported that the shard is late.
    reported: bool,
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

    /// `shard` was asked by `id` to let go of the object, and has not done so.
    pub(crate) fn remember(&self, resource: &GroupResource, uid: &str, shard: &str, id: &str) {
        let now = Instant::now();
        let mut register = self.register.lock();
        // An earlier drain of the object was acknowledged, and nobody saw who had it since.
        if let Some(earlier) = register.by_uid.get(uid).filter(|drain| drain.id != id).map(|drain| drain.since) {
            register.by_uid.remove(uid);
            register.by_age.remove(&(earlier, uid.to_owned()));
        }
        if let Some(drain) = register.by_uid.get_mut(uid) {
            shard.clone_into(&mut drain.shard);
            drain.last_seen = now;
        } else if register.by_uid.len() < CAPACITY {
            let drain = Drain {
                resource: resource.clone(),
                shard: shard.to_owned(),
                id: id.to_owned(),
                reported: false,
                since: now,
                last_seen: now,
            };
            register.by_uid.insert(uid.to_owned(), drain);
            register.by_age.insert((now, uid.to_owned()));
        }
        self.tell(&register);
    }

    /// Who was asked to let go of the object.
    pub(crate) fn previous(&self, uid: &str) -> Option<String> {
        self.register.lock().by_uid.get(uid).map(|drain| drain.shard.clone())
    }

    /// For how long the object has been known to be drained by `id`.
    pub(crate) fn age(&self, uid: &str, id: &str) -> Duration {
        let register = self.register.lock();
        register.by_uid.get(uid).filter(|drain| drain.id == id).map_or(Duration::ZERO, |drain| drain.since.elapsed())
    }

    /// Since when the first of a resource's objects has been waiting.
    pub(crate) fn oldest(&self, resource: &GroupResource) -> Option<Instant> {
        let register = self.register.lock();
        let of_resource = |uid: &str| register.by_uid.get(uid).is_some_and(|drain| drain.resource == *resource);
        register.by_age.iter().find(|(_, uid)| of_resource(uid)).map(|(since, _)| *since)
    }

    /// Whether it is the first time that this drain is reported.
    pub(crate) fn report(&self, uid: &str) -> bool {
        let mut register = self.register.lock();
        register.by_uid.get_mut(uid).is_some_and(|drain| !std::mem::replace(&mut drain.reported, true))
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

    use super::*;

    fn resource(name: &str) -> GroupResource {
        GroupResource { group: String::new(), resource: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_whole_pass_does_not_see_is_forgotten() {
        let drains = Drains::new("example".parse().unwrap(), Metrics::default());
        drains.remember(&resource("xs"), "gone", "a", "m");
        drains.remember(&resource("xs"), "here", "a", "m");
        drains.remember(&resource("ys"), "other", "a", "m");
        tokio::time::advance(Duration::from_secs(1)).await;
        let start = Instant::now();
        drains.remember(&resource("xs"), "here", "a", "m");
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
            drains.remember(&resource("xs"), &i.to_string(), "a", "m");
        }
        assert_eq!(drains.register.lock().by_uid.len(), CAPACITY);
        drains.remember(&resource("xs"), "0", "b", "m");
        assert_eq!(drains.previous("0").as_deref(), Some("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn another_drain_of_an_object_has_its_own_age() {
        let drains = Drains::new("example".parse().unwrap(), Metrics::default());
        drains.remember(&resource("xs"), "u", "a", "m1");
        tokio::time::advance(Duration::from_secs(9)).await;
        drains.remember(&resource("xs"), "u", "a", "m1");
        assert_eq!((drains.age("u", "m1"), drains.age("u", "m2")), (Duration::from_secs(9), Duration::ZERO));
        assert!(drains.report("u") && !drains.report("u"));
        drains.remember(&resource("xs"), "u", "b", "m2");
        assert_eq!((drains.age("u", "m2"), drains.oldest(&resource("xs"))), (Duration::ZERO, Some(Instant::now())));
        assert!(drains.report("u"));
        assert_eq!(drains.oldest(&resource("ys")), None);
        assert_eq!(drains.register.lock().by_age.len(), 1);
    }
}
