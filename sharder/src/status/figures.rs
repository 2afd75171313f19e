//! How a ring's objects are distributed: the counts of the index, and the drains under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use ringside_ring::{
    HashRing, ShardName,
    cluster_ring::{GroupResource, NAMED_SHARDS, ObjectCounts, ShardObjects},
};

use crate::{
    drains::{Drains, Overdue},
    failed_moves::{Cause, Failed, FailedMoves},
    index::Lone,
    metrics::{Objects, OfShard, RingFigures},
    reconcile::Distribution,
    snapshot::Snapshot,
};

/// The figures of one ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// For the status; none before all resources were counted.
    pub(super) objects: Option<ObjectCounts>,
    /// By shard, the objects that it has not released in time, and keeps.
    pub(super) overdue: BTreeMap<String, Overdue>,
    /// By resource, the children that can't be written.
    pub(super) refused_children: BTreeMap<GroupResource, Failed>,
    /// By controlled resource, the objects without a controller of the ring; none before all were scanned.
    pub(super) lone: Option<BTreeMap<GroupResource, Lone>>,
    /// For the metrics.
    pub(super) measured: RingFigures,
}

/// What is known at this moment.
pub(super) fn figures(
    snapshot: &Snapshot,
    distribution: Distribution,
    (drains, failed_moves): (&Drains, &FailedMoves),
) -> Figures {
    let Distribution { resources, unassigned_since, counted, changed, lone } = distribution;
    let mut drains = drains.figures();
    let mut figures = Figures::default();
    let mut failed = failed_moves.all();
    failed.retain(|cause, failed| match cause {
        Cause::Shard(shard) => snapshot.members.is_available(shard),
        Cause::Children(kind) => {
            figures.refused_children.insert(kind.clone(), failed.clone());
            false
        }
    });
    let measured = &mut figures.measured;
    (measured.unassigned_since, measured.counted_at) = (unassigned_since, counted);
    let mut shards: Option<BTreeMap<String, u64>> = Some(BTreeMap::new());
    for main in &snapshot.mains {
        let of = resources.get(&main.resource.id).cloned().unwrap_or_default();
        let mut drains = drains.remove(&main.resource.id).unwrap_or_default();
        for (cause, failed) in &failed {
            if let (Cause::Shard(shard), Some(objects)) = (cause, failed.objects.get(&main.resource.id)) {
                drains.overdue.entry(shard.clone()).or_default().add(*objects, &failed.place);
            }
        }
        let of_drains = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let objects = Objects {
            assigned: of.shards.as_ref().map(|shards| shards.values().sum()),
            unassigned: of.unassigned,
            draining: of_drains(drains.draining),
            overdue: of_drains(drains.overdue.values().map(|overdue| overdue.objects).sum()),
        };
        measured.resources.insert(main.resource.id.clone(), objects);
        measured.draining_since = first(measured.draining_since, drains.since);
        for (shard, Overdue { objects, first }) in drains.overdue {
            figures.overdue.entry(shard).or_default().add(objects, &first);
        }
        shards = shards.zip(of.shards).map(|(mut all, of)| {
            for (shard, objects) in of {
                *all.entry(shard).or_default() += objects;
            }
            all
        });
    }
    let shards = shards.filter(|_| !snapshot.mains.is_empty());
    measured.by_shard = snapshot
        .members
        .weighted()
        .map(|(shard, weight)| {
            let objects = shards.as_ref().map(|shards| shards.get(shard.as_str()).copied().unwrap_or_default());
            (shard.to_string(), OfShard { objects, weight: weight.into() })
        })
        .collect();
    // Groups are not to have as much as each other.
    let among_all = shards.as_ref().filter(|_| snapshot.groups.is_empty());
    measured.max_to_mean = among_all.and_then(|shards| max_to_mean(shards, snapshot.hash_ring()));
    let controlled = snapshot.mains.iter().flat_map(|main| &main.controlled).map(|of| &of.id);
    // What is a main resource too has a shard without an owner.
    let controlled: BTreeSet<_> = controlled.filter(|of| snapshot.main(of).is_none()).collect();
    measured.lone = lone.into_iter().filter(|(resource, _)| controlled.contains(resource)).collect();
    figures.lone = (measured.lone.len() == controlled.len()).then(|| measured.lone.clone());
    let lone = figures.lone.as_ref().map(|lone| number(lone.values().map(Lone::objects).sum()));
    figures.objects = shards.map(|shards| ObjectCounts { counted_at: time(changed), lone, ..counts(measured, shards) });
    figures
}

fn first(a: Option<SystemTime>, b: Option<SystemTime>) -> Option<SystemTime> {
    a.into_iter().chain(b).min()
}

/// For its share, among the shards that have one; none without objects.
#[allow(clippy::cast_precision_loss, reason = "numbers of objects are far below what a float holds exactly")]
fn max_to_mean(shards: &BTreeMap<String, u64>, ring: &HashRing) -> Option<f64> {
    let objects = |shard: &ShardName| shards.get(shard.as_str()).copied().unwrap_or_default() as f64;
    let sharing =
        || ring.shares().filter(|(_, share)| *share > 0).map(|(shard, share)| (objects(shard), f64::from(share)));
    let (all, shares) = sharing().fold((0.0, 0.0), |(all, shares), (objects, share)| (all + objects, shares + share));
    (all > 0.0).then(|| sharing().map(|(objects, share)| objects / share * shares / all).fold(0.0, f64::max))
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn counts(measured: &RingFigures, shards: BTreeMap<String, u64>) -> ObjectCounts {
    let sum = |of: fn(&Objects) -> u64| number(measured.resources.values().map(of).sum());
    let mut listed: Vec<_> =
        shards.into_iter().map(|(name, objects)| ShardObjects { name, objects: number(objects) }).collect();
    if listed.len() > NAMED_SHARDS {
        listed.sort_by_key(|shard| std::cmp::Reverse(shard.objects));
        listed.truncate(NAMED_SHARDS);
        listed.sort_by(|a, b| a.name.cmp(&b.name));
    }
    ObjectCounts {
        assigned: sum(|of| of.assigned.unwrap_or_default()),
        unassigned: sum(|of| of.unassigned),
        unassigned_since: time(measured.unassigned_since),
        draining: sum(|of| of.draining),
        draining_since: time(measured.draining_since),
        lone: None,
        max_to_mean: measured.max_to_mean.map(|ratio| format!("{ratio:.2}")),
        shards: listed,
        counted_at: None,
    }
}

/// To the second, as it is stored: else it would differ from itself.
fn time(at: Option<SystemTime>) -> Option<Time> {
    let seconds = at?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok().map(Time)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{num::NonZeroU32, time::Duration};

    use super::*;
    use crate::{
        failed_moves::{Failure, Part},
        reconcile::Counts,
        snapshot::tests::snapshot,
    };

    /// So many objects of the shards `a` and `b`, and of none.
    fn counted(snapshot: &Snapshot, [a, b]: [u64; 2], unassigned: u64) -> Distribution {
        let shards = Some([("a".to_owned(), a), ("b".to_owned(), b)].into());
        let resources = [(snapshot.mains[0].resource.id.clone(), Counts { shards, unassigned })].into();
        Distribution { resources, ..Distribution::default() }
    }

    fn weighted<const N: usize>(shards: [(&str, &str); N]) -> HashRing {
        let shards = shards.map(|(shard, weight)| (shard.parse().unwrap(), weight.parse().unwrap()));
        HashRing::weighted(shards, NonZeroU32::new(10).unwrap())
    }

    #[test]
    fn nothing_is_said_before_it_was_counted() {
        let (snapshot, drains) = (snapshot(), Drains::default());
        let resource = snapshot.mains[0].resource.id.clone();
        let resources = [(resource.clone(), Counts { shards: None, unassigned: 1 })].into();
        let figures = figures(
            &snapshot,
            Distribution { resources, ..Distribution::default() },
            (&drains, &FailedMoves::default()),
        );
        assert_eq!(figures.objects, None);
        assert_eq!(figures.measured.resources[&resource].unassigned, 1);
    }

    #[test]
    fn the_figures_are_those_of_the_index_and_drains() {
        let (snapshot, drains) = (snapshot(), Drains::default());
        let resource = snapshot.mains[0].resource.id.clone();
        let began = SystemTime::now() - Duration::from_secs(90);
        drains.remember(
            &resource,
            &crate::target::Target { uid: "u".into(), ..Default::default() },
            "a",
            &crate::move_id::move_id(began),
        );
        drains.report(&crate::target::Target { uid: "u".into(), name: "o".into(), ..Default::default() });
        let failure = |cause, place: &str, why: Option<&str>| Failure {
            cause,
            of: resource.clone(),
            place: place.into(),
            why: why.map(Into::into),
            rest: Duration::from_secs(60),
        };
        let (moves, secrets) = (FailedMoves::default(), snapshot.mains[0].controlled[0].id.clone());
        for (uid, cause, place) in [("v", "a", "n"), ("w", "gone", "m")] {
            moves.failed(uid, Part::Whole, failure(Cause::Shard(cause.into()), place, None));
        }
        moves.failed("x", Part::Whole, failure(Cause::Children(secrets.clone()), "child", Some("no")));
        let figures = figures(&snapshot, counted(&snapshot, [3, 1], 2), (&drains, &moves));
        assert_eq!(figures.measured.resources[&resource].overdue, 2, "one was taken back");
        assert_eq!(figures.refused_children[&secrets].place, "child");
        let objects = figures.objects.unwrap();
        assert_eq!((objects.assigned, objects.unassigned, objects.draining), (4, 2, 1));
        assert_eq!(objects.max_to_mean.as_deref(), Some("1.50"));
        assert_eq!(objects.draining_since, time(Some(began)));
        let shards: Vec<_> = objects.shards.iter().map(|shard| (&*shard.name, shard.objects)).collect();
        assert_eq!(shards, [("a", 3), ("b", 1)]);
        assert_eq!(figures.overdue, BTreeMap::from([("a".to_owned(), Overdue { objects: 2, first: "n".into() })]));
        let by_shard = figures.measured.by_shard.iter().map(|(shard, it)| (&**shard, it.objects, it.weight));
        assert_eq!(by_shard.collect::<Vec<_>>(), [("a", Some(3), 1.0), ("b", Some(1), 1.0)]);
    }

    #[test]
    fn a_shard_with_twice_the_weight_has_twice_the_share() {
        let shards = |a, b| [("a".to_owned(), a), ("b".to_owned(), b), ("none".to_owned(), 0)].into();
        let ring = weighted([("a", "2"), ("b", "1"), ("none", "0")]);
        assert_eq!(max_to_mean(&shards(20, 10), &ring), Some(1.0));
        assert_eq!(max_to_mean(&shards(15, 15), &ring), Some(1.5));
        assert_eq!(max_to_mean(&shards(0, 0), &ring), None);
    }

    #[test]
    fn where_no_shard_has_any_weight_all_are_alike() {
        let shards = |a, b| [("a".to_owned(), a), ("b".to_owned(), b)].into();
        let ring = weighted([("a", "0"), ("b", "0")]);
        assert_eq!(max_to_mean(&shards(10, 10), &ring), Some(1.0));
        assert_eq!(max_to_mean(&shards(15, 5), &ring), Some(1.5));
        assert_eq!(max_to_mean(&shards(0, 0), &ring), None);
        assert_eq!(max_to_mean(&shards(1, 0), &weighted([])), None, "there is no shard");
        assert_eq!(max_to_mean(&shards(9, 0), &weighted([("a", "0"), ("b", "1")])), None, "all are about to leave");
        assert_eq!(max_to_mean(&shards(9, 1), &weighted([("a", "0"), ("b", "1")])), Some(1.0));
    }

    #[test]
    fn of_very_many_shards_those_with_the_most_are_listed() {
        let shards = (0..250).map(|shard| (format!("shard-{shard:03}"), u64::from(shard % 2 == 0))).collect();
        let listed = counts(&RingFigures::default(), shards).shards;
        assert_eq!(listed.len(), NAMED_SHARDS);
        assert!(listed.iter().all(|shard| shard.objects == 1) && listed.is_sorted_by_key(|shard| &shard.name));
    }

    #[test]
    fn lone_objects_are_told_when_each_controlled_resource_was_looked_through() {
        let (snapshot, drains) = (snapshot(), Drains::default());
        let before = counted(&snapshot, [0, 0], 0);
        assert_eq!(figures(&snapshot, before.clone(), (&drains, &FailedMoves::default())).objects.unwrap().lone, None);
        let controlled = &snapshot.mains[0].controlled[0].id;
        let of_no_ring = GroupResource { group: "x.y".into(), resource: "zs".into() };
        let one = Lone { uncontrolled: 1, ..Lone::default() };
        let lone = [(controlled.clone(), one), (of_no_ring, Lone::default())].into();
        let figures = figures(&snapshot, Distribution { lone, ..before }, (&drains, &FailedMoves::default()));
        assert_eq!(figures.objects.unwrap().lone, Some(1));
        assert_eq!(figures.lone.unwrap().keys().collect::<Vec<_>>(), [controlled]);
    }
}
