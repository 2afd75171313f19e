//! Passes, against a fake API server.

#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;
use crate::{
    assign::{
        process,
        tests::{CONFIG_MAPS, SECRETS, name_of, object, owned, path, scope},
    },
    fixtures::FakeApi,
};

fn labels_of(api: &FakeApi, path: &str) -> Value {
    api.get(path).unwrap()["metadata"]["labels"].clone()
}

#[tokio::test]
async fn what_belongs_elsewhere_is_drained_once_and_what_has_no_owner_is_left_to_the_watch() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (shard, drain) = (scope.snapshot.labels.shard.clone(), scope.snapshot.labels.drain.clone());
    let name = name_of("a", &scope);
    let misplaced = path(CONFIG_MAPS, &name);
    api.put(&misplaced, object(&scope, &name, Some("b")));
    let at_home = name_of("b", &scope);
    api.put(&path(CONFIG_MAPS, &at_home), object(&scope, &at_home, Some("b")));
    api.put(&path(CONFIG_MAPS, "x-orphan"), object(&scope, "x-orphan", Some("gone")));
    objects::pass(&scope).await.unwrap();
    let labels = labels_of(&api, &misplaced);
    assert_eq!(labels[&shard], "b", "its shard must let go first");
    let id = labels[&drain].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 16);
    assert_eq!(api.writes(), [format!("PATCH {misplaced}")]);
    assert_eq!(scope.drains.previous(&format!("uid-{name}")).as_deref(), Some("b"));
    // A drain that is under way is left alone, its value above all.
    objects::pass(&scope).await.unwrap();
    assert_eq!(labels_of(&api, &misplaced)[&drain], id.as_str());
    assert_eq!(api.writes().len(), 1);
}

#[tokio::test]
async fn an_object_that_the_api_server_refuses_does_not_hold_up_the_others() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let first = name_of("a", &scope);
    let bad = path(CONFIG_MAPS, &first);
    api.put(&bad, object(&scope, &first, Some("b")));
    let other = (0..).map(|i| format!("p-{i}")).find(|name| {
        let key = scope.main.resource.key(Some("default"), name);
        scope.snapshot.hash_ring.owner(&key).unwrap().as_str() == "a"
    });
    let other = other.unwrap();
    api.put(&path(CONFIG_MAPS, &other), object(&scope, &other, Some("b")));
    let refused = bad.clone();
    api.intercept(move |asked, _| {
        (asked.method == Method::PATCH && asked.path == refused).then_some(StatusCode::FORBIDDEN)
    });
    let refused = objects::pass(&scope).await.unwrap();
    assert_eq!(refused.and_then(|error| code(&error)), Some(403), "and is told");
    assert!(labels_of(&api, &bad)[&scope.snapshot.labels.drain].is_null());
    assert!(labels_of(&api, &path(CONFIG_MAPS, &other))[&scope.snapshot.labels.drain].is_string());
}

#[tokio::test]
async fn stray_children_are_brought_to_their_owner_unless_it_is_on_the_move() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (shard, drain) = (scope.snapshot.labels.shard.clone(), scope.snapshot.labels.drain.clone());
    let name = name_of("a", &scope);
    let owner = object(&scope, &name, Some("a"));
    let mut draining = owner.clone();
    draining["metadata"]["labels"][&drain] = json!("m");
    let child = path(SECRETS, "c");
    for (owner, expected) in [
        (draining, Value::Null),
        (object(&scope, &name, None), Value::Null),
        (object(&scope, &name, Some("gone")), Value::Null),
        (owner, json!("a")),
    ] {
        api.put(&path(CONFIG_MAPS, &name), owner);
        api.put(&child, owned(object(&scope, "c", None), &name));
        children::pass(&scope).await.unwrap();
        assert_eq!(labels_of(&api, &child)[&shard], expected);
    }
}

#[tokio::test]
async fn a_child_that_a_leader_before_sent_elsewhere_is_found_when_its_owner_moves() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    let owner = object(&scope, &name, Some("gone"));
    api.put(&path(CONFIG_MAPS, &name), owner.clone());
    // Then `b` was where both belonged.
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("b")), &name));
    children::pass(&scope).await.unwrap();
    assert_eq!(labels_of(&api, &path(SECRETS, "c"))[&shard], "b", "where it belongs depends on where its owner goes");
    let owner: crate::resources::Object = serde_json::from_value(owner).unwrap();
    let owner = crate::target::Target::of(&owner.metadata, &scope.snapshot.labels);
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    for path in [path(CONFIG_MAPS, &name), path(SECRETS, "c")] {
        assert_eq!(labels_of(&api, &path)[&shard], "a");
    }
}

#[tokio::test]
async fn a_child_is_brought_to_an_owner_whose_move_ends_while_the_child_is_looked_at() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("gone")));
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("b")), &name));
    let (read, moved, mut reads) = (path(CONFIG_MAPS, &name), object(&scope, &name, Some("a")), 0);
    api.intercept(move |asked, objects| {
        reads += usize::from(asked.path == read);
        if reads == 2 {
            objects.insert(read.clone(), moved.clone());
        }
        None
    });
    children::pass(&scope).await.unwrap();
    assert_eq!(labels_of(&api, &path(SECRETS, "c"))[&shard], "a");
}

#[tokio::test]
async fn children_at_home_cost_no_request_and_strangers_are_left_alone() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = name_of("a", &scope);
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("a")), &name));
    api.put(&path(SECRETS, "free"), object(&scope, "free", None));
    let mut pods = owned(object(&scope, "of-a-pod", None), &name);
    pods["metadata"]["ownerReferences"][0]["kind"] = json!("Pod");
    api.put(&path(SECRETS, "of-a-pod"), pods);
    children::pass(&scope).await.unwrap();
    assert_eq!(api.asked().len(), 1, "{:?}", api.asked());
}

#[tokio::test]
async fn a_pass_stays_due_until_it_is_done() {
    let due = Due::default();
    let resource = GroupResource { group: String::new(), resource: "configmaps".into() };
    due.mark([resource.clone()], &[Pass::Children, Pass::Objects]);
    assert_eq!(due.next(&resource).await, Pass::Objects);
    assert_eq!(due.next(&resource).await, Pass::Objects, "it was broken off");
    due.done(&resource, Pass::Objects);
    assert_eq!(due.next(&resource).await, Pass::Children);
}
