//! Acquire before dead, against a fake API server under a paused clock.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use http::{Method, StatusCode};
use ringside_ring::lease::SHARDER_HOLDER;
use ringside_runtime::clock::TokioClock;
use serde_json::Value;
use tokio::time::{Instant, advance};

use super::*;
use crate::{
    fixtures::FakeApi,
    leases::{
        book::tests::{in_namespace, labelled, lease},
        follow,
        tests::list,
    },
};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";

struct World {
    api: FakeApi,
    leases: Leases,
    leader: tokio::task::JoinHandle<Infallible>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.leader.abort();
    }
}

/// A leader that has just begun, and the Lease of shard `a`: 10 seconds long, seen as ready.
async fn world() -> World {
    world_with(labelled(lease("a", "a", 0, 1), "ready"), 0).await
}

/// The same with some other Lease, observed this many seconds before the leader began.
async fn world_with(first: Lease, observed_before: u64) -> World {
    let api = FakeApi::default();
    api.put(PATH, serde_json::to_value(&first).unwrap());
    let leases = Leases::new(Arc::new(TokioClock::start()));
    list(&leases, [first]);
    advance(Duration::from_secs(observed_before)).await;
    let leader = lead(&api, &leases);
    World { api, leases, leader }
}

/// A leader that begins now.
fn lead(api: &FakeApi, leases: &Leases) -> tokio::task::JoinHandle<Infallible> {
    let (client, book, notices) = (api.client(), leases.clone(), Notices::new(api.client()));
    tokio::spawn(async move {
        tokio::select! {
            never = keep_states(client, book, Metrics::default(), notices.clone()) => never,
            never = notices.write() => never,
        }
    })
}

impl World {
    /// Lets time pass in small steps, so that whatever is due happens when it is due.
    async fn pass(&self, seconds: u64) {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn stored(&self) -> Lease {
        serde_json::from_value(self.api.get(PATH).unwrap()).unwrap()
    }

    fn stored_label(&self) -> Option<String> {
        self.stored().metadata.labels?.get(LEASE_STATE).cloned()
    }

    fn available(&self) -> bool {
        self.leases.members().unwrap().values().next().is_some_and(|members| members.is_available("a"))
    }

    /// The shard renews, and the watch shows it.
    fn renew(&self, second: u32) {
        self.leases.see(self.renew_unseen(second));
    }

    fn renew_unseen(&self, second: u32) -> Lease {
        let mut stored = self.stored();
        let renewed = lease("a", "a", second, 1);
        stored.spec = renewed.spec;
        let version: u64 = stored.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        stored.metadata.resource_version = Some((version + 1).to_string());
        self.api.put(PATH, serde_json::to_value(&stored).unwrap());
        stored
    }

    /// The reasons of the Events on the Lease.
    fn told(&self) -> Vec<String> {
        let asked = self.api.asked().into_iter().filter(|asked| asked.method == Method::POST);
        asked.filter_map(|asked| asked.body["reason"].as_str().map(str::to_owned)).collect()
    }

    fn puts(&self) -> usize {
        self.api.asked().iter().filter(|asked| asked.method == Method::PUT).count()
    }
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_shard_is_dead_only_once_its_lease_was_acquired() {
    let world = world().await;
    world.api.intercept(|asked, _| (asked.method == Method::PUT).then_some(StatusCode::INTERNAL_SERVER_ERROR));
    world.pass(12).await;
    assert_eq!((world.stored_label().as_deref(), world.puts()), (Some("expired"), 0));
    world.pass(10).await;
    assert_eq!(world.stored_label().as_deref(), Some("uncertain"));
    assert!(world.puts() > 1, "it is tried again");
    assert_eq!(world.told(), ["ShardExpired", "ShardUncertain"]);
    assert!(world.available(), "the API server has not accepted");
    world.api.intercept(|_, _| None);
    world.pass(2).await;
    let spec = world.stored().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(SHARDER_HOLDER));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(20), Some(1)));
    assert!(!world.available());
    assert_eq!(world.stored_label().as_deref(), Some("dead"));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_the_last_moment_wins() {
    let world = world().await;
    // The shard renews after the sharder saw the Lease for the last time, which was the answer to its own label.
    let (mut labelled, mut renewed) = (false, false);
    world.api.intercept(move |asked, objects| {
        if labelled && !std::mem::replace(&mut renewed, true) {
            let object = objects.get_mut(PATH).unwrap();
            object["spec"]["renewTime"] = Value::from("2024-01-01T00:00:20.000000Z");
            object["metadata"]["resourceVersion"] = Value::from("5000");
        }
        labelled |= asked.body["metadata"]["labels"][LEASE_STATE] == "expired";
        None
    });
    world.pass(21).await;
    assert_eq!(world.puts(), 1);
    assert!(world.available());
    assert_eq!(world.stored().spec.unwrap().holder_identity.as_deref(), Some("a"));
    world.pass(8).await;
    assert_eq!((world.puts(), world.stored_label().as_deref()), (1, Some("ready")));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_the_labels_answer_shows_counts() {
    let world = world().await;
    // The acquisition fails, and the renewal comes in just before the label `uncertain`.
    world.api.intercept(|asked, objects| {
        let uncertain = asked.body["metadata"]["labels"][LEASE_STATE] == "uncertain";
        if asked.method == Method::PATCH && uncertain {
            let object = objects.get_mut(PATH).unwrap();
            object["spec"]["renewTime"] = Value::from("2024-01-01T00:00:20.000000Z");
        }
        (asked.method == Method::PUT).then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    world.pass(25).await;
    assert_eq!((world.puts(), world.stored_label().as_deref()), (1, Some("ready")));
}

/// With an outage of the API server: that ends with a new leader, and by then no shard has renewed.
#[tokio::test(start_paused = true)]
async fn a_new_leader_judges_by_what_it_saw_before_and_gives_every_shard_time_for_a_renewal() {
    for renews in [false, true] {
        let world = world_with(labelled(lease("a", "a", 0, 1), "ready"), 60).await;
        world.pass(4).await;
        assert_eq!((world.puts(), world.stored_label().as_deref()), (0, Some("expired")));
        if renews {
            world.renew(9);
        }
        world.pass(2).await;
        assert_eq!((world.puts(), world.available()), (usize::from(!renews), renews));
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_that_change_often_declare_a_shard_dead() {
    let mut world = world().await;
    for _ in 0..4 {
        world.pass(7).await;
        world.leader.abort();
        world.leader = lead(&world.api, &world.leases);
    }
    // Acquired, and released again, as there is nothing to take.
    assert_eq!((world.puts(), world.available()), (2, false));
}

#[tokio::test(start_paused = true)]
async fn a_state_label_that_somebody_drops_is_not_written_all_the_time() {
    let world = world_with(lease("a", "a", 0, 1), 0).await;
    world.api.drop_labels();
    let mut requests = 0;
    world.api.intercept(move |_, _| {
        requests += 1;
        // Under a paused clock an endless loop would not even let time pass.
        assert!(requests < 100, "it is written all the time");
        None
    });
    world.pass(5).await;
    let writes = world.api.writes().len();
    assert!((4..8).contains(&writes), "{writes}");
    // Its last write is not known, so the acquisition meets a conflict first.
    world.pass(17).await;
    assert!(!world.available(), "and it keeps no shard alive");
}

/// As in a namespace whose Role does not name the sharder.
#[tokio::test(start_paused = true)]
async fn a_lease_that_may_not_be_written_is_told_and_asked_for_ever_less_often() {
    let world = world().await;
    world
        .api
        .intercept(|asked, _| matches!(asked.method, Method::PUT | Method::PATCH).then_some(StatusCode::FORBIDDEN));
    world.pass(600).await;
    let attempts = world.api.asked().iter().filter(|asked| asked.method != Method::POST).count();
    assert!((5..50).contains(&attempts), "{attempts}");
    let told = || world.leases.faults(&"example".parse().unwrap());
    assert!(told()[0].starts_with("Lease 'default/a': the sharder can't write to it: "), "{:?}", told());
    world.api.intercept(|_, _| None);
    world.pass(61).await;
    assert!(!world.available() && told().is_empty(), "{:?}", told());
}

/// As by a webhook that fails closed and whose pods are gone.
#[tokio::test(start_paused = true)]
async fn writes_that_hang_in_one_namespace_delay_no_takeover_in_another() {
    let world = world().await;
    for shard in (0..16).map(|number| format!("s-{number}")) {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/another/leases/{shard}");
        let lease = in_namespace(labelled(lease(&shard, &shard, 0, 1), "ready"), "another");
        world.api.put(&path, serde_json::to_value(&lease).unwrap());
        for write in [Method::PUT, Method::PATCH] {
            world.api.slow(write, &path, Duration::from_secs(30));
        }
        world.leases.see(lease);
    }
    world.api.intercept(|asked, _| {
        let hangs = asked.path.contains("/another/") && asked.method != Method::GET;
        hangs.then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    for second in [4, 8] {
        world.pass(4).await;
        world.renew(second);
    }
    world.pass(19).await;
    assert_eq!((world.stored_label().as_deref(), world.available()), (Some("expired"), true));
    world.pass(2).await;
    assert_eq!((world.stored_label().as_deref(), world.available()), (Some("dead"), false));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_renews_is_left_alone() {
    let world = world().await;
    for second in 1..12 {
        world.pass(4).await;
        world.renew(second);
    }
    assert_eq!(world.api.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_lease_is_deleted_as_it_was_seen() {
    let world = world_with(labelled(lease("a", "", 0, 7), "dead"), 0).await;
    world.pass(69).await;
    assert_eq!(world.api.writes(), Vec::<String>::new());
    world.pass(2).await;
    assert_eq!(world.api.get(PATH), None);
    let asked = world.api.asked().into_iter();
    let deletions: Vec<_> = asked.filter(|asked| asked.method == Method::DELETE).map(|it| it.body).collect();
    assert_eq!(deletions.len(), 1, "once, although no watch shows it");
    assert_eq!(deletions[0]["preconditions"], json!({"uid": "uid-a", "resourceVersion": "7"}));
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_of_etcd_a_dead_shard_is_given_up_and_a_living_one_is_ready() {
    for lives in [false, true] {
        let world = world_with(labelled(lease("a", "a", 50, 9_000), "ready"), 0).await;
        let (client, leases) = (world.api.client(), world.leases.clone());
        let watch = tokio::spawn(async move { follow(client, leases).await });
        world.pass(1).await;
        // A copy of before: the shard had renewed since.
        world.api.slow_writes(Duration::from_millis(10));
        world.api.put(PATH, serde_json::to_value(labelled(lease("a", "a", 1, 300), "ready")).unwrap());
        let before = world.api.writes().len();
        for second in 2..50 {
            world.pass(1).await;
            if lives {
                world.renew_unseen(second);
            }
        }
        let writes = world.api.writes().len() - before;
        assert!(writes < 15, "{writes}, lives: {lives}");
        assert_eq!(world.available(), lives);
        assert_eq!(world.stored_label().as_deref(), Some(if lives { "ready" } else { "dead" }));
        watch.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_an_end_are_a_second_apart() {
    let world = world().await;
    world.api.slow_writes(Duration::from_millis(10));
    // Each write meets another one, which the answer to the read shows.
    let mut version = 10;
    world.api.intercept(move |asked, objects| {
        let conflicts = asked.method == Method::PUT;
        if conflicts {
            version += 1;
            objects.get_mut(PATH).unwrap()["metadata"]["resourceVersion"] = Value::from(format!("{version}000"));
        }
        conflicts.then_some(StatusCode::CONFLICT)
    });
    world.pass(40).await;
    assert!((5..25).contains(&world.puts()), "{}", world.puts());
}

/// The watch of this replica has not shown the older Lease yet.
/// The Lease of `a` in a namespace, of this instance.
fn instance(namespace: &str, uid: &str, created: &str) -> serde_json::Value {
    let mut lease = labelled(lease("a", "a", 0, 1), "ready");
    lease.metadata.namespace = Some(namespace.to_owned());
    lease.metadata.uid = Some(format!("uid-{namespace}"));
    lease.metadata.annotations = Some([("ringside.dev/instance".to_owned(), uid.to_owned())].into());
    let mut lease = serde_json::to_value(lease).unwrap();
    lease["metadata"]["creationTimestamp"] = created.into();
    lease
}

/// Where it is.
fn path_of_a(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/a")
}

/// Which instance a Lease says is admitted.
fn admitted(world: &World, namespace: &str) -> serde_json::Value {
    world.api.get(&path_of_a(namespace)).unwrap()["metadata"]["annotations"]["ringside.dev/admitted"].clone()
}

#[tokio::test(start_paused = true)]
async fn of_two_instances_of_one_second_one_alone_is_admitted_however_slow_a_write_is() {
    let second = "2024-01-01T00:00:09Z";
    let first = serde_json::from_value(instance("default", "u2", second)).unwrap();
    let world = world_with(first, 0).await;
    world.api.slow(Method::PATCH, &path_of_a("default"), Duration::from_secs(3));
    world.pass(1).await;
    // Of the same age, and before the other one by its uid.
    let other = instance("another", "u1", second);
    world.api.put(&path_of_a("another"), other.clone());
    world.leases.see(serde_json::from_value(other).unwrap());
    for _ in 0..8 {
        world.pass(1).await;
        let both = [admitted(&world, "default"), admitted(&world, "another")];
        assert!(both != ["u2", "u1"], "both are admitted");
    }
    assert_eq!(admitted(&world, "default"), admitted(&world, "another"));
}

#[tokio::test(start_paused = true)]
async fn instance_is_admitted_by_all_leases_of_its_name_as_they_are() {
    for is_older in [false, true] {
        let younger = serde_json::from_value(instance("default", "u2", "2024-01-01T00:00:09Z")).unwrap();
        let world = world_with(younger, 0).await;
        if is_older {
            world.api.put(&path_of_a("earlier"), instance("earlier", "u1", "2024-01-01T00:00:01Z"));
        }
        world.pass(3).await;
        assert_eq!(admitted(&world, "default"), if is_older { "u1" } else { "u2" });
        if is_older {
            assert_eq!(admitted(&world, "earlier"), "u1");
        }
    }
}

/// Objects name a shard that has no Lease, in a ring with shards in two namespaces of which one answers 403.
async fn hold_beside(namespace: serde_json::Value) -> (bool, Vec<String>) {
    let (api, ring) = (FakeApi::default(), "example".parse().unwrap());
    let leases = Leases::new(Arc::new(TokioClock::start()));
    list(&leases, []);
    leases.book.lock().know_all();
    let spec = serde_json::from_value(json!({"resources": [], "shardNamespaces": ["default", "other"]})).unwrap();
    leases.confine([&ringside_ring::ClusterRing::new("example", spec).into()]);
    api.put("/api/v1/namespaces/other", namespace);
    api.intercept(|asked, _| {
        (asked.method == Method::POST && asked.path.contains("/other/leases")).then_some(StatusCode::FORBIDDEN)
    });
    let leader = lead(&api, &leases);
    for _ in 0..5 {
        let _ = leases.hold(&ring, "a", "uid");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    leader.abort();
    (leases.hold(&ring, "a", "uid").is_some(), leases.unmade(&ring))
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_blocks_no_takeover() {
    let ending = json!({"metadata": {"name": "other", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(hold_beside(ending).await, (true, vec![]));
    let (held, unmade) = hold_beside(json!({"metadata": {"name": "other"}})).await;
    assert!(!held && unmade.len() == 1 && unmade[0].contains("in namespace 'other'"), "{unmade:?}");
}
