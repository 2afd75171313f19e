//! The metrics of the sharder (CONTRACT, "Metrics of the sharder"). Labels have few values: never an object's name.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use ringside_ring::{Members, RingName, cluster_ring::GroupResource, lease::ShardState};

mod rings;

pub(crate) use rings::{CONDITION_MOVES, Objects, OfShard, RingFigures};

use rings::Rings;

/// The labels of what happens to objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResourceLabels {
    ring: String,
    group: String,
    resource: String,
}

/// The label of what concerns a ring as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RingLabel {
    ring: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    ring: String,
    state: &'static str,
}

/// Of what a replica has one of, or none.
type NoLabels = [(String, String); 0];

/// How long something took, by ring.
#[derive(Clone, Debug)]
struct Durations(Family<RingLabel, Histogram, fn() -> Histogram>);

/// From what no user notices to what a user looks into.
const BUCKETS: [f64; 13] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

impl Default for Durations {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(BUCKETS)))
    }
}

/// All metrics; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    assignments: Family<ResourceLabels, Counter>,
    movements: Family<ResourceLabels, Counter>,
    drains: Family<ResourceLabels, Counter>,
    forced: Family<ResourceLabels, Counter>,
    taken_back: Family<ResourceLabels, Counter>,
    ring_calculations: Family<RingLabel, Counter>,
    move_duration: Durations,
    assignment_duration: Durations,
    shard_state: Family<StateLabels, Gauge>,
    shard_state_since: Family<StateLabels, Gauge>,
    certificate_end: Family<NoLabels, Gauge>,
    leader: Gauge,
    write_limit: Gauge,
    moves_limit: Family<RingLabel, Gauge>,
    throttled: Counter,
    rings: Rings,
}

impl Metrics {
    /// Registers all metrics. Counters get their `_total` from the encoder.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("controller_sharding");
        let mut add = |name: &str, help: &str, family: &Family<ResourceLabels, Counter>| {
            registry.register(name, help, family.clone());
        };
        add("assignments", "Objects without owner that were given a shard", &metrics.assignments);
        add("movements", "Objects that were given another shard because theirs is gone", &metrics.movements);
        add("drains", "Objects whose shard was asked to release them", &metrics.drains);
        add(
            "forced_movements",
            "Objects that were taken from a shard which did not release them in time and is fenced by the API server",
            &metrics.forced,
        );
        add(
            "drains_taken_back",
            "Objects that their shard was asked to release, did not in time, and has back",
            &metrics.taken_back,
        );
        registry.register("ring_calculations", "Hash rings computed", metrics.ring_calculations.clone());
        registry.register(
            "move_duration_seconds",
            "From when an object was to leave its shard until another one had it",
            metrics.move_duration.0.clone(),
        );
        registry.register(
            "assignment_duration_seconds",
            "From when an object was seen without owner until it had its first one",
            metrics.assignment_duration.0.clone(),
        );
        registry.register("shard_state", "Shards in each state", metrics.shard_state.clone());
        registry.register(
            "shard_state_timestamp_seconds",
            "Since when there has been a shard in this state all the time, in seconds since 1970",
            metrics.shard_state_since.clone(),
        );
        registry.register(
            "webhook_certificate_expiration_timestamp_seconds",
            "When the certificate ends that this replica shows, in seconds since 1970",
            metrics.certificate_end.clone(),
        );
        registry.register("leader", "Whether this replica leads", metrics.leader.clone());
        registry.register(
            "write_limit",
            "Writes to objects that this replica has under way at most, as the API server takes them",
            metrics.write_limit.clone(),
        );
        registry.register(
            "moves_limit",
            "Objects of a ring that are between two shards at once at most, as the API server takes it",
            metrics.moves_limit.clone(),
        );
        registry.register(
            "throttled",
            "Answers by which the API server asked this replica to pause",
            metrics.throttled.clone(),
        );
        registry.register_collector(Box::new(metrics.rings.clone()));
        metrics
    }

    /// An object without owner was given a shard.
    pub(crate) fn assigned(&self, ring: &RingName, resource: &GroupResource) {
        self.assignments.get_or_create(&labels(ring, resource)).inc();
    }

    /// An object of a shard that is gone was given another.
    pub(crate) fn moved(&self, ring: &RingName, resource: &GroupResource) {
        self.movements.get_or_create(&labels(ring, resource)).inc();
    }

    /// A shard was asked to release an object.
    pub(crate) fn drained(&self, ring: &RingName, resource: &GroupResource) {
        self.drains.get_or_create(&labels(ring, resource)).inc();
    }

    /// An object was taken from a shard that did not release it.
    pub(crate) fn forced(&self, ring: &RingName, resource: &GroupResource) {
        self.forced.get_or_create(&labels(ring, resource)).inc();
    }

    /// A drain was taken back.
    pub(crate) fn taken_back(&self, ring: &RingName, resource: &GroupResource) {
        self.taken_back.get_or_create(&labels(ring, resource)).inc();
    }

    /// A hash ring was computed.
    pub(crate) fn ring_calculated(&self, ring: &RingName) {
        self.ring_calculations.get_or_create(&ring_label(ring)).inc();
    }

    /// An object has come from one shard to another.
    pub(crate) fn move_took(&self, ring: &RingName, duration: Duration) {
        self.move_duration.0.get_or_create(&ring_label(ring)).observe(duration.as_secs_f64());
    }

    /// An object that had no owner has one.
    pub(crate) fn assignment_took(&self, ring: &RingName, duration: Duration) {
        self.assignment_duration.0.get_or_create(&ring_label(ring)).observe(duration.as_secs_f64());
    }

    /// So many writes to objects are under way at most.
    pub(crate) fn write_limit(&self, permits: usize) {
        self.write_limit.set(i64::try_from(permits).unwrap_or(i64::MAX));
    }

    /// So many objects of a ring are on the move at most.
    pub(crate) fn moves_limit(&self, ring: &RingName, moves: usize) {
        self.moves_limit.get_or_create(&ring_label(ring)).set(i64::try_from(moves).unwrap_or(i64::MAX));
    }

    /// The API server asked for a pause.
    pub(crate) fn throttled(&self) {
        self.throttled.inc();
    }

    /// What is known of a ring.
    pub(crate) fn ring(&self, ring: &RingName, figures: RingFigures) {
        self.rings.set(ring, figures);
    }

    /// The states of all shards, as the leader judges them.
    pub(crate) fn states(&self, rings: &BTreeMap<RingName, Members>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let (mut counts, mut since) = (Vec::new(), Vec::new());
        for (ring, members) in rings {
            for state in ShardState::ALL {
                let labels = StateLabels { ring: ring.to_string(), state: state.as_str() };
                let count = members.iter().filter(|(_, of)| *of == state).count();
                if count > 0 {
                    let before = self.shard_state_since.get(&labels).map_or(now, |since| since.get());
                    since.push((labels.clone(), before));
                }
                counts.push((labels, i64::try_from(count).unwrap_or(i64::MAX)));
            }
        }
        // A ring without Leases is not among them, and must not keep its last figures.
        for (family, values) in [(&self.shard_state, counts), (&self.shard_state_since, since)] {
            family.clear();
            for (labels, value) in values {
                family.get_or_create(&labels).set(value);
            }
        }
    }

    /// When the certificate ends that the webhook shows from now on, if it says so.
    pub(crate) fn certified_until(&self, end: Option<Timestamp>) {
        self.certificate_end.clear();
        if let Some(end) = end {
            self.certificate_end.get_or_create(&[]).set(end.as_second());
        }
    }

    /// The ring is gone.
    pub(crate) fn ring_gone(&self, ring: &RingName) {
        self.rings.remove(ring);
        self.moves_limit.remove(&ring_label(ring));
    }

    /// This replica leads.
    pub(crate) fn leads(&self) {
        self.leader.set(1);
    }

    /// Takes back what only the leader can know, so that two replicas never say different things about one ring.
    pub(crate) fn no_leader(&self) {
        self.leader.set(0);
        self.shard_state.clear();
        self.shard_state_since.clear();
        self.rings.clear();
        self.moves_limit.clear();
    }
}

fn labels(ring: &RingName, resource: &GroupResource) -> ResourceLabels {
    ResourceLabels { ring: ring.to_string(), group: resource.group.clone(), resource: resource.resource.clone() }
}

fn ring_label(ring: &RingName) -> RingLabel {
    RingLabel { ring: ring.to_string() }
}

#[cfg(test)]
mod tests;
