#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicI64, Ordering};

use futures::FutureExt;
use ringside_ring::cluster_ring::{ClusterRing, ClusterRingSpec};
use ringside_runtime::admin::{Health, Probe};
use tokio::sync::Semaphore;

use super::*;

fn ring(resource: &str) -> Ring {
    let resource = RingResource { resource: resource.into(), ..RingResource::default() };
    ClusterRing::new("example", ClusterRingSpec { resources: vec![resource], ..ClusterRingSpec::default() }).into()
}

fn follower() -> (PolicyFollower, Health, watch::Receiver<RingState>) {
    let (health, knowledge) = (Health::new(), ring_state());
    let receiver = knowledge.subscribe();
    let check = health.check("ring", Probe::Ready);
    (PolicyFollower::new("example".parse().unwrap(), "here".to_owned(), knowledge, check), health, receiver)
}

fn forbidden() -> watcher::Error {
    let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
    watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
}

#[test]
fn an_unknown_ring_is_named_and_heals_when_it_comes() {
    let (mut follower, health, knowledge) = follower();
    follower.take(Ok(watcher::Event::Init));
    follower.take(Ok(watcher::Event::InitDone));
    assert!(health.failures(Probe::Ready)[0].contains("there is no ClusterRing 'example'"));
    follower.take(Ok(watcher::Event::Apply(ring("things"))));
    assert!(health.failures(Probe::Ready).is_empty());
    let things = GroupResource { group: String::new(), resource: "things".into() };
    assert!(knowledge.borrow().narrows(&things));
    follower.take(Ok(watcher::Event::Delete(ring("things"))));
    assert!(!knowledge.borrow().narrows(&things));
    assert_eq!(health.failures(Probe::Ready).len(), 1);
}

#[test]
fn counts_in_the_status_change_nothing_and_a_ring_that_was_unknown_is_learned_anew() {
    let (mut follower, _health, knowledge) = follower();
    let known = || match &*knowledge.borrow() {
        RingState::Known(policy) => Arc::clone(policy),
        RingState::Unknown(reason) => panic!("{reason}"),
    };
    follower.take(Ok(watcher::Event::Apply(ring("things"))));
    let first = known();
    let mut counted = ring("things");
    counted.status.get_or_insert_default().available_shards = 7;
    follower.take(Ok(watcher::Event::Apply(counted)));
    assert!(
        Arc::ptr_eq(&first, &known()),
        "what the fence knows of objects is forgotten with the policy that it enforces"
    );
    let mut again = ring("things");
    again.metadata.uid = Some("another".to_owned());
    for event in [watcher::Event::Init, watcher::Event::InitApply(again), watcher::Event::InitDone] {
        assert!(follower.take(Ok(event)));
    }
    let second = known();
    assert!(!Arc::ptr_eq(&first, &second), "objects may have moved while there was no ring");
    follower.take(Ok(watcher::Event::Delete(ring("things"))));
    follower.take(Ok(watcher::Event::Apply(ring("things"))));
    assert!(!Arc::ptr_eq(&second, &known()), "and so where its end was seen");
}

#[test]
fn ring_of_an_older_generation_than_the_lease_says_is_unknown_until_read_anew() {
    let (mut follower, _health, knowledge) = follower();
    let of = |generation| {
        let mut ring = ring("things");
        ring.metadata.generation = Some(generation);
        ring
    };
    let is_known = || matches!(*knowledge.borrow(), RingState::Known(_));
    follower.take(Ok(watcher::Event::Apply(of(2))));
    assert!(!follower.is_behind(1) && !follower.is_behind(2) && is_known());
    assert!(follower.is_behind(3) && !is_known());
    // It was deleted and made again.
    follower.take(Ok(watcher::Event::InitApply(of(1))));
    assert!(is_known(), "a list that began later is newer, whatever it counts from");
    assert!(!follower.is_behind(1) && is_known());
    assert!(follower.is_behind(2) && !is_known());
}

#[test]
fn a_ring_whose_shards_are_in_other_namespaces_is_unknown() {
    let (mut follower, health, knowledge) = follower();
    let of = |namespaces: &[&str]| {
        let mut ring = ring("things");
        ring.spec.shard_namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
        Ok(watcher::Event::Apply(ring))
    };
    follower.take(of(&["elsewhere", "here"]));
    assert!(matches!(*knowledge.borrow(), RingState::Known(_)));
    follower.take(of(&["elsewhere"]));
    assert!(matches!(*knowledge.borrow(), RingState::Unknown(_)));
    assert!(health.failures(Probe::Ready)[0].contains("spec.shardNamespaces"));
    follower.take(of(&[]));
    assert!(health.failures(Probe::Ready).is_empty());
    // The sharder says it where the ring does not.
    let listed = |namespaces: &[&str]| {
        let mut ring = ring("things");
        let namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
        ring.status.get_or_insert_default().shard_namespaces = Some(namespaces);
        Ok(watcher::Event::Apply(ring))
    };
    follower.take(listed(&["elsewhere"]));
    assert!(matches!(*knowledge.borrow(), RingState::Unknown(_)));
    assert!(health.failures(Probe::Ready)[0].contains("ringside rbac example --shards here/"));
    follower.take(listed(&["elsewhere", "here"]));
    assert!(health.failures(Probe::Ready).is_empty());
}

#[test]
fn what_joins_or_leaves_gets_a_new_floor_and_all_else_keeps_its_own() {
    let (mut follower, _health, knowledge) = follower();
    let [things, others] = ["things", "others"].map(|it| GroupResource { group: String::new(), resource: it.into() });
    let mut learn = |resource: &str| {
        follower.take(Ok(watcher::Event::Apply(ring(resource))));
        let RingState::Known(policy) = knowledge.borrow().clone() else { unreachable!("it was just learned") };
        policy
    };
    let first = learn("things");
    assert_eq!(learn("things").floors, first.floors, "the same again");
    let left = learn("others");
    assert!(left.floors[&things] != first.floors[&things] && left.floors.contains_key(&others));
    let back = learn("things");
    assert!(back.floors[&things] != left.floors[&things] && back.floors[&things] != first.floors[&things]);
}

#[test]
fn resource_is_narrowed_once_the_status_says_that_it_is_filtered() {
    let things = GroupResource { group: String::new(), resource: "things".into() };
    let narrows = |status: serde_json::Value| {
        let status = serde_json::from_value(status).unwrap();
        Policy::of(&Ring { status, ..ring("things") }).narrows(&things)
    };
    let filtered = |observed: i64, resources: &[&GroupResource]| serde_json::json!({"observedGeneration": 2, "filtered": {"observedGeneration": observed, "resources": resources}});
    assert!(narrows(serde_json::Value::Null), "no sharder has seen the ring");
    assert!(narrows(serde_json::json!({"observedGeneration": 2})), "an older sharder does not say");
    assert!(narrows(filtered(2, &[&things])) && !narrows(filtered(2, &[])));
    assert!(narrows(filtered(1, &[])), "an older sharder has written since");
}

#[test]
fn what_follows_an_object_is_its_whole_chain_however_the_ring_says_it() {
    let of = |resource: &str| GroupResource { group: String::new(), resource: resource.into() };
    let entry = |resource: &str, controlled: &[&str]| RingResource {
        resource: resource.into(),
        controlled_resources: controlled.iter().map(|child| of(child)).collect(),
        ..RingResource::default()
    };
    let policy = |resources: Vec<RingResource>| {
        Policy::of(&ClusterRing::new("example", ClusterRingSpec { resources, ..Default::default() }).into())
    };
    let whole = policy(vec![entry("a", &["b", "c"]), entry("x", &[])]);
    let by_links = policy(vec![entry("a", &["b"]), entry("b", &["c"]), entry("x", &[])]);
    assert_eq!(whole, by_links);
    let of_each = |is: &dyn Fn(&GroupResource) -> bool| ["a", "b", "c", "x", "y"].map(|name| is(&of(name)));
    assert_eq!(of_each(&|name| by_links.is_main(name)), [true, false, false, true, false]);
    assert_eq!(of_each(&|name| by_links.is_controlled(name)), [false, true, true, false, false]);
    assert_eq!(of_each(&|owner| by_links.follows(&of("c"), owner)), [true, true, true, false, false]);
}

fn unreachable() -> watcher::Error {
    watcher::Error::WatchFailed(kube::Error::Service("connection refused".into()))
}

#[test]
fn a_missing_permission_is_explained_and_an_absent_api_server_changes_nothing_that_is_known() {
    let (mut follower, health, knowledge) = follower();
    assert!(!follower.take(Err(forbidden())), "a list has to show that it is allowed again");
    let failure = health.failures(Probe::Ready).remove(0);
    assert!(failure.contains("may not read ClusterRing 'example'") && failure.contains("service account"), "{failure}");
    follower.take(Ok(watcher::Event::Apply(ring("things"))));
    assert!(follower.take(Err(unreachable())));
    assert!(matches!(*knowledge.borrow(), RingState::Known(_)));
    assert!(health.failures(Probe::Ready).is_empty());
    assert!(follower.patience_is_over().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_ring_that_is_refused_is_unready_at_once_and_forgotten_after_a_while() {
    let (mut follower, health, knowledge) = follower();
    follower.take(Ok(watcher::Event::Apply(ring("things"))));
    let start = Instant::now();
    follower.take(Err(forbidden()));
    assert!(health.failures(Probe::Ready)[0].contains("may not read ClusterRing 'example'"));
    assert!(matches!(*knowledge.borrow(), RingState::Known(_)), "it may pass");
    sleep(ASK_AGAIN).await;
    follower.take(Err(forbidden()));
    follower.take(Err(unreachable()));
    follower.patience_is_over().await;
    assert_eq!(start.elapsed(), FORGET_AFTER, "of the first refusal");
    follower.forget_what_is_refused();
    assert!(matches!(&*knowledge.borrow(), RingState::Unknown(reason) if reason.contains("may not read")));
    follower.take(Ok(watcher::Event::InitApply(ring("things"))));
    assert!(health.failures(Probe::Ready).is_empty());
    assert!(follower.patience_is_over().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_ring_that_is_shown_again_in_time_is_not_forgotten() {
    let (mut follower, health, _knowledge) = follower();
    follower.take(Ok(watcher::Event::Apply(ring("things"))));
    follower.take(Err(forbidden()));
    follower.take(Ok(watcher::Event::InitApply(ring("things"))));
    assert!(health.failures(Probe::Ready).is_empty());
    assert!(follower.patience_is_over().now_or_never().is_none());
}

/// The watch of before shows nothing: its API server may be cut off.
#[tokio::test(start_paused = true)]
async fn ring_is_read_anew_where_the_lease_says_that_it_has_changed() {
    let (lists, allowed) = (Arc::new(AtomicI64::new(0)), Arc::new(Semaphore::new(1)));
    let (counted, admits) = (lists.clone(), allowed.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (lists, allowed) = (counted.clone(), admits.clone());
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let generation = lists.fetch_add(1, Ordering::Relaxed) + 1;
            allowed.acquire().await?.forget();
            let spec = serde_json::json!({"resources": [{"resource": "things"}]});
            let ring = serde_json::json!({"kind": "ClusterRing", "metadata": {"name": "example", "generation": generation}, "spec": spec});
            let list = serde_json::json!({"metadata": {"resourceVersion": "1"}, "items": [ring]});
            Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(serde_json::to_vec(&list)?)))
        }
    });
    let (knowledge, newest) = (ring_state(), watch::Sender::new(0));
    let mut known = knowledge.subscribe();
    let shutdown = Shutdown::new();
    let following = follow(
        Client::new(service, "default"),
        ("example".parse().unwrap(), "here".to_owned()),
        (knowledge, newest.subscribe()),
        Health::new().check("ring", Probe::Ready),
        shutdown.clone(),
    );
    let story = async {
        let is_known = |now: &RingState| matches!(now, RingState::Known(_));
        known.wait_for(is_known).await.unwrap();
        newest.send_replace(1);
        sleep(Duration::from_secs(60)).await;
        assert!(is_known(&known.borrow()) && lists.load(Ordering::Relaxed) == 1);
        newest.send_replace(2);
        known.wait_for(|now| !is_known(now)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(!is_known(&known.borrow()), "for as long as that takes");
        allowed.add_permits(1);
        known.wait_for(is_known).await.unwrap();
        assert_eq!(lists.load(Ordering::Relaxed), 2);
    };
    tokio::select! {
        _ = following => unreachable!("nothing asked for the end"),
        done = tokio::time::timeout(Duration::from_secs(600), story) => done.unwrap(),
    }
}
