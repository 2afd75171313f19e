#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;
use crate::{
    belonging::belonging_labels,
    cleanup::belongings::Outcome,
    fixtures::FakeApi,
    reconcile::tests::{CONFIG_MAPS, SECRETS, path},
    snapshot::tests::resource,
};

fn cleanup(api: &FakeApi) -> Cleanup {
    Cleanup { client: api.client(), ring: "example".parse().unwrap(), writes: Writes::default(), attempts: 3 }
}

/// Owners, and what they control.
fn resources() -> Vec<Arc<Resource>> {
    vec![resource("", "ConfigMap", CONFIG_MAPS), resource("", "Secret", SECRETS)]
}

/// A ring of the owners, which control the others.
fn scope() -> Scope {
    Scope { resources: resources(), roots: [resources()[0].id.clone()].into(), ..Scope::default() }
}

fn labelled(name: &str, shard: Option<&str>, drain: Option<&str>) -> Value {
    let labels = RingLabels::of(&"example".parse().unwrap());
    let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "resourceVersion": "7", "labels": {"app": "x"}}});
    for (key, value) in [(labels.shard, shard), (labels.drain, drain)] {
        if let Some(value) = value {
            object["metadata"]["labels"][key] = json!(value);
        }
    }
    object
}

fn put(api: &FakeApi, resource: &str, name: &str, shard: Option<&str>, drain: Option<&str>) {
    api.put(&path(resource, name), labelled(name, shard, drain));
}

fn labels_of(api: &FakeApi, resource: &str, name: &str) -> Value {
    api.get(&path(resource, name)).unwrap()["metadata"]["labels"].clone()
}

fn counts(tallies: &Tallies) -> Vec<(&str, usize, usize)> {
    tallies.iter().map(|(id, tally)| (&*id.resource, tally.taken, tally.left)).collect()
}

#[tokio::test(start_paused = true)]
async fn both_labels_are_taken_off_owners_first() {
    let api = FakeApi::default();
    put(&api, CONFIG_MAPS, "owned", Some("a"), None);
    put(&api, CONFIG_MAPS, "drained", Some("a"), Some("m"));
    put(&api, CONFIG_MAPS, "left-over", None, Some("m"));
    put(&api, CONFIG_MAPS, "free", None, None);
    put(&api, SECRETS, "child", Some("a"), None);
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 3, 0), (SECRETS, 1, 0)]);
    assert!(tallies.values().all(Tally::is_clean));
    for name in ["owned", "drained", "left-over", "free"] {
        assert_eq!(labels_of(&api, CONFIG_MAPS, name), json!({"app": "x"}), "labels of others stay");
    }
    let writes = api.writes();
    assert_eq!(writes.len(), 4, "what has none is not written to: {writes:?}");
    assert_eq!(writes[3], format!("PATCH {}", path(SECRETS, "child")));
}

#[tokio::test(start_paused = true)]
async fn what_gets_labels_a_moment_later_is_found_as_well() {
    let api = FakeApi::default();
    let late = api.clone();
    let task = tokio::spawn(async move {
        // A review of the webhook that began before the ring was gone.
        tokio::time::sleep(SETTLED - Duration::from_millis(1)).await;
        put(&late, SECRETS, "late", Some("a"), None);
    });
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope()).await;
    task.await.unwrap();
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 0, 0), (SECRETS, 1, 0)]);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_taken_off_is_told_and_holds_up_nothing() {
    let api = FakeApi::default();
    put(&api, CONFIG_MAPS, "stuck", Some("a"), None);
    put(&api, CONFIG_MAPS, "easy", Some("a"), None);
    put(&api, SECRETS, "child", Some("a"), None);
    api.intercept(|asked, _| {
        (asked.method == Method::PATCH && asked.path.ends_with("stuck")).then_some(StatusCode::FORBIDDEN)
    });
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 1, 1), (SECRETS, 1, 0)]);
    let fault = tallies.values().find_map(|tally| tally.fault.clone());
    assert_eq!(fault.as_deref(), Some("missing permission: as the test wishes"));

    api.intercept(|asked, _| asked.path.ends_with(SECRETS).then_some(StatusCode::FORBIDDEN));
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 1, 0), (SECRETS, 0, 0)]);
    assert!(!tallies.values().all(Tally::is_clean), "what can't be looked at may have labels");

    api.intercept(|asked, _| asked.path.ends_with(SECRETS).then_some(StatusCode::NOT_FOUND));
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope()).await;
    assert!(tallies.values().all(Tally::is_clean), "their definition went with them");
}

/// Makes another object the controller of a stored one.
fn control(api: &FakeApi, resource: &str, name: &str, controller: (&str, &str, &str)) {
    let (api_version, kind, uid) = controller;
    let mut object = api.get(&path(resource, name)).unwrap();
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": "x", "uid": uid, "controller": true}]);
    api.put(&path(resource, name), object);
}

#[tokio::test(start_paused = true)]
async fn copies_on_objects_of_other_controllers_stay() {
    let api = FakeApi::default();
    for name in ["child", "copy", "selected", "alone"] {
        put(&api, SECRETS, name, Some("a"), None);
    }
    put(&api, CONFIG_MAPS, "controlled", Some("a"), None);
    control(&api, SECRETS, "child", ("v1", "ConfigMap", "uid-of-the-ring"));
    control(&api, SECRETS, "copy", ("apps/v1", "ReplicaSet", "uid-of-another"));
    control(&api, SECRETS, "selected", ("v1", "ConfigMap", "uid-that-selects"));
    control(&api, CONFIG_MAPS, "controlled", ("apps/v1", "ReplicaSet", "uid-of-another"));
    let mut scope = scope();
    scope.holders.insert("uid-that-selects".to_owned());
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 1, 0), (SECRETS, 2, 0)], "an owned object is the ring's");
    assert_eq!(api.writes().len(), 3);
    for name in ["copy", "selected"] {
        assert_eq!(labels_of(&api, SECRETS, name).as_object().unwrap().len(), 2, "{name}");
    }
    let copies = tallies.values().map(|tally| tally.copies.clone()).next_back().unwrap();
    assert_eq!(copies, [("ConfigMap".to_owned(), 1), ("ReplicaSet".to_owned(), 1)].into());
    assert!(!tallies.values().all(Tally::is_clean));
}

/// As a ReplicaSet makes another Pod for one that it does not select any more.
#[tokio::test(start_paused = true)]
async fn it_ends_where_each_write_makes_another_labelled_object() {
    let api = FakeApi::default();
    put(&api, SECRETS, "o", Some("a"), None);
    let mut made = 0;
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH {
            made += 1;
            assert!(made < 10, "it does not end");
            objects.insert(path(SECRETS, &format!("made-{made}")), labelled(&format!("made-{made}"), Some("a"), None));
        }
        None
    });
    let tallies = cleanup(&api).take_labels_off(&resources(), &scope()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 0, 0), (SECRETS, 1, 0)]);
}

#[test]
fn of_a_ring_that_is_gone_what_labelled_objects_control_is_its_own() {
    let object = |controller: Option<(&str, &str)>| Target {
        owners: Vec::from_iter(controller.map(|(kind, uid)| {
            serde_json::from_value(
                json!({"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": true}),
            )
            .unwrap()
        })),
        ..Target::default()
    };
    let (owner, copy) = (object(None), object(Some(("ConfigMap", "holder"))));
    let found =
        |secret: Target| [(resources()[0].clone(), vec![owner.clone()]), (resources()[1].clone(), vec![secret])];
    let inferred = |secret| {
        let mut scope = Scope { holders: ["holder".to_owned()].into(), ..Scope::default() };
        scope.infer(&found(secret));
        scope.resources.len()
    };
    assert_eq!(inferred(object(Some(("ConfigMap", "owner")))), 2, "so what it controls in turn is");
    assert_eq!(inferred(object(Some(("ReplicaSet", "owner")))), 1);
    assert_eq!(inferred(copy), 1, "its controller selects by the label");
}

#[tokio::test(start_paused = true)]
async fn leases_of_replicas_that_ended_are_deleted_and_one_whose_pod_is_there_stays() {
    let api = FakeApi::default();
    let lease = |name: &str, holder: &str| {
        json!({"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
            "labels": {"alpha.sharding.timebertt.dev/clusterring": "example", "alpha.sharding.timebertt.dev/state": "dead"}},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}})
    };
    let path = |name: &str| format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}");
    let all = [
        lease("released", ""),
        lease("taken-over", "shardlease-controller"),
        lease("killed", "killed"),
        lease("held", "held"),
        lease("lock", "x"),
    ];
    api.put("/api/v1/namespaces/default/pods/held", json!({"metadata": {"name": "held", "namespace": "default"}}));
    api.put("/apis/coordination.k8s.io/v1/leases", json!({"metadata": {}, "items": all}));
    for lease in &all {
        api.put(&path(lease["metadata"]["name"].as_str().unwrap()), lease.clone());
    }
    let left = || ["released", "taken-over", "killed", "held", "lock"].map(|name| api.get(&path(name)).is_some());
    for (dry_run, wanted) in [(true, [true; 5]), (false, [false, false, false, true, true])] {
        let found = lease::remove(&api.client(), &"example".parse().unwrap(), dry_run).await;
        let outcomes = found.iter().map(|it| (&*it.name, matches!(it.outcome, Outcome::Kept(_))));
        let removed = ["default/released", "default/taken-over", "default/killed"].map(|name| (name, false));
        let kept = (!dry_run).then_some(("default/held", true));
        assert_eq!(outcomes.collect::<Vec<_>>(), removed.into_iter().chain(kept).collect::<Vec<_>>());
        assert!(found.iter().all(|it| it.outcome.is_clean()), "{found:?}");
        assert_eq!(left(), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_not_our_label_stays() {
    let api = FakeApi::default();
    let (group, version) = ("admissionregistration.k8s.io", "admissionregistration.k8s.io/v1");
    let served = json!({"name": "mutatingwebhookconfigurations", "kind": "MutatingWebhookConfiguration",
        "singularName": "", "namespaced": false, "verbs": ["get", "delete"]});
    api.put("/apis", json!({"groups": [{"name": group, "versions": [{"groupVersion": version, "version": "v1"}]}]}));
    api.put(&format!("/apis/{version}"), json!({"groupVersion": version, "resources": [served]}));
    let path = format!("/apis/{version}/mutatingwebhookconfigurations/sharding-clusterring-50d858e0-example");
    let ring = "example".parse().unwrap();
    for (labels, is_ours) in
        [(json!({"app.kubernetes.io/name": "controller-sharding"}), false), (json!(belonging_labels()), true)]
    {
        api.put(&path, json!({"metadata": {"name": "w", "labels": labels}}));
        for dry_run in [true, false] {
            let found = belongings::remove(&api.client(), &ring, dry_run).await;
            assert_eq!(
                (found.len(), api.get(&path).is_none()),
                (usize::from(is_ours), is_ours && !dry_run),
                "{found:?}"
            );
        }
    }
}
