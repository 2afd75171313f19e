//! A Deployment of shards that rolls. Its controllers are real; the test does what kubelets and proxies do: a Pod's shard takes
//! its Lease, the Pod becomes ready, and the Lease is released when the Pod goes.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use ringside_e2e::{
    eventually::eventually,
    plain_shard::{Acknowledger, PlainShard},
    system::NAMESPACE,
};
use ringside_ring::{HashRing, PartitionKey, placement::DEFAULT_TOKENS_PER_SHARD};
use serde_json::json;

use crate::ground::{DEADLINE, Ground, LEASE, Objects, Ring, config_maps, entry, team};

const NAME: &str = "rolls";
const REPLICAS: usize = 4;
const OBJECTS: usize = 100;
/// From when a shard has its Lease until its Pod is ready: long enough for what would move to it meanwhile.
const STARTS_WITHIN: Duration = Duration::from_secs(3);

/// Lets the shards of the Deployment's Pods live as their Pods do, until all Pods are of the template `to`.
async fn live(ground: &Ground, ring: &Ring, shards: &mut HashMap<String, PlainShard>, to: &str) {
    let pods: Api<Pod> = Api::namespaced(ground.client(), NAMESPACE);
    let config = watcher::Config::default().labels(&format!("app={NAME}"));
    let mut events = std::pin::pin!(watcher(pods.clone(), config).default_backoff());
    let mut templates = BTreeMap::new();
    let is_done = |templates: &BTreeMap<String, String>| {
        templates.len() == REPLICAS && templates.values().all(|template| template == to)
    };
    while !is_done(&templates) {
        match events.try_next().await.unwrap().unwrap() {
            Event::Apply(pod) | Event::InitApply(pod) if pod.metadata.deletion_timestamp.is_none() => {
                let name = pod.name_any();
                if !shards.contains_key(&name) {
                    let shard = name.parse().unwrap();
                    let shard = PlainShard::join(&ground.client(), NAMESPACE, &ring.name, &shard, LEASE).await.unwrap();
                    shards.insert(name.clone(), shard);
                    tokio::spawn(become_ready(pods.clone(), name.clone()));
                }
                let ready = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                if ready.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                    templates.insert(name, pod.annotations()["template"].clone());
                }
            }
            Event::Delete(pod) => {
                let name = pod.name_any();
                templates.remove(&name);
                if let Some(shard) = shards.remove(&name) {
                    shard.release().await.unwrap();
                }
            }
            _ => {}
        }
    }
}

async fn become_ready(pods: Api<Pod>, name: String) {
    tokio::time::sleep(STARTS_WITHIN).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    // It may be gone again.
    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready)).await;
}

fn deployment(template: &str) -> Deployment {
    let labels = json!({"app": NAME});
    serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {"template": template}},
            "spec": {"containers": [{"name": "main", "image": "nothing"}]}}},
    }))
    .unwrap()
}

/// Counts how often objects get another shard, from now on.
fn count_moves(objects: &Objects) -> tokio::sync::watch::Receiver<usize> {
    let (sender, moves) = tokio::sync::watch::channel(0);
    let (api, labels) = (objects.api.clone(), objects.labels.clone());
    tokio::spawn(async move {
        let mut owners: HashMap<String, String> = HashMap::new();
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(Ok(event)) = events.next().await {
            let (Event::Apply(object) | Event::InitApply(object)) = event else { continue };
            let Some(owner) = labels.ownership(object.metadata.labels.as_ref()).shard.map(str::to_owned) else {
                continue;
            };
            if owners.insert(object.name_any(), owner.clone()).is_some_and(|before| before != owner) {
                sender.send_modify(|moves| *moves += 1);
            }
        }
    });
    moves
}

async fn owners(objects: &Objects) -> BTreeMap<String, String> {
    let owned = objects.owners("o-").await.into_iter();
    owned.map(|(name, (shard, _))| (name, shard.unwrap_or_default())).collect()
}

async fn until_home(objects: &Objects, shards: &HashMap<String, PlainShard>) {
    let ring = HashRing::new(shards.values().map(|shard| shard.name().clone()), DEFAULT_TOKENS_PER_SHARD);
    let home = |name: &String| ring.owner(&PartitionKey::of("", "ConfigMap", NAME, name)).unwrap().to_string();
    eventually("all objects are at home", DEADLINE, || async {
        let owners = owners(objects).await;
        let away = owners.iter().filter(|(name, owner)| **owner != home(name)).count();
        if away == 0 { Ok(()) } else { Err(format!("{away} are not")) }
    })
    .await
    .unwrap();
}

#[allow(clippy::print_stderr, reason = "what was counted")]
pub(crate) async fn rolls(ground: &Ground) {
    ground.namespace(NAME, NAME).await;
    let ring = ground.ring(NAME, json!([entry(&config_maps(), &[])]), team(NAME)).await;
    let _acknowledger = Acknowledger::start(&ground.client(), &ring.labels, &config_maps(), |_| true);
    let deployments: Api<Deployment> = Api::namespaced(ground.client(), NAMESPACE);
    deployments.create(&PostParams::default(), &deployment("old")).await.unwrap();
    let mut shards = HashMap::new();
    live(ground, &ring, &mut shards, "old").await;
    ring.until_available(REPLICAS).await;
    let objects = ring.objects(&config_maps(), Some(NAME));
    for i in 0..OBJECTS {
        objects.create(&format!("o-{i}")).await;
    }
    until_home(&objects, &shards).await;
    let moves = count_moves(&objects);
    let old: Vec<_> = shards.keys().cloned().collect();

    let patch = Patch::Merge(json!(deployment("new")));
    deployments.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
    live(ground, &ring, &mut shards, "new").await;
    until_home(&objects, &shards).await;
    let moves = *moves.borrow();
    eprintln!("{REPLICAS} replicas, {OBJECTS} objects: {moves} moves; each must move once");
    assert!((OBJECTS..=OBJECTS * 3 / 2).contains(&moves), "{moves} moves of {OBJECTS} objects");
    ring.until_told("ShardJoined", &shards.keys().cloned().collect::<Vec<_>>()).await;
    ring.until_told("ShardLeft", &old).await;
    let log = ground.log();
    let said = |line: &str| line.contains("shards are about to be replaced") && line.contains(&format!("ring={NAME} "));
    assert!(log.lines().any(said), "{log}");
    ring.delete().await;
}
