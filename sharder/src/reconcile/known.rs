//! What is known of a ring's objects, for its status and for metrics: exact, as the index counts with each change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use crate::lock::Mutex;
use arc_swap::ArcSwapOption;
use ringside_ring::cluster_ring::GroupResource;

use super::ring::Ring;
use crate::{
    doing::OfRing,
    drains::Drains,
    failed_moves::FailedMoves,
    index::{Lone, Objects, ResourceId, Shard},
    queue::moves::KEPT,
    snapshot::Snapshot,
};

/// The counts of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) drains: Drains,
    pub(crate) failed_moves: FailedMoves,
    ring: Arc<ArcSwapOption<Ring>>,
    since: Arc<Mutex<Since>>,
    /// What a test says.
    #[cfg(test)]
    said: Arc<Mutex<Option<Distribution>>>,
    #[cfg(test)]
    labelled: Arc<Mutex<Vec<GroupResource>>>,
}

#[derive(Default)]
struct Since {
    /// Since when the leader before knew something to be without a shard. It may be any that is there at first.
    before: Option<SystemTime>,
    /// When all lists had ended for the first time.
    begun: Option<SystemTime>,
    /// By shard that is not available, since when it has been known to have objects.
    gone: BTreeMap<String, SystemTime>,
    /// When the index showed the present the last time.
    counted: Option<SystemTime>,
    /// The counts as they were last told, and since when they are these.
    counts: (BTreeMap<GroupResource, Counts>, Option<SystemTime>),
}

/// How the objects of a resource are distributed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By available shard; none before all lists have ended.
    pub(crate) shards: Option<BTreeMap<String, u64>>,
    /// Those that no available shard has.
    pub(crate) unassigned: u64,
}

/// What is known of a ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distribution {
    pub(crate) resources: BTreeMap<GroupResource, Counts>,
    pub(crate) unassigned_since: Option<SystemTime>,
    /// Until when everything is counted: now, once all lists have ended.
    pub(crate) counted: Option<SystemTime>,
    /// When the counts were others the last time.
    pub(crate) changed: Option<SystemTime>,
    /// By controlled resource, objects without a controller of the ring; none before all lists have ended.
    pub(crate) lone: BTreeMap<GroupResource, Lone>,
}

impl Known {
    /// After a leader that said by the ring's status since when something has been without a shard.
    pub(crate) fn after(before: Option<SystemTime>) -> Self {
        let since = Arc::new(Mutex::new(Since { before, ..Since::default() }));
        Self { since, ..Self::default() }
    }

    /// How the objects are distributed, without any.
    #[cfg(test)]
    pub(crate) fn say(&self, distribution: Distribution) {
        *self.said.lock() = Some(distribution);
    }

    /// The objects of a resource are labelled, without any.
    #[cfg(test)]
    pub(crate) fn label(&self, resource: &GroupResource) {
        self.labelled.lock().push(resource.clone());
    }

    /// The ring is this from now on.
    pub(super) fn follow(&self, ring: Option<Arc<Ring>>) {
        self.ring.store(ring);
    }

    /// How the ring's objects are distributed now.
    pub(crate) fn distribution(&self, snapshot: &Snapshot) -> Distribution {
        #[cfg(test)]
        if let Some(said) = self.said.lock().clone() {
            return said;
        }
        let Some(ring) = self.ring.load_full() else { return Distribution::default() };
        let is_complete = ring.is_complete();
        let listed: Vec<bool> = ring.ids().map(|id| ring.is_listed(id)).collect();
        let (mut all, oldest, gone) = ring.index.read(|objects| {
            let (mut all, mut oldest, mut gone) = (Distribution::default(), None, BTreeSet::new());
            for ((id, kind), is_listed) in ring.ids().zip(objects.kinds()).zip(listed) {
                let resource = &kind.resource.id;
                if kind.is_root {
                    all.resources.insert(resource.clone(), counts(objects, id, snapshot, is_listed, &mut gone));
                    oldest = oldest.into_iter().chain(objects.unassigned_since(id)).min();
                } else if is_listed {
                    all.lone.insert(resource.clone(), objects.lone(id));
                }
            }
            (all, oldest, gone)
        });
        all.unassigned_since = self.unassigned_since(oldest, gone, is_complete);
        all.counted = is_complete.then(|| self.counted(ring.judge.is_current()));
        all.changed = all.counted.map(|now| self.changed(&all.resources, now));
        all
    }

    /// What is done about the ring now, with so many moves at most.
    pub(crate) fn doing(&self, most: usize) -> OfRing {
        let (moving, oldest) = self.drains.oldest(most);
        let between = self.drains.in_progress(KEPT).between;
        let (places, takeovers, refused) = self.ring.load_full().map_or_else(Default::default, |ring| {
            (ring.moves.bound(), ring.takeovers.waiting(), ring.told.faults.refused_now())
        });
        OfRing { moving, between, places, oldest, takeovers, refused }
    }

    /// Whether the objects of a resource that the ring names in this generation were labelled.
    pub(crate) fn is_labelled(&self, snapshot: &Snapshot, resource: &GroupResource) -> bool {
        #[cfg(test)]
        if self.labelled.lock().contains(resource) {
            return true;
        }
        let ring = self.ring.load_full().filter(|ring| ring.judge.view().generation == snapshot.generation);
        ring.is_some_and(|ring| ring.is_labelled(resource))
    }

    /// The time of the counts. While a watch does not work, it stays.
    fn counted(&self, is_current: bool) -> SystemTime {
        let counted = &mut self.since.lock().counted;
        if is_current || counted.is_none() {
            *counted = Some(SystemTime::now());
        }
        counted.unwrap_or_else(SystemTime::now)
    }

    fn changed(&self, counts: &BTreeMap<GroupResource, Counts>, now: SystemTime) -> SystemTime {
        let (last, since) = &mut self.since.lock().counts;
        if last != counts || since.is_none() {
            (*last, *since) = (counts.clone(), Some(now));
        }
        since.unwrap_or(now)
    }

    /// Since when the first of the objects without available shard has been so: the oldest without a shard, or one of a shard that
    /// is gone.
    fn unassigned_since(
        &self,
        oldest: Option<SystemTime>,
        gone: BTreeSet<String>,
        is_complete: bool,
    ) -> Option<SystemTime> {
        let (since, now) = (&mut *self.since.lock(), SystemTime::now());
        since.gone.retain(|shard, _| gone.contains(shard));
        for shard in gone {
            since.gone.entry(shard).or_insert(now);
        }
        let first = oldest.into_iter().chain(since.gone.values().copied()).min();
        if is_complete {
            let begun = *since.begun.get_or_insert(now);
            // What came later is none that the leader before knew.
            since.before = since.before.filter(|_| first.is_some_and(|first| first <= begun));
        }
        first.map(|first| since.before.map_or(first, |before| before.min(first)))
    }
}

fn counts(
    objects: Objects<'_>,
    id: ResourceId,
    snapshot: &Snapshot,
    is_listed: bool,
    gone: &mut BTreeSet<String>,
) -> Counts {
    let mut shards: BTreeMap<String, u64> = snapshot.members.available().map(|shard| (shard.to_string(), 0)).collect();
    let mut unassigned = u64::from(objects.unassigned(id));
    for (shard, of) in objects.by_shard(id) {
        let count = u64::from(of.owned) + u64::from(of.draining);
        match shard {
            Shard::Named(name) if let Some(of_shard) = shards.get_mut(name) => *of_shard += count,
            Shard::Unassigned => {}
            Shard::Named(name) => {
                unassigned += count;
                gone.insert(name.to_owned());
            }
            Shard::Unnamed => {
                unassigned += count;
                gone.insert(String::new());
            }
        }
    }
    Counts { shards: is_listed.then_some(shards), unassigned }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::core::Status;
    use std::time::Duration;

    use super::*;
    use crate::{
        index::Observer,
        reconcile::{
            judge::Watching,
            tests::{CONFIG_MAPS, World},
        },
    };

    #[tokio::test(start_paused = true)]
    async fn what_can_not_be_watched_is_not_counted() {
        let mut world = World::new();
        world.put(CONFIG_MAPS, "o", None);
        world.begin().await;
        let counted = || world.known.distribution(&world.snapshots.borrow()).counted.unwrap();
        let observer = Watching(world.known.ring.load_full().unwrap().judge.clone());
        let before = counted();
        std::thread::sleep(Duration::from_millis(2));
        assert!(counted() > before);
        let denied = kube::Error::Api(Status::failure("no", "Forbidden").with_code(403).boxed());
        observer.watched(ResourceId(0), Some(&denied));
        let last = counted();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(counted(), last);
        observer.watched(ResourceId(0), None);
        assert!(counted() > last);
    }

    /// The status of the ring says it, which the next leader reads.
    #[test]
    fn what_the_leader_before_knew_to_be_without_owner_has_waited_since_then() {
        let before = SystemTime::now() - Duration::from_secs(3600);
        let (known, start) = (Known::after(Some(before)), SystemTime::now());
        let since = |oldest, gone: &[&str], is_complete| {
            known.unassigned_since(oldest, gone.iter().map(|gone| (*gone).to_owned()).collect(), is_complete)
        };
        assert_eq!(since(Some(start), &[], false), Some(before));
        assert_eq!(since(Some(start), &[], true), Some(before));
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(since(Some(later), &[], true), Some(later), "that one was not there");
        assert_eq!(since(Some(start), &[], true), Some(start), "nor is it known any more");
    }

    /// Some are always between two shards in a join: that is no reason for an alert.
    #[test]
    fn age_of_what_has_no_shard_is_that_of_the_oldest_at_each_look() {
        let (known, start) = (Known::default(), SystemTime::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let since = |oldest, gone: &[&str]| {
            known.unassigned_since(oldest, gone.iter().map(|gone| (*gone).to_owned()).collect(), true)
        };
        for seconds in 1..90 {
            assert_eq!(since(Some(at(seconds)), &[]), Some(at(seconds)));
        }
        let died = since(Some(at(90)), &["a"]).unwrap();
        assert!(died < at(90), "objects of a dead shard wait since that was seen");
        assert_eq!(since(None, &["a", "b"]), Some(died));
        assert!(since(None, &["b"]).unwrap() >= died);
        assert_eq!(since(None, &[]), None);
    }
}
