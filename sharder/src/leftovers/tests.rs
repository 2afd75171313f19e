#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringside_ring::{RingLabels, lease::ShardState};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    fixtures::FakeApi,
    reconcile::tests::{CONFIG_MAPS, SECRETS, path},
    snapshot::tests::{example_spec, ring, snapshot_of},
};

const SHARDS: [(&str, ShardState); 2] = [("a", ShardState::Ready), ("gone", ShardState::Dead)];

/// A ring of Deployments, of which the status says that there were ConfigMaps with Secrets.
fn shrunk() -> Arc<Snapshot> {
    of_generation(1, &json!({"resources": [{"group": "apps", "resource": "deployments"}]}))
}

/// The same ring with another spec.
fn of_generation(generation: i64, spec: &Value) -> Arc<Snapshot> {
    let mut ring = ring(spec);
    ring.metadata.generation = Some(generation);
    let status = json!({"resources": [{"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]}]});
    ring.status = Some(serde_json::from_value(status).unwrap());
    Arc::new(snapshot_of(&ring, &SHARDS))
}

fn put(api: &FakeApi, path: &str, shard: &str) {
    let labels = RingLabels::of(&"example".parse().unwrap());
    let name = path.rsplit('/').next();
    api.put(path, json!({"metadata": {"name": name, "namespace": "default", "uid": path, "resourceVersion": "7", "labels": {labels.shard: shard}}}));
}

fn labels(api: &FakeApi, path: &str) -> Value {
    api.get(path).unwrap()["metadata"]["labels"].clone()
}

/// The API server, what is known, and the work. An object of a live shard, one of a dead one, and a child of the first.
fn start() -> (FakeApi, Leftovers, JoinHandle<Infallible>, watch::Sender<Arc<Snapshot>>) {
    let api = FakeApi::default();
    put(&api, &path(CONFIG_MAPS, "alive"), "a");
    put(&api, &path(CONFIG_MAPS, "dead"), "gone");
    put(&api, &path(SECRETS, "child"), "a");
    let (sender, latest) = watch::channel(shrunk());
    let leftovers = Leftovers::default();
    let task = tokio::spawn(withdraw(api.client(), AllWrites::default(), leftovers.clone(), latest));
    (api, leftovers, task, sender)
}

fn left(leftovers: &Leftovers) -> Vec<String> {
    leftovers.take_in(&shrunk()).into_iter().map(|name| name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_left_is_let_go_of_before_what_follows_it() {
    let (api, leftovers, task, _ring) = start();
    sleep(Duration::from_secs(10)).await;
    let drained = labels(&api, &path(CONFIG_MAPS, "alive"));
    assert_eq!(drained.as_object().unwrap().len(), 2, "its shard is asked to let go: {drained}");
    assert_eq!(labels(&api, &path(CONFIG_MAPS, "dead")), json!({}));
    assert_ne!(labels(&api, &path(SECRETS, "child")), json!({}), "its owner may be worked on");
    let mut acknowledged = api.get(&path(CONFIG_MAPS, "alive")).unwrap();
    acknowledged["metadata"]["labels"] = json!({});
    api.put(&path(CONFIG_MAPS, "alive"), acknowledged);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(labels(&api, &path(SECRETS, "child")), json!({}));
    assert_eq!(left(&leftovers), Vec::<String>::new());
    assert!(leftovers.record(&shrunk()).iter().all(|entry| entry.resource == "deployments"));
    task.abort();
}

/// Nor does the deadline of what is asked for later.
#[tokio::test(start_paused = true)]
async fn paused_ring_releases_nothing_that_left() {
    let (api, _leftovers, task, ring) = start();
    let of = |generation, paused| {
        of_generation(
            generation,
            &json!({"paused": paused, "resources": [{"group": "apps", "resource": "deployments"}]}),
        )
    };
    ring.send_replace(of(2, true));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(labels(&api, &path(CONFIG_MAPS, "alive")).as_object().unwrap().len(), 1);
    ring.send_replace(of(3, false));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(labels(&api, &path(CONFIG_MAPS, "alive")).as_object().unwrap().len(), 2, "asked, and not taken");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_copy_on_an_object_of_another_controller_stays_and_holds_up_nothing() {
    let (api, leftovers, task, _ring) = start();
    let copy = path(SECRETS, "copy");
    put(&api, &copy, "a");
    let mut object = api.get(&copy).unwrap();
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    api.put(&copy, object);
    sleep(Duration::from_secs(180)).await;
    assert_ne!(labels(&api, &copy), json!({}));
    assert_eq!(labels(&api, &path(SECRETS, "child")), json!({}));
    assert_eq!(left(&leftovers), Vec::<String>::new());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_narrow_it_any_more_is_not_waited_for_beyond_the_deadline() {
    let (api, leftovers, task, _ring) = start();
    sleep(Duration::from_secs(59)).await;
    assert_ne!(labels(&api, &path(CONFIG_MAPS, "alive")), json!({}));
    sleep(Duration::from_secs(120)).await;
    assert_eq!(labels(&api, &path(CONFIG_MAPS, "alive")), json!({}));
    assert_eq!(left(&leftovers), Vec::<String>::new());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn shards_have_their_full_time_once_the_resource_is_served() {
    let (api, _leftovers, task, ring) = start();
    // Looked at for a moment before.
    sleep(Duration::from_secs(1)).await;
    let mut away = (*shrunk()).clone();
    for resource in away.departing.values_mut() {
        *resource = Err(Unusable::Unknown("timed out".to_owned()));
    }
    ring.send_replace(Arc::new(away));
    sleep(Duration::from_secs(120)).await;
    ring.send_replace(shrunk());
    for second in 0..55 {
        let labels = labels(&api, &path(CONFIG_MAPS, "alive"));
        assert_ne!(labels, json!({}), "after {second} s");
        sleep(Duration::from_secs(1)).await;
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_for_a_moment_is_not_forgotten() {
    let (api, leftovers, task, ring) = start();
    let mut away = (*shrunk()).clone();
    for resource in away.departing.values_mut() {
        *resource = Err(Unusable::NotServed);
    }
    // Before anything was looked at, and again while that is under way.
    for _ in 0..2 {
        ring.send_replace(Arc::new(away.clone()));
        sleep(GONE * 2 / 3).await;
        assert_eq!(left(&leftovers), ["configmaps", "secrets"]);
        ring.send_replace(shrunk());
        sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(labels(&api, &path(CONFIG_MAPS, "dead")), json!({}), "it is there again");
    ring.send_replace(Arc::new(away));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(left(&leftovers), [""; 0], "and gone for good");
    task.abort();
}

/// It is not looked up just then, or a leader begins that knows the status alone.
#[tokio::test(start_paused = true)]
async fn what_follows_a_resource_that_is_clean_already_loses_its_labels() {
    let config_maps = GroupResource { group: String::new(), resource: CONFIG_MAPS.to_owned() };
    let chain = json!({"resources": [{"group": "apps", "resource": "deployments", "controlledResources": [
        {"group": "", "resource": "configmaps"}, {"group": "", "resource": "secrets"}]}]});
    let of_status = |status: Value| {
        let mut ring = ring(&json!({"resources": []}));
        ring.status = Some(serde_json::from_value(status).unwrap());
        snapshot_of(&ring, &SHARDS)
    };
    for has_new_leader in [false, true] {
        let (api, leftovers) = (FakeApi::default(), Leftovers::default());
        let leaf = path(SECRETS, "leaf");
        put(&api, &leaf, "gone");
        let mut object = api.get(&leaf).unwrap();
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone", "controller": true}]);
        api.put(&leaf, object);
        api.intercept(|asked, _| (asked.method == http::Method::PATCH).then_some(http::StatusCode::FORBIDDEN));
        let (ring, latest) = watch::channel(Arc::new(of_status(chain.clone())));
        let begin = |leftovers: &Leftovers, latest: &watch::Receiver<Arc<Snapshot>>| {
            tokio::spawn(withdraw(api.client(), AllWrites::default(), leftovers.clone(), latest.clone()))
        };
        let mut task = begin(&leftovers, &latest);
        sleep(Duration::from_secs(120)).await;
        assert!(!leftovers.take_in(&ring.borrow().clone()).contains(&config_maps), "it is clean");
        let mut later = of_status(json!({"resources": leftovers.record(&ring.borrow().clone())}));
        if has_new_leader {
            task.abort();
            task = begin(&Leftovers::default(), &latest);
        } else {
            later.departing.remove(&config_maps);
        }
        ring.send_replace(Arc::new(later));
        sleep(Duration::from_secs(60)).await;
        api.intercept(|_, _| None);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(labels(&api, &leaf), json!({}), "{has_new_leader}");
        task.abort();
    }
}

/// Objects of a live shard that was asked to release them.
fn put_drained(api: &FakeApi, count: usize) {
    for i in 0..count {
        let path = path(CONFIG_MAPS, &format!("drained-{i}"));
        put(api, &path, "a");
        let mut object = api.get(&path).unwrap();
        object["metadata"]["labels"][RingLabels::of(&"example".parse().unwrap()).drain] = json!("m");
        api.put(&path, object);
    }
}

fn labelled(api: &FakeApi, count: usize) -> usize {
    let labels = (0..count).map(|i| labels(api, &path(CONFIG_MAPS, &format!("drained-{i}"))));
    labels.filter(|labels| *labels != json!({})).count()
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_named_again_in_the_midst_of_a_pass_keeps_its_labels() {
    const OBJECTS: usize = 100;
    let (api, leftovers, task, sender) = start();
    put_drained(&api, OBJECTS);
    let named_again = of_generation(2, &example_spec());
    let ring = sender.clone();
    api.intercept(move |asked, _| {
        // The first labels come off past the deadline; at that moment a user names the resource again.
        let comes_off = asked.method == http::Method::PATCH && asked.path.contains("drained-");
        if comes_off {
            ring.send_replace(named_again.clone());
        }
        None
    });
    sleep(Duration::from_secs(59)).await;
    assert_eq!(labelled(&api, OBJECTS), OBJECTS);
    sleep(Duration::from_secs(120)).await;
    let writes_at_once = crate::cleanup::PARALLEL;
    assert!(OBJECTS - labelled(&api, OBJECTS) <= writes_at_once, "but for what was being written at that moment");
    assert_eq!(leftovers.take_in(&sender.borrow()).len(), 0);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_was_named_in_between_has_its_full_time_anew() {
    let (api, _leftovers, task, sender) = start();
    put_drained(&api, 1);
    sleep(Duration::from_secs(59)).await;
    // So soon one after the other that the first is not seen.
    sender.send_replace(of_generation(2, &example_spec()));
    sender.send_replace(of_generation(3, &json!({"resources": [{"group": "apps", "resource": "deployments"}]})));
    sleep(Duration::from_secs(58)).await;
    assert_eq!(labelled(&api, 1), 1);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(labelled(&api, 1), 0);
    task.abort();
}

#[test]
fn what_is_named_again_is_no_leftover() {
    let leftovers = Leftovers::default();
    assert_eq!(left(&leftovers), ["configmaps", "secrets"]);
    let whole = snapshot_of(&ring(&example_spec()), &SHARDS);
    assert!(!leftovers.take_in(&whole).iter().any(|name| name.resource != "deployments"));
    // Done, while the stored status still says otherwise.
    let leftovers = Leftovers::default();
    left(&leftovers);
    for name in shrunk().departing.keys() {
        leftovers.done(name);
    }
    assert_eq!(left(&leftovers), Vec::<String>::new());
    leftovers.take_in(&whole);
    assert_eq!(left(&leftovers), ["configmaps", "secrets"], "it was named again since");
}
