#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::{
    assign::{
        process,
        tests::{CONFIG_MAPS, object, path, scope, target},
    },
    fixtures::FakeApi,
    leases::tests::stored,
    namespaces::tests::known,
};

/// The ring of the other tests, whose one namespace has left it.
fn left(api: &FakeApi) -> Scope {
    Scope { namespaces: known(api, &[("default", "another")]), ..scope(api) }
}

#[tokio::test]
async fn labels_of_nobody_come_off_and_what_has_none_costs_nothing() {
    let api = FakeApi::default();
    let scope = left(&api);
    let drained = |mut object: Value| {
        object["metadata"]["labels"][&scope.snapshot.labels.drain] = json!("m");
        object
    };
    let objects = [
        ("bare", object(&scope, "bare", None), false),
        ("of-the-dead", object(&scope, "of-the-dead", Some("gone")), true),
        ("copied-drain", drained(object(&scope, "copied-drain", None)), true),
        ("in-time", drained(object(&scope, "in-time", Some("a"))), false),
        ("alive", object(&scope, "alive", Some("a")), false),
    ];
    for (name, object, _) in &objects {
        api.put(&path(CONFIG_MAPS, name), object.clone());
    }
    let batch = objects.iter().map(|(_, object, _)| target(&scope, object)).collect();
    assert_eq!(process(&scope, batch).await, vec![]);
    for (name, before, comes_off) in &objects {
        let labels = api.get(&path(CONFIG_MAPS, name)).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels, if *comes_off { json!({}) } else { before["metadata"]["labels"].clone() }, "{name}");
    }
    assert_eq!(api.writes().len(), 2);
}

#[tokio::test]
async fn a_shard_that_is_there_after_all_is_asked_to_let_go() {
    let api = FakeApi::default();
    let scope = left(&api);
    let (lease, content) = stored("gone", "gone");
    api.put(&lease, content);
    let object = object(&scope, "o", Some("gone"));
    api.put(&path(CONFIG_MAPS, "o"), object.clone());
    assert_eq!(process(&scope, vec![target(&scope, &object)]).await, vec![target(&scope, &object)]);
    assert_eq!(api.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn an_acknowledged_object_stays_nobodys() {
    let api = FakeApi::default();
    let scope = left(&api);
    let object = object(&scope, "o", None);
    api.put(&path(CONFIG_MAPS, "o"), object.clone());
    scope.drains.remember(&scope.main.resource.id, &target(&scope, &object), "b", "m");
    assert_eq!(process(&scope, vec![target(&scope, &object)]).await, vec![]);
    assert_eq!(api.writes(), Vec::<String>::new());
    assert_eq!(scope.drains.previous("uid-o"), None, "the children of its shard are looked at");
}
