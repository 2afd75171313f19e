//! Plans, against a fake API server.

#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use serde_json::json;

mod objects;

use self::objects::{CONFIG_MAPS, SECRETS, Scope, chain, name_of, object, owned, put_chain, scope};
use super::{forecast::How, *};
use crate::{
    fixtures::FakeApi,
    reconcile::tests::path,
    snapshot::tests::{key_of, members},
};

/// What would become of the ring of `scope`, which now has `now`.
async fn forecast(api: &FakeApi, scope: &Scope, now: &Members) -> Forecast {
    let namespaces = ["default".to_owned()].into();
    let mut forecast = Forecast::new(&scope.snapshot, now, NonZeroU32::new(10).unwrap());
    count(&api.client(), &scope.snapshot, namespaces, &mut forecast).await;
    assert!(api.asked().iter().all(|asked| asked.method == Method::GET), "a plan writes nothing");
    forecast
}

/// An object of each kind of fate, and a child.
fn put_some(api: &FakeApi, scope: &Scope) -> [String; 2] {
    let [of_a, of_b] = ["a", "b"].map(|shard| name_of(shard, scope));
    let put = |name: &str, shard: Option<&str>| api.put(&path(CONFIG_MAPS, name), object(scope, name, shard));
    put(&of_a, Some("b"));
    put(&of_b, Some("b"));
    let mut drained = object(scope, "x-drained", Some("a"));
    drained["metadata"]["labels"][&scope.snapshot.labels.drain] = json!("m1");
    api.put(&path(CONFIG_MAPS, "x-drained"), drained);
    put("x-dead", Some("gone"));
    put("x-odd", Some("nonsense"));
    put("x-new", None);
    let mut elsewhere = object(scope, "x-elsewhere", None);
    elsewhere["metadata"]["namespace"] = json!("other");
    api.put("/api/v1/namespaces/other/configmaps/x-elsewhere", elsewhere);
    api.put(&path(SECRETS, "child"), owned(object(scope, "child", Some("b")), &of_a));
    api.put(&path(SECRETS, "at-home"), owned(object(scope, "at-home", Some("b")), &of_b));
    api.put(&path(SECRETS, "free"), object(scope, "free", None));
    [of_a, of_b]
}

#[tokio::test]
async fn each_object_is_counted_with_what_is_next_for_it() {
    let api = FakeApi::default();
    let scope = scope(&api);
    put_some(&api, &scope);
    let forecast = forecast(&api, &scope, &scope.snapshot.members).await;
    assert!(forecast.is_complete() && forecast.has_changes());
    assert_eq!((forecast.objects, forecast.children), (6, 2), "neither another namespace's nor what nobody controls");
    for (how, count) in [(How::Assigned, 1), (How::Drained, 1), (How::UnderWay, 1), (How::Taken, 2), (How::Follows, 1)]
    {
        assert_eq!(forecast.going(&[how]), count, "{how:?}");
    }
    let now: Vec<_> = forecast.shards.iter().map(|(shard, it)| (shard.as_str(), it.now)).collect();
    assert_eq!((now, forecast.without), (vec![("a", 1), ("b", 2), ("gone", 1)], (2, 0)));
    assert_eq!(forecast.shards.values().map(|it| it.then).sum::<u64>(), 6);
    let text = forecast.to_string();
    for line in [
        "6 objects: 1 stay, 1 to be assigned, 4 to be moved; 2 children: 1 to follow.",
        "RESOURCE    FROM       TO  OBJECTS  HOW",
        "configmaps  b          a         1  drained: its shard releases it first",
        "secrets     b          a         1  follows its owner",
        "SHARD     STATE  WEIGHT  NOW  THEN",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let json = forecast.json();
    assert_eq!((&json["objects"], &json["withoutShard"]["now"]), (&json!(6), &json!(2)));
    let drained = json["changes"].as_array().unwrap().iter().find(|it| it["how"] == "drained").unwrap().clone();
    assert_eq!(drained, json!({"resource": "configmaps", "from": "b", "to": "a", "how": "drained", "objects": 1}));
}

#[tokio::test]
async fn what_follows_an_owner_by_a_link_in_between_goes_where_that_is() {
    let api = FakeApi::default();
    let scope = chain(&api);
    let owner = scope.snapshot.hash_ring().owner(&key_of(&scope.main, "top")).unwrap().to_string();
    let other = if owner == "a" { "b" } else { "a" };
    put_chain(&api, &scope, other);
    let forecast = forecast(&api, &scope, &scope.snapshot.members).await;
    assert_eq!((forecast.going(&[How::Drained]), forecast.going(&[How::Follows])), (1, 2), "{forecast}");
}

#[tokio::test]
async fn what_cannot_be_read_is_said_and_the_rest_is_counted() {
    let api = FakeApi::default();
    let scope = scope(&api);
    put_some(&api, &scope);
    api.intercept(|asked, _| asked.path.ends_with("/secrets").then_some(StatusCode::FORBIDDEN));
    let forecast = forecast(&api, &scope, &scope.snapshot.members).await;
    assert!(!forecast.is_complete());
    assert_eq!((forecast.objects, forecast.children), (6, 0));
    assert!(forecast.to_string().contains("Not looked at: secrets: "), "{forecast}");
}

/// A plan with these changes of the shards.
fn plan(add: &[&str], remove: &[&str]) -> Plan {
    Plan {
        ring: "example".parse().unwrap(),
        tokens_per_shard: NonZeroU32::new(10).unwrap(),
        replicas: None,
        add: add.iter().map(|text| text.parse().unwrap()).collect(),
        remove: remove.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

#[test]
fn shards_can_be_added_weighed_and_taken_away() {
    let now = members(&[("a", ShardState::Ready), ("b", ShardState::Ready), ("gone", ShardState::Dead)]);
    let then = plan(&["c=0.5", "a=2"], &["b"]).what_if(now.clone()).unwrap();
    let weighted: Vec<_> = then.weighted().map(|(shard, weight)| format!("{shard} {weight}")).collect();
    assert_eq!(weighted, ["a 2", "c 0.5"]);
    let refused = plan(&[], &["x"]).what_if(now).unwrap_err().to_string();
    assert!(refused.ends_with("it has: a, b, gone"), "{refused}");
}

#[tokio::test]
async fn a_shard_that_would_go_is_shown_with_what_it_has() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    let [_, of_b] = put_some(&api, &scope);
    let before = scope.snapshot.members.clone();
    let ring = crate::snapshot::tests::ring(&crate::snapshot::tests::example_spec());
    scope.snapshot = crate::snapshot::tests::snapshot_of(&ring, &[("a", ShardState::Ready)]).into();
    let forecast = forecast(&api, &scope, &before).await;
    let b = &forecast.shards["b"];
    assert_eq!((b.state, b.now, b.then), ("removed", 2, 0), "{of_b}");
    assert_eq!(forecast.shards["a"].then, 6);
    assert!(forecast.is_complete() && forecast.has_changes());
}

#[tokio::test]
async fn objects_that_are_placed_together_are_planned_so_with_their_children() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    let mut spec = crate::snapshot::tests::example_spec();
    spec["resources"][0]["key"] = json!({"label": "team"});
    let ring = crate::snapshot::tests::ring(&spec);
    let shards = [("a", ShardState::Ready), ("b", ShardState::Ready)];
    scope.snapshot = crate::snapshot::tests::snapshot_of(&ring, &shards).into();
    for number in 0..8 {
        let name = format!("o-{number}");
        let mut owner = object(&scope, &name, None);
        owner["metadata"]["labels"] = json!({"team": "red"});
        api.put(&path(CONFIG_MAPS, &name), owner);
        api.put(&path(SECRETS, &name), owned(object(&scope, &name, None), &name));
    }
    let forecast = forecast(&api, &scope, &scope.snapshot.members).await;
    let then = ["a", "b"].map(|shard| forecast.shards[shard].then);
    assert!(then == [8, 0] || then == [0, 8], "{then:?}");
    let follow = forecast.ways.iter().filter(|(way, _)| way.how == How::Follows);
    let follow: Vec<_> = follow.map(|(_, count)| *count).collect();
    assert_eq!(follow, [8], "the children are where their owners are");
}

#[tokio::test]
async fn nothing_new_goes_to_a_late_shard_and_nothing_leaves_for_it() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    let [of_a, of_b] = ["a", "b"].map(|shard| name_of(shard, &scope));
    let ring = crate::snapshot::tests::ring(&crate::snapshot::tests::example_spec());
    let shards = [("a", ShardState::Ready), ("b", ShardState::Expired), ("c", ShardState::Dead)];
    scope.snapshot = crate::snapshot::tests::snapshot_of(&ring, &shards).into();
    let put = |name: &str, shard: Option<&str>| api.put(&path(CONFIG_MAPS, name), object(&scope, name, shard));
    let child = |name: &str, of: &str, shard: &str| {
        api.put(&path(SECRETS, name), owned(object(&scope, name, Some(shard)), of));
    };
    put(&of_b, None);
    child("child-of-b", &of_b, "c");
    let before = forecast(&api, &scope, &scope.snapshot.members).await;
    assert_eq!((before.shards["a"].then, before.shards["b"].then), (1, 0), "{before}");
    assert!(before.to_string().contains("configmaps  (nobody)  a         1  assigned"), "{before}");
    assert!(before.to_string().contains("secrets     c         a         1  follows"), "{before}");
    put(&of_b, Some("a"));
    child("child-of-b", &of_b, "a");
    child("at-home", &of_b, "b");
    put(&of_a, Some("b"));
    let after = forecast(&api, &scope, &scope.snapshot.members).await;
    assert_eq!((after.shards["a"].then, after.shards["b"].then), (2, 0), "{after}");
    assert_eq!((after.going(&[How::Drained]), after.going(&[How::Follows])), (1, 1), "only from it: {after}");
}

#[tokio::test]
async fn what_left_the_ring_is_shown_with_what_becomes_of_its_labels() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    let elsewhere = |resource: &str, name: &str, mut object: serde_json::Value| {
        object["metadata"]["namespace"] = json!("other");
        api.put(&format!("/api/v1/namespaces/other/{resource}/{name}"), object);
    };
    for (name, shard) in [("alive", Some("a")), ("dead", Some("gone")), ("bare", None)] {
        elsewhere(CONFIG_MAPS, name, object(&scope, name, shard));
    }
    elsewhere(SECRETS, "child", owned(object(&scope, "child", Some("a")), "alive"));
    elsewhere(SECRETS, "bare", owned(object(&scope, "bare", None), "alive"));
    api.put(&path(SECRETS, "follows-nobody"), object(&scope, "follows-nobody", Some("a")));
    let counts = |forecast: &Forecast| {
        assert_eq!((forecast.objects, forecast.children), (0, 0), "they are not the ring's");
        (forecast.going(&[How::Withdrawn]), forecast.going(&[How::Released]))
    };
    let by_namespace = forecast(&api, &scope, &scope.snapshot.members).await;
    assert_eq!(counts(&by_namespace), (1, 3), "{by_namespace}");
    for line in [
        "configmaps  a     (nobody)        1  withdrawn: left the ring, its shard releases it first",
        "configmaps  gone  (nobody)        1  released: left the ring, its labels come off",
        "4 more have left the ring and lose their labels.",
    ] {
        assert!(by_namespace.to_string().contains(line), "{line} in\n{by_namespace}");
    }
    let released = by_namespace.json()["changes"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(released, json!({"resource": "secrets", "from": "a", "to": null, "how": "released", "objects": 2}));
    // The same objects, when the ring names neither resource any more.
    let mut ring = crate::snapshot::tests::ring(&json!({"resources": [{"group": "apps", "resource": "deployments"}]}));
    ring.status = Some(
        serde_json::from_value(json!({"resources": [
        {"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]}]}))
        .unwrap(),
    );
    scope.snapshot =
        crate::snapshot::tests::snapshot_of(&ring, &[("a", ShardState::Ready), ("gone", ShardState::Dead)]).into();
    let by_resource = forecast(&api, &scope, &scope.snapshot.members).await;
    assert_eq!(counts(&by_resource), (1, 3), "{by_resource}");
    assert!(by_resource.is_complete() && by_resource.has_changes());
}
