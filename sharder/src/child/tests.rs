#![allow(clippy::unwrap_used)]

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    assign::{
        process,
        tests::{SECRETS, object, owned, owner_and_child, path, scope, target},
    },
    fixtures::FakeApi,
};

fn shard_of(api: &FakeApi, scope: &Scope, path: &str) -> Value {
    api.get(path).unwrap()["metadata"]["labels"][&scope.snapshot.labels.shard].clone()
}

/// Brings the Secret `c`, as it is now, to a shard.
async fn bring_to(api: &FakeApi, scope: &Scope, shard: &str) -> Result<bool, kube::Error> {
    let child = target(scope, &api.get(&path(SECRETS, "c")).unwrap());
    bring(scope, &scope.main.controlled[0], child, &shard.parse().unwrap()).await
}

/// The leader that sent it has lost its lead, and the next one has brought the child there as well, and back.
#[tokio::test(start_paused = true)]
async fn a_write_that_lands_late_changes_nothing_of_a_child_that_was_moved_and_brought_back_since() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let child = path(SECRETS, "c");
    api.put(&child, owned(object(&scope, "c", Some("a")), "o"));
    let hangs = Duration::from_secs(34);
    api.slow(Method::PATCH, &child, hangs);
    let cut_off = tokio::time::timeout(Duration::from_secs(1), bring_to(&api, &scope, "b")).await;
    assert!(cut_off.is_err());
    api.slow(Method::PATCH, &child, Duration::ZERO);
    for shard in ["b", "a"] {
        assert!(bring_to(&api, &scope, shard).await.unwrap());
    }
    let carried_out = api.writes().len();
    sleep(hangs).await;
    assert_eq!(api.writes().len(), carried_out + 1, "the late one as well");
    assert_eq!(shard_of(&api, &scope, &child), "a");
}

/// Its controller writes its status while it is moved, as often as that is said.
async fn moved_while_it_changes(times: usize) -> (FakeApi, Scope, Vec<Target>, [String; 2]) {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (_, main, child) = owner_and_child(&api, &scope, "a", "gone");
    let owner = target(&scope, &api.get(&main).unwrap());
    let (of_child, mut left, mut version) = (child.clone(), times, 100);
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH && asked.path == of_child && left > 0 {
            (left, version) = (left - 1, version + 1);
            objects.get_mut(&asked.path).unwrap()["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        None
    });
    let again = process(&scope, vec![owner]).await;
    (api, scope, again, [main, child])
}

#[tokio::test]
async fn a_child_that_changes_at_some_attempts_is_moved_before_its_owner() {
    let (api, scope, again, [main, child]) = moved_while_it_changes(4).await;
    assert_eq!(again, vec![]);
    assert_eq!([&main, &child].map(|path| shard_of(&api, &scope, path)), ["a", "a"]);
    assert_eq!(api.writes().last(), Some(&format!("PATCH {main}")));
}

#[tokio::test]
async fn the_owner_of_a_child_that_changes_at_each_attempt_waits_and_both_are_moved_later() {
    let (api, scope, again, [main, child]) = moved_while_it_changes(7).await;
    assert_eq!(again.len(), 1);
    assert_eq!([&main, &child].map(|path| shard_of(&api, &scope, path)), [Value::Null, json!("gone")]);
    assert_eq!(process(&scope, again).await, vec![]);
    assert_eq!([&main, &child].map(|path| shard_of(&api, &scope, path)), ["a", "a"]);
}

#[tokio::test]
async fn a_child_that_another_owner_has_adopted_meanwhile_stays_where_it_is() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let child = path(SECRETS, "c");
    let seen = target(&scope, &owned(object(&scope, "c", Some("a")), "o"));
    let mut adopted = owned(object(&scope, "c", Some("a")), "other");
    adopted["metadata"]["resourceVersion"] = json!("8");
    api.put(&child, adopted);
    assert!(!bring(&scope, &scope.main.controlled[0], seen, &"b".parse().unwrap()).await.unwrap());
    assert_eq!(shard_of(&api, &scope, &child), "a");
}

#[test]
fn a_child_with_a_drain_label_is_with_nobody() {
    let shard = "b".parse().unwrap();
    let child = |shard: Option<&str>| Target { shard: shard.map(str::to_owned), ..Target::default() };
    assert!(
        is_with(&child(Some("b")), &shard) && !is_with(&child(Some("a")), &shard) && !is_with(&child(None), &shard)
    );
    assert!(!is_with(&Target { drain: Some("m".into()), ..child(Some("b")) }, &shard));
}
