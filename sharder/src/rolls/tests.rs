//! Deployments that roll, against a fake API server under a paused clock.

#![allow(clippy::unwrap_used)]

use http::StatusCode;
use ringside_runtime::clock::TokioClock;
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    fixtures::FakeApi,
    leases::tests::{held_by, join, leave},
};

const SOON: Duration = Duration::from_millis(10);

struct World {
    api: FakeApi,
    leases: Leases,
    rolls: Rolls,
    task: JoinHandle<Result<(), Infallible>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A Pod of the Deployment `web`, of this template.
fn put_pod(api: &FakeApi, name: &str, template: &str, second: u32) {
    let replica_set = format!("web-{template}");
    api.put(&format!("/api/v1/namespaces/default/pods/{name}"), json!({"metadata": {
        "name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "labels": {"pod-template-hash": template}, "creationTimestamp": format!("2024-01-01T00:00:{second:02}Z"),
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": "u", "controller": true}],
    }}));
}

/// Shards of Pods of one template, and one that is no Pod.
async fn world(shards: &[&str]) -> World {
    let api = FakeApi::default();
    for shard in shards {
        put_pod(&api, shard, "5d8", 1);
    }
    let leases = held_by(&[shards, &["elsewhere"]].concat());
    let rolls = Rolls::new(Arc::new(TokioClock::start()));
    let task = tokio::spawn(follow(api.client(), leases.clone(), rolls.clone()));
    let world = World { api, leases, rolls, task };
    assert_eq!(world.outgoing().await, "");
    world
}

impl World {
    fn comes(&self, name: &str, template: &str) {
        put_pod(&self.api, name, template, 30);
        join(&self.leases, name);
    }

    async fn outgoing(&self) -> String {
        sleep(SOON).await;
        let outgoing = self.rolls.outgoing(&"example".parse().unwrap());
        outgoing.iter().map(ShardName::as_str).collect::<Vec<_>>().join(" ")
    }

    fn reads(&self) -> usize {
        self.api.asked().len()
    }
}

#[tokio::test(start_paused = true)]
async fn shards_of_the_template_before_are_told_while_a_deployment_rolls() {
    let world = world(&["old-0", "old-1"]).await;
    let mut changes = world.rolls.changes();
    changes.borrow_and_update();
    world.comes("new-0", "7f9");
    assert_eq!(world.outgoing().await, "old-0 old-1");
    assert!(changes.has_changed().unwrap());
    world.comes("new-1", "7f9");
    leave(&world.leases, "old-0");
    assert_eq!(world.outgoing().await, "old-1");
    leave(&world.leases, "old-1");
    assert_eq!(world.outgoing().await, "");
    assert_eq!(world.reads(), 5, "each Pod once, and one that is not there");
}

#[tokio::test(start_paused = true)]
async fn a_roll_that_makes_no_progress_ends_and_goes_on_when_it_does() {
    let world = world(&["old-0", "old-1"]).await;
    world.comes("new-0", "7f9");
    sleep(PROGRESS_TIMEOUT / 2).await;
    leave(&world.leases, "old-0");
    sleep(PROGRESS_TIMEOUT - Duration::from_secs(1)).await;
    assert_eq!(world.outgoing().await, "old-1", "one was replaced meanwhile");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.outgoing().await, "");
    // A user mends it: another template.
    put_pod(&world.api, "newer-0", "9ab", 40);
    join(&world.leases, "newer-0");
    assert_eq!(world.outgoing().await, "new-0 old-1");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_comes_and_goes_prolongs_no_roll() {
    let world = world(&["old-0"]).await;
    for _ in 0..10 {
        world.comes("new-0", "7f9");
        sleep(PROGRESS_TIMEOUT / 10).await;
        leave(&world.leases, "new-0");
        sleep(SOON).await;
    }
    world.comes("new-0", "7f9");
    assert_eq!(world.outgoing().await, "");
}

#[tokio::test(start_paused = true)]
async fn pods_that_can_not_be_read_count_as_staying_and_are_read_later() {
    let world = world(&["old-0"]).await;
    world.api.intercept(|_, _| Some(StatusCode::FORBIDDEN));
    world.comes("new-0", "7f9");
    assert_eq!(world.outgoing().await, "");
    world.api.intercept(|_, _| None);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.outgoing().await, "old-0");
}
