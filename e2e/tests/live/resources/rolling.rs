//! A Deployment and a StatefulSet of shards that roll. Their controllers are real; the test does what kubelets and proxies do: a
//! Pod's shard takes its Lease, the Pod becomes ready, and the Lease is released when the Pod goes.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    ops::RangeInclusive,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::Pod,
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use ringside_e2e::{eventually::eventually, plain_shard::PlainShard, system::NAMESPACE};
use ringside_ring::{HashRing, PartitionKey, ShardName, placement::DEFAULT_TOKENS_PER_SHARD};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use crate::resources::fixture::{DEADLINE, Fixture, Objects, Ring, config_maps, entry, team};

/// Shorter than others: a Pod that is made again looks three times in it whether its Lease is free.
const LEASE: Duration = Duration::from_secs(10);
const REPLICAS: usize = 4;
const OBJECTS: usize = 100;
/// Of their names.
const PREFIX: &str = "o-";
/// From when a shard has its Lease until its Pod is ready: long enough for what would move to it meanwhile.
const STARTS_WITHIN: Duration = Duration::from_secs(3);

/// What rolls: a ring, objects and Pods of one name, and the shards in them.
struct Rolling<'a> {
    fixture: &'a Fixture,
    name: &'static str,
    ring: Ring,
    objects: Objects,
    /// By the Pods' names, with their uids: a Pod that is made again has the name of the one before.
    shards: HashMap<String, (Option<String>, PlainShard)>,
}

impl<'a> Rolling<'a> {
    async fn start(fixture: &'a Fixture, name: &'static str) -> Self {
        fixture.namespace(name, name).await;
        let ring = fixture.ring(name, json!([entry(&config_maps(), &[])]), team(name)).await;
        let objects = ring.own(&config_maps());
        Self { fixture, name, ring, objects, shards: HashMap::new() }
    }

    /// Has objects in all Pods of a workload, lets it roll, and asserts how often objects get another shard, and that the ring
    /// tells of Pods of before and of after.
    #[allow(clippy::print_stderr, reason = "what was counted")]
    async fn roll<K>(mut self, workload: impl Fn(&str, Value) -> K, expected: RangeInclusive<usize>)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let client = self.fixture.client();
        let _acknowledger = self.ring.start_acknowledger(&config_maps());
        let workloads: Api<K> = Api::namespaced(client, NAMESPACE);
        workloads.create(&PostParams::default(), &workload(self.name, self.spec("old"))).await.unwrap();
        self.live("old").await;
        self.ring.until_available(REPLICAS).await;
        for i in 0..OBJECTS {
            self.objects.create(&format!("{PREFIX}{i}")).await;
        }
        self.until_home().await;
        let mut counted = count_moves(&self.objects, self.owners().await);
        let old = self.pods();

        let patch = Patch::Merge(json!(workload(self.name, self.spec("new"))));
        workloads.patch(self.name, &PatchParams::default(), &patch).await.unwrap();
        self.live("new").await;
        self.until_home().await;
        let owners = self.owners().await;
        let moves = counted.wait_for(|counted| counted.owners == owners);
        let moves = timeout(4 * DEADLINE, moves).await.unwrap().unwrap().moves;
        eprintln!("{REPLICAS} replicas, {OBJECTS} objects: {moves} moves");
        assert!(expected.contains(&moves), "{moves} moves of {OBJECTS} objects");
        self.ring.until_told("ShardJoined", &self.pods()).await;
        self.ring.until_told("ShardLeft", &old).await;
        self.ring.delete().await;
    }

    /// Of a Deployment or a StatefulSet.
    fn spec(&self, template: &str) -> Value {
        let labels = json!({"app": self.name});
        json!({"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {"template": template}},
            "spec": {"containers": [{"name": "main", "image": "nothing"}]}}})
    }

    /// Lets the shards of the Pods live as their Pods do, until all Pods are of the template `to`.
    async fn live(&mut self, to: &str) {
        let pods: Api<Pod> = Api::namespaced(self.fixture.client(), NAMESPACE);
        let config = watcher::Config::default().labels(&format!("app={}", self.name));
        let mut events = std::pin::pin!(watcher(pods.clone(), config).default_backoff());
        let mut templates = BTreeMap::new();
        let is_done = |templates: &BTreeMap<String, String>| {
            templates.len() == REPLICAS && templates.values().all(|template| template == to)
        };
        while !is_done(&templates) {
            match events.try_next().await.unwrap().unwrap() {
                Event::Apply(pod) | Event::InitApply(pod) if pod.metadata.deletion_timestamp.is_none() => {
                    let (name, uid) = (pod.name_any(), pod.uid());
                    if self.shards.get(&name).is_none_or(|(of, _)| *of != uid) {
                        // That the one before went may not have been seen.
                        self.end(&name).await;
                        let shard = self.join(&name.parse().unwrap()).await;
                        self.shards.insert(name.clone(), (uid, shard));
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
                    self.end(&name).await;
                }
                _ => {}
            }
        }
    }

    /// The shard of a Pod that begins. One that is made again under its name takes longer for that than its objects take to
    /// leave.
    async fn join(&self, name: &ShardName) -> PlainShard {
        let client = self.fixture.client();
        match PlainShard::join(&client, NAMESPACE, &self.ring.name, name, LEASE).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                eventually("no object is there any more", DEADLINE, || async {
                    let left = self.owners().await.into_values().filter(|owner| owner == name.as_str()).count();
                    if left == 0 { Ok(()) } else { Err(format!("{left} are")) }
                })
                .await
                .unwrap();
                PlainShard::rejoin(&client, NAMESPACE, name, LEASE).await.unwrap()
            }
            joined => joined.unwrap(),
        }
    }

    async fn end(&mut self, pod: &str) {
        if let Some((_, shard)) = self.shards.remove(pod) {
            shard.release().await.unwrap();
        }
    }

    fn pods(&self) -> Vec<String> {
        self.shards.keys().cloned().collect()
    }

    async fn owners(&self) -> BTreeMap<String, String> {
        let owned = self.objects.owners(PREFIX).await.into_iter();
        owned.map(|(name, (shard, _))| (name, shard.unwrap_or_default())).collect()
    }

    async fn until_home(&self) {
        let shards = self.shards.values().map(|(_, shard)| shard.name().clone());
        let ring = HashRing::new(shards, DEFAULT_TOKENS_PER_SHARD);
        let home = |name: &String| ring.owner(&PartitionKey::of("", "ConfigMap", self.name, name)).unwrap().to_string();
        eventually("all objects are at home", DEADLINE, || async {
            let owners = self.owners().await;
            let away = owners.iter().filter(|(name, owner)| **owner != home(name)).count();
            if away == 0 { Ok(()) } else { Err(format!("{away} are not")) }
        })
        .await
        .unwrap();
    }
}

async fn become_ready(pods: Api<Pod>, name: String) {
    tokio::time::sleep(STARTS_WITHIN).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    // It may be gone again.
    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready)).await;
}

/// How often objects got another shard, as of the last that was heard of.
struct Counted {
    owners: BTreeMap<String, String>,
    moves: usize,
}

/// Counts moves from now on, when these are the owners.
fn count_moves(objects: &Objects, owners: BTreeMap<String, String>) -> watch::Receiver<Counted> {
    let (sender, counted) = watch::channel(Counted { owners, moves: 0 });
    let (api, labels) = (objects.api.clone(), objects.labels.clone());
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(Ok(event)) = events.next().await {
            let (Event::Apply(object) | Event::InitApply(object)) = event else { continue };
            // The namespace has one of its own (`kube-root-ca.crt`).
            let name = Some(object.name_any()).filter(|name| name.starts_with(PREFIX));
            let owner = labels.ownership(object.metadata.labels.as_ref()).shard.map(str::to_owned);
            let Some((name, owner)) = name.zip(owner) else { continue };
            sender.send_modify(|Counted { owners, moves }| {
                let before = owners.insert(name, owner.clone());
                *moves += usize::from(before.is_some_and(|before| before != owner));
            });
        }
    });
    counted
}

/// Each object must move once.
pub(crate) async fn a_deployment_rolls_and_objects_move_hardly_more_often_than_they_must(fixture: &Fixture) {
    let of = |name: &str, spec: Value| -> Deployment {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    Rolling::start(fixture, "rolls").await.roll(of, OBJECTS..=OBJECTS * 3 / 2).await;
    let log = fixture.log();
    let said = |line: &str| line.contains("a rollout replaces shards") && line.contains("ring=rolls ");
    assert!(log.lines().any(said), "{log}");
}

/// Each Pod is ended, and made again under its name: each object must move out and home.
pub(crate) async fn a_stateful_set_rolls_and_each_object_moves_out_and_home(fixture: &Fixture) {
    let of = |name: &str, mut spec: Value| -> StatefulSet {
        spec["serviceName"] = json!(name);
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    Rolling::start(fixture, "rolls-in-place").await.roll(of, 2 * OBJECTS..=2 * OBJECTS + OBJECTS / 10).await;
}
