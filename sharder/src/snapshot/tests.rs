//! Snapshots for tests, and tests of snapshots.

#![allow(clippy::unwrap_used)]

use kube::discovery::ApiResource;
use ringside_ring::{Controller, PartitionKey, lease::ShardState, members::Member};
use serde_json::json;

use super::*;
use crate::resources::Unusable;

/// Few tokens: the tests are about what is made of the placement.
const TOKENS: NonZeroU32 = NonZeroU32::new(10).unwrap();

pub(crate) fn resource(group: &str, kind: &str, plural: &str) -> Arc<Resource> {
    let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    let api = ApiResource {
        group: group.into(),
        version: "v1".into(),
        api_version,
        kind: kind.into(),
        plural: plural.into(),
    };
    Arc::new(Resource::new(GroupResource { group: group.into(), resource: plural.into() }, api, true))
}

/// The key of an object of this name in namespace `default`.
pub(crate) fn key_of(main: &Main, name: &str) -> PartitionKey {
    let (name, namespace) = (Some(name.to_owned()), Some("default".to_owned()));
    main.resource.key(&ObjectMeta { name, namespace, ..ObjectMeta::default() }, &main.placed_by)
}

pub(crate) fn catalog() -> Catalog {
    let served = [
        resource("", "ConfigMap", "configmaps"),
        resource("", "Secret", "secrets"),
        resource("apps", "Deployment", "deployments"),
    ];
    served.into_iter().map(|resource| (resource.id.clone(), Ok(resource))).collect()
}

/// A ring without shards, where these resources are served.
pub(crate) fn with_catalog(spec: &serde_json::Value, served: impl IntoIterator<Item = Arc<Resource>>) -> Snapshot {
    let catalog = served.into_iter().map(|resource| (resource.id.clone(), Ok(resource))).collect();
    Snapshot::build("example".parse().unwrap(), &ring(spec), &catalog, members(&[]), None, TOKENS)
}

pub(crate) fn members(shards: &[(&str, ShardState)]) -> Members {
    shards.iter().map(|(shard, state)| (shard.parse().unwrap(), *state)).collect()
}

/// The ring of the thesis' example.
pub(crate) fn ring(spec: &serde_json::Value) -> Ring {
    serde_json::from_value(json!({
        "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
        "metadata": {"name": "example", "uid": "ring-uid", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn example_spec() -> serde_json::Value {
    json!({
        "resources": [{"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]}],
        "namespaceSelector": {"matchLabels": {"role": "project"}},
    })
}

/// ConfigMaps with Secrets, shards `a` and `b`, and a dead one.
pub(crate) fn snapshot() -> Snapshot {
    snapshot_of(
        &ring(&example_spec()),
        &[("a", ShardState::Ready), ("b", ShardState::Ready), ("gone", ShardState::Dead)],
    )
}

pub(crate) fn snapshot_of(ring: &Ring, shards: &[(&str, ShardState)]) -> Snapshot {
    Snapshot::build("example".parse().unwrap(), ring, &catalog(), members(shards), None, TOKENS)
}

/// The example ring with these shards, which are ready, and of which one has no working controller.
pub(crate) fn with_absent(shards: &[&str], absent: &str) -> Snapshot {
    use ringside_ring::{Weight, controller::Controller, members::Member};
    let all: Members = shards.iter().fold(Members::default(), |members, shard| {
        let controller = if *shard == absent { Controller::Absent } else { Controller::Working };
        members.with(shard.parse().unwrap(), Member { state: ShardState::Ready, weight: Weight::ONE, controller })
    });
    Snapshot::build("example".parse().unwrap(), &ring(&example_spec()), &catalog(), all, None, TOKENS)
}

fn rebuilt(previous: &Snapshot, shards: &[(&str, ShardState)]) -> Snapshot {
    let ring = ring(&example_spec());
    Snapshot::build("example".parse().unwrap(), &ring, &catalog(), members(shards), Some(previous), TOKENS)
}

#[test]
fn the_hash_ring_is_computed_only_when_the_available_shards_change() {
    let before = snapshot();
    let expired = rebuilt(&before, &[("a", ShardState::Expired), ("b", ShardState::Ready)]);
    assert!(Arc::ptr_eq(before.hash_ring(), expired.hash_ring()));
    assert!(before.among_the_same(&expired) && before.distributes_the_same(&expired));
    assert!(!before.receives_alike(&expired), "nothing new goes to a");
    let uncertain = rebuilt(&before, &[("a", ShardState::Uncertain), ("b", ShardState::Ready)]);
    assert!(expired.receives_alike(&uncertain));
    let joined = rebuilt(&before, &[("a", ShardState::Ready), ("b", ShardState::Ready), ("gone", ShardState::Ready)]);
    assert!(!Arc::ptr_eq(before.hash_ring(), joined.hash_ring()));
}

#[test]
fn paused_ring_keeps_objects_where_they_are() {
    let mut ring = ring(&example_spec());
    for paused in [false, true] {
        ring.spec.paused = paused;
        let built = snapshot_of(&ring, &[("a", ShardState::Ready), ("b", ShardState::Ready)]);
        let settles = (0..100).filter(|key| built.view(GroupId::default()).settles_at(key << 57).is_some()).count();
        assert_eq!(settles > 0, !paused);
    }
}

#[test]
fn a_key_that_can_t_be_used_is_told_and_places_nothing() {
    let of = |entry: serde_json::Value| {
        let ring = ring(&json!({"resources": [entry]}));
        let built = snapshot_of(&ring, &[("a", ShardState::Ready)]);
        (built.mains.iter().filter(|main| !built.withholds(main)).count(), built.problems)
    };
    let said = |key: serde_json::Value| of(json!({"group": "", "resource": "configmaps", "key": key}));
    for key in [json!("Namespace"), json!({"label": "team"}), json!({"annotation": "team"}), json!(null)] {
        assert_eq!(said(key), (1, vec![]));
    }
    for key in [json!({"lable": "team"}), json!({"label": "no key"}), json!({"annotation": "a/b/c"})] {
        let (mains, problems) = said(key);
        assert!(mains == 0 && problems.len() == 1 && problems[0].contains("{label: KEY}"), "{problems:?}");
    }
    let mut ring_of = ring(&json!({"resources": [{"group": "", "resource": "configmaps"}]}));
    ring_of.spec.groups =
        serde_json::from_value(json!([{"name": "g", "selector": {"matchLabels": {"no key": "x"}}}])).unwrap();
    let built = snapshot_of(&ring_of, &[("a", ShardState::Ready)]);
    assert!(built.withholds(&built.mains[0]) && built.problems[0].contains("group 'g'"), "{:?}", built.problems);
    let ring = ring(&json!({"resources": [
        {"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]},
        {"group": "", "resource": "secrets", "key": "Namespace",
            "controlledResources": [{"group": "apps", "resource": "deployments"}]}]}));
    let built = snapshot_of(&ring, &[("a", ShardState::Ready)]);
    assert!(built.mains.len() == 1 && built.problems[0].contains("follow their owners"), "{:?}", built.problems);
}

#[test]
fn another_weight_makes_another_hash_ring() {
    let weighing = |weight: &str| {
        let member =
            Member { state: ShardState::Ready, weight: weight.parse().unwrap(), controller: Controller::Working };
        let members = members(&[("a", ShardState::Ready)]).with("b".parse().unwrap(), member);
        Snapshot::build("example".parse().unwrap(), &ring(&example_spec()), &catalog(), members, None, TOKENS)
    };
    let (one, two, none) = (weighing("1"), weighing("2"), weighing("0"));
    assert!(one.among_the_same(&weighing("1")) && !one.among_the_same(&two));
    assert_eq!(none.hash_ring().shards().len(), 2, "one without objects is a shard all the same");
}

/// From the option to the placement.
#[test]
fn with_a_hundred_tokens_objects_are_where_the_thesis_has_them() {
    #[derive(serde::Deserialize)]
    struct Vector {
        shards: Vec<String>,
        owners: BTreeMap<String, String>,
    }
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("../../../ring/testdata/placement.json")).unwrap();
    let tokens = crate::config::parse_tokens("100").unwrap();
    let mut compared = 0;
    for Vector { shards, owners } in vectors {
        let members = shards.iter().map(|shard| (shard.parse().unwrap(), ShardState::Ready)).collect();
        let ring = ring(&example_spec());
        let snapshot = Snapshot::build("example".parse().unwrap(), &ring, &catalog(), members, None, tokens);
        for (key, owner) in owners {
            let mut parts = key.splitn(4, '/');
            let mut next = || parts.next().unwrap();
            let key = PartitionKey::of(next(), next(), next(), next());
            assert_eq!(snapshot.hash_ring().owner(&key).unwrap().as_str(), owner, "{key:?}");
            compared += 1;
        }
    }
    assert!(compared > 200, "only {compared} placements in the vectors");
}

#[test]
fn what_is_not_served_is_a_problem_and_what_is_being_looked_up_is_pending() {
    let spec = json!({"resources": [
        {"group": "", "resource": "configmaps"}, {"group": "x.y", "resource": "things"}, {"group": "", "resource": "pods"}]});
    let mut catalog = catalog();
    catalog.insert(GroupResource { group: "x.y".into(), resource: "things".into() }, Err(Unusable::NotServed));
    let build = |catalog: &Catalog| {
        Snapshot::build("example".parse().unwrap(), &ring(&spec), catalog, members(&[]), None, TOKENS)
    };
    let snapshot = build(&catalog);
    assert!(snapshot.pending);
    assert_eq!(snapshot.mains.len(), 1);
    let unresolved: Vec<_> = snapshot.unresolved.iter().map(ToString::to_string).collect();
    assert_eq!(unresolved, ["pods", "things.x.y"]);
    let problem = "resource 'things.x.y' is not served by the API server; check its group and plural name";
    assert_eq!(snapshot.problems, [problem]);
    catalog.insert(GroupResource { group: String::new(), resource: "pods".into() }, Err(Unusable::Verbs));
    assert!(!build(&catalog).pending);
}

/// A proxy that does not know a resource shows all of its objects.
#[test]
fn new_resource_is_given_to_no_shard_until_all_know_of_it() {
    let with = |main: &str, children: &[&str]| {
        let children: Vec<_> = children.iter().map(|name| json!({"group": "", "resource": name})).collect();
        let main = json!({"group": "apps", "resource": main, "controlledResources": children});
        let mut spec = example_spec();
        spec["resources"].as_array_mut().unwrap().push(main);
        snapshot_of(&ring(&spec), &[("a", ShardState::Ready)])
    };
    let distributed = |snapshot: &Snapshot| -> Vec<String> {
        let distributed = snapshot.mains.iter().filter(|main| !snapshot.withholds(main));
        distributed.map(|main| main.resource.id.to_string()).collect()
    };
    let at = Instant::now();
    let before = snapshot().after(None, false, at);
    assert_eq!(distributed(&before), ["configmaps"], "a sharder that begins waits for nothing");
    let new = with("deployments", &[]).after(Some(&before), false, at);
    assert_eq!((distributed(&new), new.long_unheard(at).len()), (vec!["configmaps".to_owned()], 0));
    let later = at + LONG_UNHEARD;
    let still = with("deployments", &[]).after(Some(&new), false, later);
    assert_eq!(
        (distributed(&still), still.long_unheard(later)),
        (vec!["configmaps".to_owned()], vec!["deployments.apps".to_owned()])
    );
    let known = with("deployments", &[]).after(Some(&still), true, later);
    assert_eq!(
        (distributed(&known), known.long_unheard(later).len()),
        (vec!["configmaps".to_owned(), "deployments.apps".to_owned()], 0)
    );
    let late = with("deployments", &[]).after(Some(&known), false, later);
    assert_eq!(distributed(&late).len(), 2, "one more shard came, which reads the ring as it is");
    let child = with("deployments", &["pods"]).after(Some(&late), false, later);
    assert_eq!(distributed(&child).len(), 2, "what was distributed before goes on");
}

#[test]
fn a_resource_named_twice_is_one_with_all_its_children() {
    let child = |group: &str, resource: &str| json!({"group": "", "resource": "configmaps", "controlledResources": [{"group": group, "resource": resource}]});
    let snapshot = snapshot_of(
        &ring(&json!({"resources": [child("", "secrets"), child("apps", "deployments"), child("", "secrets")]})),
        &[],
    );
    let controlled: Vec<_> = snapshot.mains[0].controlled.iter().map(|child| child.id.to_string()).collect();
    assert_eq!((snapshot.mains.len(), controlled), (1, vec!["secrets".to_owned(), "deployments.apps".to_owned()]));
}

#[test]
fn a_resource_that_another_controls_is_a_main_resource_too_where_it_is_named_so() {
    let mut spec = example_spec();
    let secrets = json!({"group": "", "resource": "secrets"});
    spec["resources"].as_array_mut().unwrap().extend([secrets.clone(), secrets]);
    let snapshot = snapshot_of(&ring(&spec), &[]);
    let mains: Vec<_> = snapshot.mains.iter().map(|main| main.resource.id.to_string()).collect();
    assert_eq!(mains, ["configmaps", "secrets"]);
    assert_eq!(snapshot.problems, [""; 0]);
    assert!(
        snapshot.mains[0].controls(&snapshot.mains[1].resource.id).is_some() && snapshot.mains[1].controlled.is_empty()
    );
}

fn names<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Vec<String> {
    resources.into_iter().map(|resource| resource.id.to_string()).collect()
}

#[test]
fn a_chain_is_one_main_resource_however_it_is_said() {
    let of = |group: &str, resource: &str, controlled: &[(&str, &str)]| {
        let controlled: Vec<_> =
            controlled.iter().map(|(group, resource)| json!({"group": group, "resource": resource})).collect();
        json!({"group": group, "resource": resource, "controlledResources": controlled})
    };
    let at_once = json!({"resources": [of("apps", "deployments", &[("", "configmaps"), ("", "secrets")])]});
    let link_by_link = json!({"resources": [of("", "configmaps", &[("", "secrets")]), of("apps", "deployments", &[("", "configmaps")])]});
    for spec in [at_once, link_by_link] {
        let snapshot = snapshot_of(&ring(&spec), &[]);
        assert_eq!(snapshot.problems, Vec::<String>::new());
        assert_eq!(names(snapshot.mains.iter().map(|main| &main.resource)), ["deployments.apps"]);
        assert_eq!(names(&snapshot.mains[0].controlled), ["configmaps", "secrets"]);
    }
    let circle =
        json!({"resources": [of("", "configmaps", &[("", "secrets")]), of("", "secrets", &[("", "configmaps")])]});
    let snapshot = snapshot_of(&ring(&circle), &[]);
    assert_eq!((snapshot.mains.len(), snapshot.problems.len()), (0, 2), "nobody is at its top");
    let without_top =
        json!({"resources": [of("", "configmaps", &[("", "secrets")]), of("x.io", "tops", &[("", "configmaps")])]});
    let told = snapshot_of(&ring(&without_top), &[]).problems;
    assert!(told.iter().all(|problem| problem.contains("'tops.x.io'")), "{told:?}");
}

#[test]
fn a_selector_that_can_not_be_used_selects_nothing() {
    use kube::core::SelectorExt;
    let mut spec = example_spec();
    spec["namespaceSelector"] =
        json!({"matchExpressions": [{"key": "role", "operator": "Resembles", "values": ["x"]}]});
    let snapshot = snapshot_of(&ring(&spec), &[]);
    assert_eq!(snapshot.problems.len(), 1, "{:?}", snapshot.problems);
    for labels in [vec![], vec![("role", "project")], vec![("kubernetes.io/metadata.name", "default")]] {
        let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        assert!(!snapshot.namespaces.matches(&labels));
    }
}
