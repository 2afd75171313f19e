#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    fixtures::FakeApi,
    reconcile::tests::{SECRETS, object, owned, path},
    resources::Object,
    snapshot::tests::snapshot,
};

fn labels() -> RingLabels {
    snapshot().labels
}

fn secrets() -> Arc<Resource> {
    snapshot().mains[0].controlled[0].clone()
}

fn seen(object: &Value) -> Target {
    let object: Object = serde_json::from_value(object.clone()).unwrap();
    Target::of(&object.metadata, &labels())
}

fn shard(api: &FakeApi) -> Value {
    api.get(&path(SECRETS, "c")).unwrap()["metadata"]["labels"][&labels().shard].clone()
}

/// Brings the Secret `c`, as it was seen, to a shard.
async fn bring_seen(api: &FakeApi, seen: Target, shard: &str) -> Result<(), kube::Error> {
    bring(&Writes::default(), (&api.client(), &secrets()), &labels(), seen, &shard.parse().unwrap()).await
}

/// The same, as it is now.
async fn bring_to(api: &FakeApi, shard: &str) -> Result<(), kube::Error> {
    bring_seen(api, seen(&api.get(&path(SECRETS, "c")).unwrap()), shard).await
}

/// The leader that sent it has lost its lead, and the next one has brought the child there as well, and back.
#[tokio::test(start_paused = true)]
async fn a_write_that_lands_late_changes_nothing_of_a_child_that_was_moved_and_brought_back_since() {
    let (api, child) = (FakeApi::default(), path(SECRETS, "c"));
    api.put(&child, owned(object(&labels(), "c", Some("a")), "o"));
    let hangs = Duration::from_secs(34);
    api.slow(Method::PATCH, &child, hangs);
    assert!(tokio::time::timeout(Duration::from_secs(1), bring_to(&api, "b")).await.is_err());
    api.slow(Method::PATCH, &child, Duration::ZERO);
    for shard in ["b", "a"] {
        bring_to(&api, shard).await.unwrap();
    }
    let carried_out = api.writes().len();
    sleep(hangs).await;
    assert_eq!(api.writes().len(), carried_out + 1, "the late one as well");
    assert_eq!(shard(&api), "a");
}

/// Its controller writes its status while it is moved, as often as that is said.
async fn moved_while_it_changes(times: usize) -> (FakeApi, bool) {
    let (api, child) = (FakeApi::default(), path(SECRETS, "c"));
    api.put(&child, owned(object(&labels(), "c", Some("gone")), "o"));
    let (mut left, mut version) = (times, 100);
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH && left > 0 {
            (left, version) = (left - 1, version + 1);
            objects.get_mut(&asked.path).unwrap()["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        None
    });
    let moved = bring_to(&api, "a").await.is_ok();
    (api, moved)
}

#[tokio::test]
async fn a_child_that_changes_at_some_attempts_is_moved_and_one_that_changes_at_each_waits() {
    for (times, moves) in [(4, true), (7, false)] {
        let (api, moved) = moved_while_it_changes(times).await;
        assert_eq!((moved, shard(&api)), (moves, json!(if moves { "a" } else { "gone" })));
    }
}

#[tokio::test]
async fn a_child_that_another_owner_has_adopted_meanwhile_stays_where_it_is() {
    let api = FakeApi::default();
    let before = seen(&owned(object(&labels(), "c", Some("a")), "o"));
    let mut adopted = owned(object(&labels(), "c", Some("a")), "other");
    adopted["metadata"]["resourceVersion"] = json!("8");
    api.put(&path(SECRETS, "c"), adopted);
    bring_seen(&api, before, "b").await.unwrap();
    assert_eq!(shard(&api), "a");
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

/// Its owner has moved on with it, which the view of the owner does not show yet.
#[tokio::test]
async fn a_child_that_has_changed_since_its_owner_was_seen_is_not_brought_to_where_that_was() {
    let (api, child) = (FakeApi::default(), path(SECRETS, "c"));
    api.put(&child, owned(object(&labels(), "c", Some("b")), "o"));
    let before = seen(&api.get(&child).unwrap());
    let (of_child, label) = (child.clone(), labels().shard);
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH {
            let metadata = &mut objects.get_mut(&of_child).unwrap()["metadata"];
            metadata["labels"][&label] = json!("c");
            metadata["resourceVersion"] = json!("8");
        }
        None
    });
    let to = "a".parse().unwrap();
    bring_as_seen(&Writes::default(), (&api.client(), &secrets()), &labels(), before, &to).await.unwrap();
    assert_eq!(shard(&api), "c");
}
