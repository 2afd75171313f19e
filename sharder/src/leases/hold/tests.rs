//! Holds on Leases, against a fake API server under a paused clock.

#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    fixtures::FakeApi,
    leases::{
        Leases,
        tests::{just_seen, lead, see, seen_for_long, stored},
    },
};

fn path_of(namespace: &str, name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
}

/// The holder, the duration, and how often the holder changed.
fn spec(api: &FakeApi, path: &str) -> Option<(String, u64, u64)> {
    let spec = api.get(path)?["spec"].clone();
    let number = |field: &str| spec[field].as_u64().unwrap_or_default();
    let holder = spec["holderIdentity"].as_str().unwrap().to_owned();
    Some((holder, number("leaseDurationSeconds"), number("leaseTransitions")))
}

fn held(duration: u64, transitions: u64) -> Option<(String, u64, u64)> {
    Some(("shardlease-controller".to_owned(), duration, transitions))
}

async fn hold(leases: &Leases, shard: &str) -> Option<Hold> {
    leases.hold(&"example".parse().unwrap(), shard).await
}

fn writes_to(api: &FakeApi, path: &str) -> usize {
    let of_path = |asked: &&crate::fixtures::Asked| asked.method != Method::GET && asked.path == *path;
    api.asked().iter().filter(of_path).count()
}

/// A Lease of the shard `x` that is known and stored as this.
fn known(api: &FakeApi, leases: &Leases, change: impl FnOnce(&mut Value)) -> String {
    let (path, mut lease) = stored("x", "");
    lease["metadata"]["labels"]["alpha.sharding.timebertt.dev/state"] = json!("dead");
    change(&mut lease);
    see(leases, &lease);
    api.put(&path, lease);
    path
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_for_twice_the_duration_and_is_released_when_nothing_uses_it() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let first = hold(&leases, "x").await.unwrap();
    let second = hold(&leases, "x").await.unwrap();
    assert_eq!(spec(&api, &path), held(20, 1));
    drop(first);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(spec(&api, &path), held(20, 1), "the second is in use");
    drop(second);
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
    assert_eq!(writes_to(&api, &path), 2);
}

/// The one before may have written under its hold until a moment ago; the shard waits anew.
#[tokio::test(start_paused = true)]
async fn what_a_leader_before_holds_is_acquired_anew_for_as_long() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |lease| {
        lease["spec"]["holderIdentity"] = json!("shardlease-controller");
        lease["spec"]["leaseDurationSeconds"] = json!(20);
    });
    let _leading = lead(&api, &leases);
    drop(hold(&leases, "x").await.unwrap());
    sleep(Duration::from_secs(15)).await;
    assert_eq!(spec(&api, &path), held(20, 1), "the leader before may have a write under way");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_never_renewed_and_has_to_end_although_it_is_used() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    let write = async |_| Ok(());
    sleep(Duration::from_secs(15)).await;
    hold.carry_out(write).await.unwrap();
    sleep(Duration::from_millis(600)).await;
    assert!(has_ended(&hold.carry_out(write).await.unwrap_err()), "a fifth less than the shard waits");
    assert_eq!(spec(&api, &path), held(20, 1));
    sleep(Duration::from_secs(6)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_under_a_hold_while_it_is_released() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    drop(hold(&leases, "x").await.unwrap());
    api.slow(Method::PUT, &path, Duration::from_secs(2));
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), held(20, 1), "the release is under way");
    let again = hold(&leases, "x").await.unwrap();
    assert_eq!(spec(&api, &path), held(20, 2), "it is another hold");
    again.carry_out(async |_| Ok(())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_acquisition_that_declares_a_shard_dead_is_its_hold() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |lease| {
        lease["spec"]["holderIdentity"] = json!("x");
        lease["metadata"]["labels"]["alpha.sharding.timebertt.dev/state"] = json!("ready");
    });
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none(), "it may work");
    while spec(&api, &path) != held(20, 1) {
        sleep(Duration::from_millis(100)).await;
    }
    sleep(UNUSED / 2).await;
    assert!(hold(&leases, "x").await.is_some());
    assert_eq!(spec(&api, &path), held(20, 1));
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_name_without_lease_gets_one_where_the_rings_shards_are_and_that_is_deleted_as_any() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let (_, mut elsewhere) = stored("b", "b");
    elsewhere["metadata"]["namespace"] = json!("other");
    see(&leases, &elsewhere);
    let _leading = lead(&api, &leases);
    let paths = ["default", "other"].map(|namespace| path_of(namespace, "x"));
    let held_there = hold(&leases, "x").await.unwrap();
    for path in &paths {
        assert_eq!(spec(&api, path), held(30, 0), "{path}");
    }
    drop(held_there);
    sleep(QUIET * 2).await;
    for path in &paths {
        assert_eq!(spec(&api, path), Some((String::new(), 15, 0)), "{path}");
    }
    sleep(Duration::from_secs(80)).await;
    assert_eq!(paths.map(|path| api.get(&path)), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_name_without_lease_is_not_held_before_its_shard_had_the_time_to_notice() {
    let (api, leases) = (FakeApi::default(), just_seen(&["a"]));
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none());
    assert_eq!(writes_to(&api, &path_of("default", "x")), 0);
    sleep(2 * DEFAULT_LEASE_DURATION).await;
    assert!(hold(&leases, "x").await.is_some());
}

/// It is another ring's shard by now, say.
#[tokio::test(start_paused = true)]
async fn where_a_lease_of_the_name_is_no_shards_of_the_ring_the_name_is_gone() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let (path, mut lease) = stored("x", "x");
    lease["metadata"]["labels"] = json!({"alpha.sharding.timebertt.dev/clusterring": "another"});
    api.put(&path, lease.clone());
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_some());
    assert_eq!(api.get(&path), Some(lease));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_can_not_be_made_is_told() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    api.intercept(|asked, _| {
        (asked.method == Method::POST && asked.path.ends_with("/leases")).then_some(StatusCode::FORBIDDEN)
    });
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none());
    let told = leases.faults(&"example".parse().unwrap());
    assert!(told[0].starts_with("Lease 'default/x': the sharder can't write to it: "), "{told:?}");
    sleep(Duration::from_secs(8)).await;
    let asked = api.asked().iter().filter(|asked| asked.path.ends_with("/leases")).count();
    assert!((2..6).contains(&asked), "{asked}");
}

/// No shard can have such a name, as that is its Lease's as well.
#[tokio::test(start_paused = true)]
async fn a_name_that_no_lease_can_have_is_held_without_one() {
    for name in ["", "Upper_case"] {
        let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
        let _leading = lead(&api, &leases);
        assert!(hold(&leases, name).await.is_some(), "'{name}'");
        assert_eq!(api.asked().iter().filter(|asked| asked.method == Method::POST).count(), 0);
    }
}

/// A native shard waits for no admission.
#[tokio::test(start_paused = true)]
async fn a_hold_ends_as_soon_as_a_shard_of_the_name_holds_another_lease() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    hold.carry_out(async |_| Ok(())).await.unwrap();
    let (_, mut elsewhere) = stored("x", "x");
    elsewhere["metadata"]["namespace"] = json!("other");
    see(&leases, &elsewhere);
    assert!(has_ended(&hold.carry_out(async |_| Ok(())).await.unwrap_err()));
}

/// Others would wait with it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_refused_is_not_waited_for() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    known(&api, &leases, |_| {});
    api.intercept(|asked, _| (asked.method == Method::PUT).then_some(StatusCode::FORBIDDEN));
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none());
    let start = leases.now();
    assert!(hold(&leases, "x").await.is_none());
    assert!(leases.now().since(start) < Duration::from_secs(1), "{:?}", leases.now().since(start));
}
