//! The metrics of the sharder (CONTRACT, "Metrics of the sharder"). Labels have few values: never an object's name.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use ringside_ring::{Members, RingName, cluster_ring::GroupResource, lease::ShardState};

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

/// All metrics; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    assignments: Family<ResourceLabels, Counter>,
    movements: Family<ResourceLabels, Counter>,
    drains: Family<ResourceLabels, Counter>,
    ring_calculations: Family<RingLabel, Counter>,
    shards: Family<RingLabel, Gauge>,
    available_shards: Family<RingLabel, Gauge>,
    shard_state: Family<StateLabels, Gauge>,
    forced: Family<ResourceLabels, Counter>,
    overdue: Family<ResourceLabels, Gauge>,
    draining: Family<RingLabel, Gauge>,
    oldest_drain: Family<RingLabel, Gauge>,
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
        add("drains", "Objects whose shard was asked to let go of them", &metrics.drains);
        add(
            "forced_movements",
            "Objects that were given another shard because theirs did not let go in time, and the API server fences it",
            &metrics.forced,
        );
        registry.register(
            "overdue_objects",
            "Objects that their shard has not let go of in time, and that nobody may take from it",
            metrics.overdue.clone(),
        );
        registry.register("ring_calculations", "Hash rings computed", metrics.ring_calculations.clone());
        registry.register("clusterring_status_shards", "Shards that have a Lease", metrics.shards.clone());
        registry.register(
            "clusterring_status_available_shards",
            "Shards that take part in partitioning",
            metrics.available_shards.clone(),
        );
        registry.register("shard_state", "Shards in each state", metrics.shard_state.clone());
        registry.register(
            "draining_objects",
            "Objects known to wait for their shard to let go",
            metrics.draining.clone(),
        );
        // A time rather than an age: it is true whenever it is read, and `time() - …` is the age.
        registry.register(
            "oldest_drain_timestamp_seconds",
            "When the drain began that waits the longest, in seconds since 1970",
            metrics.oldest_drain.clone(),
        );
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

    /// A shard was asked to let go of an object.
    pub(crate) fn drained(&self, ring: &RingName, resource: &GroupResource) {
        self.drains.get_or_create(&labels(ring, resource)).inc();
    }

    /// An object was taken from a shard that did not let go.
    pub(crate) fn forced(&self, ring: &RingName, resource: &GroupResource) {
        self.forced.get_or_create(&labels(ring, resource)).inc();
    }

    /// So many objects are held by shards that are late to let go.
    pub(crate) fn overdue(&self, ring: &RingName, resource: &GroupResource, objects: usize) {
        self.overdue.get_or_create(&labels(ring, resource)).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// A hash ring was computed.
    pub(crate) fn ring_calculated(&self, ring: &RingName) {
        self.ring_calculations.get_or_create(&ring_label(ring)).inc();
    }

    /// The shards of a ring, as its status says.
    pub(crate) fn status(&self, ring: &RingName, shards: i32, available: i32) {
        self.shards.get_or_create(&ring_label(ring)).set(i64::from(shards));
        self.available_shards.get_or_create(&ring_label(ring)).set(i64::from(available));
    }

    /// The states of all shards, as the leader judges them.
    pub(crate) fn states(&self, rings: &BTreeMap<RingName, Members>) {
        // A ring without Leases is not among them, and must not keep its last figures.
        self.shard_state.clear();
        for (ring, members) in rings {
            for state in ShardState::ALL {
                let labels = StateLabels { ring: ring.to_string(), state: state.as_str() };
                let count = members.iter().filter(|(_, of)| *of == state).count();
                self.shard_state.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    /// The ring is gone.
    pub(crate) fn ring_gone(&self, ring: &RingName) {
        for family in [&self.shards, &self.available_shards, &self.draining, &self.oldest_drain] {
            family.remove(&ring_label(ring));
        }
        // It is known again at the next look, for the other rings.
        self.overdue.clear();
    }

    /// How many objects of a ring are known to wait for their shard, and since when the first of them.
    pub(crate) fn draining(&self, ring: &RingName, objects: usize, oldest: Option<SystemTime>) {
        self.draining.get_or_create(&ring_label(ring)).set(i64::try_from(objects).unwrap_or(i64::MAX));
        match oldest.and_then(|since| since.duration_since(UNIX_EPOCH).ok()) {
            Some(since) => {
                let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
                self.oldest_drain.get_or_create(&ring_label(ring)).set(seconds);
            }
            None => {
                self.oldest_drain.remove(&ring_label(ring));
            }
        }
    }

    /// Takes back what only the leader can know, so that two replicas never say different things about one ring.
    pub(crate) fn no_leader(&self) {
        self.shards.clear();
        self.available_shards.clear();
        self.shard_state.clear();
        self.draining.clear();
        self.overdue.clear();
        self.oldest_drain.clear();
    }
}

fn labels(ring: &RingName, resource: &GroupResource) -> ResourceLabels {
    ResourceLabels { ring: ring.to_string(), group: resource.group.clone(), resource: resource.resource.clone() }
}

fn ring_label(ring: &RingName) -> RingLabel {
    RingLabel { ring: ring.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_names_are_those_of_the_contract() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let ring: RingName = "example".parse().unwrap();
        let resource = GroupResource { group: "apps".into(), resource: "deployments".into() };
        metrics.assigned(&ring, &resource);
        metrics.moved(&ring, &resource);
        metrics.drained(&ring, &resource);
        metrics.ring_calculated(&ring);
        metrics.draining(&ring, 3, Some(UNIX_EPOCH + std::time::Duration::from_secs(9)));
        metrics.status(&ring, 2, 1);
        let members = [("a", ShardState::Ready), ("b", ShardState::Dead)];
        let members = members.map(|(shard, state)| (shard.parse().unwrap(), state)).into_iter().collect();
        metrics.states(&BTreeMap::from([(ring, members)]));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"controller_sharding_assignments_total{ring="example",group="apps",resource="deployments"} 1"#,
            r#"controller_sharding_movements_total{ring="example",group="apps",resource="deployments"} 1"#,
            r#"controller_sharding_drains_total{ring="example",group="apps",resource="deployments"} 1"#,
            r#"controller_sharding_ring_calculations_total{ring="example"} 1"#,
            r#"controller_sharding_clusterring_status_shards{ring="example"} 2"#,
            r#"controller_sharding_clusterring_status_available_shards{ring="example"} 1"#,
            r#"controller_sharding_shard_state{ring="example",state="ready"} 1"#,
            r#"controller_sharding_shard_state{ring="example",state="orphaned"} 0"#,
            r#"controller_sharding_draining_objects{ring="example"} 3"#,
            r#"controller_sharding_oldest_drain_timestamp_seconds{ring="example"} 9"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
