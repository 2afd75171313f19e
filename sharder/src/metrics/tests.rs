#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use crate::index::Lone;

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn ring() -> RingName {
    "example".parse().unwrap()
}

fn lone() -> Lone {
    Lone { uncontrolled: 1, ..Lone::default() }
}

fn all() -> RingFigures {
    let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
    let objects = Objects { assigned: Some(5), unassigned: 2, draining: 3, overdue: 1 };
    RingFigures {
        shards: 2,
        available_shards: 1,
        absent_controllers: 1,
        absent_since: Some(5),
        resources: [(GroupResource { group: "apps".into(), resource: "deployments".into() }, objects)].into(),
        by_shard: [("a".to_owned(), OfShard { objects: Some(5), weight: 0.5 })].into(),
        lone: [(GroupResource { group: String::new(), resource: "secrets".into() }, lone())].into(),
        unassigned_since: at(8),
        draining_since: at(9),
        joining_since: at(10),
        counted_at: at(7),
        max_to_mean: Some(1.25),
        conditions: [
            ("Ready".to_owned(), (true, 6, "ReconciliationSucceeded".to_owned())),
            ("MovesEnabled".to_owned(), (false, 4, "Paused".to_owned())),
        ]
        .into(),
    }
}

/// Everything that there is, with a value for each.
fn registry() -> (Registry, Metrics) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let resource = GroupResource { group: "apps".into(), resource: "deployments".into() };
    metrics.assigned(&ring(), &resource);
    metrics.moved(&ring(), &resource);
    metrics.drained(&ring(), &resource);
    metrics.forced(&ring(), &resource);
    metrics.taken_back(&ring(), &resource);
    metrics.ring_calculated(&ring());
    metrics.move_took(&ring(), Duration::from_millis(1200));
    metrics.assignment_took(&ring(), Duration::from_millis(20));
    metrics.ring(&ring(), all());
    metrics.leads();
    metrics.certified_until(Some(Timestamp::from_second(1_900_000_000).unwrap()));
    let members = [("a", ShardState::Ready), ("b", ShardState::Dead)];
    let members = members.map(|(shard, state)| (shard.parse().unwrap(), state)).into_iter().collect();
    metrics.states(&BTreeMap::from([(ring(), members)]));
    (registry, metrics)
}

#[test]
fn the_names_are_those_of_the_contract() {
    let text = text(&registry().0);
    for line in [
        r#"controller_sharding_assignments_total{ring="example",group="apps",resource="deployments"} 1"#,
        r#"controller_sharding_movements_total{ring="example",group="apps",resource="deployments"} 1"#,
        r#"controller_sharding_drains_total{ring="example",group="apps",resource="deployments"} 1"#,
        r#"controller_sharding_ring_calculations_total{ring="example"} 1"#,
        r#"controller_sharding_clusterring_status_shards{ring="example"} 2"#,
        r#"controller_sharding_clusterring_status_available_shards{ring="example"} 1"#,
        r#"controller_sharding_clusterring_status_absent_controllers{ring="example"} 1"#,
        r#"controller_sharding_oldest_absent_controller_timestamp_seconds{ring="example"} 5"#,
        r#"controller_sharding_paused_timestamp_seconds{ring="example"} 4"#,
        r#"controller_sharding_shard_state{ring="example",state="ready"} 1"#,
        r#"controller_sharding_shard_state{ring="example",state="orphaned"} 0"#,
        r#"controller_sharding_draining_objects{ring="example",group="apps",resource="deployments"} 3"#,
        r#"controller_sharding_oldest_drain_timestamp_seconds{ring="example"} 9"#,
        r#"controller_sharding_oldest_unfiltered_resource_timestamp_seconds{ring="example"} 10"#,
        r#"controller_sharding_clusterring_condition{ring="example",type="Ready",reason="ReconciliationSucceeded"} 1"#,
        r#"controller_sharding_clusterring_condition_transition_timestamp_seconds{ring="example",type="Ready",reason="ReconciliationSucceeded"} 6"#,
        r#"controller_sharding_move_duration_seconds_bucket{le="2.5",ring="example"} 1"#,
        r#"controller_sharding_lone_objects{ring="example",group="",resource="secrets",controller="none"} 1"#,
        r#"controller_sharding_lone_objects{ring="example",group="",resource="secrets",controller="foreign"} 0"#,
        r#"controller_sharding_shard_objects{ring="example",shard="a"} 5.0"#,
        r#"controller_sharding_shard_weight{ring="example",shard="a"} 0.5"#,
        r#"controller_sharding_leader 1"#,
        r#"controller_sharding_webhook_certificate_expiration_timestamp_seconds{} 1900000000"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}

#[test]
fn what_only_the_leader_knows_ends_with_it_and_with_the_ring() {
    let (registry, metrics) = registry();
    metrics.moves_limit(&ring(), 16);
    assert!(text(&registry).contains(r#"controller_sharding_moves_limit{ring="example"} 16"#));
    metrics.ring_gone(&ring());
    let left = text(&registry);
    assert!(!left.contains("clusterring_status_shards{") && !left.contains("moves_limit{"), "{left}");
    metrics.ring(&ring(), all());
    metrics.moves_limit(&ring(), 16);
    metrics.no_leader();
    let left = text(&registry);
    assert!(!left.contains("moves_limit{"), "{left}");
    assert!(!left.contains("clusterring_status_shards{") && !left.contains("shard_state{"), "{left}");
    assert!(left.contains("controller_sharding_leader 0"), "{left}");
}

#[test]
fn without_a_certificate_there_is_no_end_of_one() {
    let (registry, metrics) = registry();
    metrics.certified_until(None);
    assert!(!text(&registry).contains("webhook_certificate_expiration_timestamp_seconds{"));
}

#[test]
fn a_state_is_dated_from_its_beginning() {
    let (_, metrics) = registry();
    let of = |state: ShardState| BTreeMap::from([(ring(), [("a".parse().unwrap(), state)].into_iter().collect())]);
    let labels = |state: ShardState| StateLabels { ring: "example".into(), state: state.as_str() };
    let since = |state| metrics.shard_state_since.get(&labels(state)).map(|since| since.get());
    metrics.states(&of(ShardState::Uncertain));
    metrics.shard_state_since.get_or_create(&labels(ShardState::Uncertain)).set(7);
    metrics.states(&of(ShardState::Uncertain));
    assert_eq!((since(ShardState::Uncertain), since(ShardState::Ready)), (Some(7), None));
    metrics.states(&of(ShardState::Ready));
    metrics.states(&of(ShardState::Uncertain));
    assert!(since(ShardState::Uncertain).unwrap() > 7);
}

/// The words of a text that look like metrics of the sharder, without the endings that the encoder adds.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|word| word.starts_with("controller_sharding_"));
    let endings = ["_total", "_bucket", "_count", "_sum"];
    ours.map(|word| endings.iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word).to_owned()).collect()
}

/// The names of all that is registered, also of what has no value yet.
fn registered() -> BTreeSet<String> {
    let (registry, _) = registry();
    let debug = format!("{registry:?}");
    let families = debug.split("Descriptor { name: \"").skip(1).filter_map(|rest| rest.split('"').next());
    let families = families.map(|name| format!("controller_sharding_{name}"));
    let shown = text(&registry);
    let shown = shown.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    families.chain(shown.map(str::to_owned)).collect()
}

#[test]
fn the_page_lists_every_metric_and_no_other() {
    let page = include_str!("../../../docs/src/metrics.md");
    let table = page.lines().filter_map(|line| line.strip_prefix("| `controller_sharding_"));
    let listed: Vec<_> = table.map(|row| format!("controller_sharding_{row}")).collect();
    let listed = listed.iter().flat_map(|row| named(row.split('`').next().unwrap())).collect();
    assert_eq!(registered(), listed);
}

#[test]
fn what_is_delivered_for_monitoring_names_only_what_there_is() {
    for text in [
        include_str!("../../../deploy/monitoring/rules.yaml"),
        include_str!("../../../deploy/monitoring/dashboard.json"),
        include_str!("../../../docs/src/troubleshooting.md"),
        include_str!("../../../docs/src/metrics.md"),
    ] {
        assert!(!named(text).is_empty());
        let unknown: Vec<_> = named(text).difference(&registered()).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
