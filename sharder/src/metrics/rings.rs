//! What the leader measures of each ring, and shows at each scrape.
//!
//! Points in time rather than ages: they are true whenever they are read, and `time() - …` is the age.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
};
use ringside_ring::{RingName, cluster_ring::GroupResource};

use super::{ResourceLabels, RingLabel, labels, ring_label};
use crate::{index::Lone, lock::Mutex};

/// The type of the condition that says whether objects move between shards that work.
pub(crate) const CONDITION_MOVES: &str = "MovesEnabled";

/// What is known of one ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingFigures {
    pub(crate) shards: i32,
    pub(crate) available_shards: i32,
    pub(crate) absent_controllers: i32,
    /// Since when the first of them is, in seconds since 1970.
    pub(crate) absent_since: Option<i64>,
    pub(crate) resources: BTreeMap<GroupResource, Objects>,
    /// By available shard.
    pub(crate) by_shard: BTreeMap<String, OfShard>,
    /// By controlled resource, the objects without a controller of the ring.
    pub(crate) lone: BTreeMap<GroupResource, Lone>,
    pub(crate) unassigned_since: Option<SystemTime>,
    pub(crate) draining_since: Option<SystemTime>,
    /// Since when every shard is shown all objects of a resource, as they have yet to be labelled.
    pub(crate) joining_since: Option<SystemTime>,
    /// When all objects were counted last.
    pub(crate) counted_at: Option<SystemTime>,
    pub(crate) max_to_mean: Option<f64>,
    /// By type, whether it holds, since when, in seconds since 1970, and why.
    pub(crate) conditions: BTreeMap<String, (bool, i64, String)>,
}

/// What is known of the objects of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    /// None before they were counted.
    pub(crate) assigned: Option<u64>,
    pub(crate) unassigned: u64,
    pub(crate) draining: u64,
    /// Of those that drain, those that their shard is late with and keeps.
    pub(crate) overdue: u64,
}

/// What is known of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfShard {
    /// None before they were counted.
    pub(crate) objects: Option<u64>,
    pub(crate) weight: f64,
}

/// The figures of all rings; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings(Arc<Mutex<BTreeMap<RingName, RingFigures>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    ring: String,
    r#type: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardLabels {
    ring: String,
    shard: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoneLabels {
    ring: String,
    group: String,
    resource: String,
    controller: &'static str,
}

impl Rings {
    /// This is how the ring is now.
    pub(crate) fn set(&self, ring: &RingName, figures: RingFigures) {
        self.0.lock().insert(ring.clone(), figures);
    }

    /// Nothing is known of the ring any more.
    pub(crate) fn remove(&self, ring: &RingName) {
        self.0.lock().remove(ring);
    }

    /// Nothing is known of any ring any more.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The metrics of rings as a whole: name, what it says, and its value.
type OfRing = (&'static str, &'static str, fn(&RingFigures) -> Option<i64>);

const OF_RINGS: [OfRing; 9] = [
    ("clusterring_status_shards", "Shards that have a Lease", |ring| Some(ring.shards.into())),
    ("clusterring_status_available_shards", "Shards that take part in partitioning", |ring| {
        Some(ring.available_shards.into())
    }),
    ("clusterring_status_absent_controllers", "Shards whose controller does not work", |ring| {
        Some(ring.absent_controllers.into())
    }),
    (
        "oldest_absent_controller_timestamp_seconds",
        "Since when the controller is absent that has been so for the longest, in seconds since 1970",
        |ring| ring.absent_since,
    ),
    (
        "oldest_unassigned_timestamp_seconds",
        "Since when the object has had no available shard that has had none for the longest, in seconds since 1970",
        |ring| seconds(ring.unassigned_since),
    ),
    ("oldest_drain_timestamp_seconds", "When the drain began that waits the longest, in seconds since 1970", |ring| {
        seconds(ring.draining_since)
    }),
    (
        "oldest_unfiltered_resource_timestamp_seconds",
        "Since when a resource has been in the ring whose objects are yet to be labelled, in seconds since 1970",
        |ring| seconds(ring.joining_since),
    ),
    ("paused_timestamp_seconds", "Since when the ring has been paused, in seconds since 1970", |ring| {
        ring.conditions.get(CONDITION_MOVES).filter(|(enabled, ..)| !enabled).map(|(_, since, _)| *since)
    }),
    ("counted_timestamp_seconds", "When all objects were counted last, in seconds since 1970", |ring| {
        seconds(ring.counted_at)
    }),
];

/// The same of their resources.
type OfResource = (&'static str, &'static str, fn(&Objects) -> Option<u64>);

const OF_RESOURCES: [OfResource; 4] = [
    (
        "assigned_objects",
        "Objects that an available shard has, when they were counted last, and what was moved since",
        |it| it.assigned,
    ),
    ("unassigned_objects", "Objects that no available shard has", |it| Some(it.unassigned)),
    ("draining_objects", "Objects whose shard was asked to release them, and has not", |it| Some(it.draining)),
    ("overdue_objects", "Objects that their shard has not released in time, and that may not be taken from it", |it| {
        Some(it.overdue)
    }),
];

/// The same of their shards.
type OfShards = (&'static str, &'static str, fn(&OfShard) -> Option<f64>);

#[allow(clippy::cast_precision_loss, reason = "numbers of objects are far below what a float holds exactly")]
const OF_SHARDS: [OfShards; 2] = [
    ("shard_objects", "Objects that this available shard has, as in assigned_objects", |it| {
        it.objects.map(|objects| objects as f64)
    }),
    ("shard_weight", "Weight of this available shard", |it| Some(it.weight)),
];

/// The same of their conditions.
type OfCondition = (&'static str, &'static str, fn(&(bool, i64, String)) -> i64);

const OF_CONDITIONS: [OfCondition; 2] = [
    ("clusterring_condition", "Whether a condition of the ring's status holds", |(holds, ..)| i64::from(*holds)),
    (
        "clusterring_condition_transition_timestamp_seconds",
        "Since when it has been so, in seconds since 1970",
        |(_, since, _)| *since,
    ),
];

fn seconds(at: Option<SystemTime>) -> Option<i64> {
    i64::try_from(at?.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

impl Collector for Rings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rings = self.0.lock();
        for (name, help, value) in OF_RINGS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (ring, figures) in rings.iter() {
                let Some(value) = value(figures) else { continue };
                family.encode_family::<RingLabel>(&ring_label(ring))?.encode_gauge(&value)?;
            }
        }
        let help = "Highest object count of a shard divided by the mean";
        let mut family = encoder.encode_descriptor("objects_max_to_mean_ratio", help, None, MetricType::Gauge)?;
        for (ring, figures) in rings.iter() {
            let Some(ratio) = figures.max_to_mean else { continue };
            family.encode_family::<RingLabel>(&ring_label(ring))?.encode_gauge(&ratio)?;
        }
        for (name, help, value) in OF_RESOURCES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (ring, figures) in rings.iter() {
                for (resource, objects) in &figures.resources {
                    let Some(value) = value(objects) else { continue };
                    family.encode_family::<ResourceLabels>(&labels(ring, resource))?.encode_gauge(&value)?;
                }
            }
        }
        for (name, help, value) in OF_SHARDS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (ring, figures) in rings.iter() {
                for (shard, of_shard) in &figures.by_shard {
                    let Some(value) = value(of_shard) else { continue };
                    let labels = ShardLabels { ring: ring.to_string(), shard: shard.clone() };
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        let help = "Objects of a controlled resource that no shard sees, as no object of the ring controls them";
        let mut family = encoder.encode_descriptor("lone_objects", help, None, MetricType::Gauge)?;
        for (ring, figures) in rings.iter() {
            for (of, lone) in &figures.lone {
                for (controller, objects) in [("none", lone.uncontrolled), ("foreign", lone.foreign)] {
                    let ResourceLabels { ring, group, resource } = labels(ring, of);
                    let labels = LoneLabels { ring, group, resource, controller };
                    family.encode_family(&labels)?.encode_gauge(&objects)?;
                }
            }
        }
        for (name, help, value) in OF_CONDITIONS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (ring, figures) in rings.iter() {
                for (type_, condition) in &figures.conditions {
                    let labels =
                        ConditionLabels { ring: ring.to_string(), r#type: type_.clone(), reason: condition.2.clone() };
                    family.encode_family(&labels)?.encode_gauge(&value(condition))?;
                }
            }
        }
        Ok(())
    }
}
