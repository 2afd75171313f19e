//! A ring at work on a fake API server that shows changes.

#![allow(clippy::unwrap_used)]

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use http::Method;
use ringside_ring::{RingLabels, cluster_ring::Fence, lease::ShardState};
use ringside_runtime::heartbeat::Heartbeats;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    fixtures::{Asked, FakeApi},
    leases::{
        Leases,
        tests::{held_by, hold_name},
    },
    metrics::Metrics,
    namespaces::tests::{Roles, known},
    notices::Notices,
    snapshot::tests::{example_spec, key_of, ring as ring_of, snapshot, snapshot_of},
};

mod adopted;
mod families;
mod first_pass;
mod leaving;
mod locks;
mod moving;
mod refused;
mod taken_back;

pub(crate) const CONFIG_MAPS: &str = "configmaps";
pub(crate) const SECRETS: &str = "secrets";

/// Long enough for what takes no time.
const MOMENT: Duration = Duration::from_millis(200);

pub(crate) fn path(resource: &str, name: &str) -> String {
    format!("/api/v1/namespaces/default/{resource}/{name}")
}

/// The uid of an object of this name.
pub(crate) fn uid(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("00000000-0000-4000-8000-{:012x}", hasher.finish() >> 16)
}

/// An object in namespace `default`.
pub(crate) fn object(labels: &RingLabels, name: &str, shard: Option<&str>) -> Value {
    let mut object =
        json!({"metadata": {"name": name, "namespace": "default", "uid": uid(name), "resourceVersion": "7"}});
    if let Some(shard) = shard {
        object["metadata"]["labels"] = json!({ &*labels.shard: shard });
    }
    object
}

/// The same, controlled by the ConfigMap `owner`.
pub(crate) fn owned(mut object: Value, owner: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid(owner), "controller": true}]);
    object
}

/// ConfigMaps with Secrets, in the namespace `default`; the shards `a` and `b`, and `gone`, whose Lease the sharder holds.
pub(super) struct World {
    pub(super) api: FakeApi,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) leases: Leases,
    pub(super) known: Known,
    pub(super) faults: Faults,
    pub(super) labels: RingLabels,
    /// Which namespaces are the ring's.
    pub(super) roles: Roles,
    work: Option<JoinHandle<()>>,
    tools: Tools,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The ring with these shards.
pub(super) fn among(shards: &[&str]) -> Snapshot {
    let ready = shards.iter().map(|shard| (*shard, ShardState::Ready));
    let all: Vec<_> = ready.chain([("gone", ShardState::Dead)]).collect();
    snapshot_of(&ring_of(&example_spec()), &all)
}

impl World {
    pub(super) fn new() -> Self {
        Self::of(snapshot())
    }

    pub(super) fn of(snapshot: Snapshot) -> Self {
        let api = FakeApi::live();
        let (labels, leases) = (snapshot.labels.clone(), held_by(&["a", "b"]));
        let (namespaces, roles) = known(&[("default", "project"), ("other", "none")]);
        let tools = Tools {
            client: api.client(),
            watches: api.client(),
            leases: leases.clone(),
            namespaces,
            fences: crate::fence::follow(api.client()).0,
            notices: Notices::new(api.client()),
            metrics: Metrics::default(),
            heartbeats: Heartbeats::default(),
            reach: crate::verdict::Verdicts::default(),
        };
        let snapshots = watch::Sender::new(Arc::new(snapshot));
        Self {
            api,
            snapshots,
            leases,
            known: Known::default(),
            faults: Faults::default(),
            labels,
            roles,
            work: None,
            tools,
        }
    }

    /// The API server's fence is around shard `a`.
    pub(super) fn fenced() -> Self {
        let mut fenced = snapshot();
        fenced.spec.fence = Fence::ApiServer;
        let fences = crate::fence::tests::in_place(&fenced, &[CONFIG_MAPS, SECRETS], &["a"]);
        let mut world = Self::of(fenced);
        world.tools.fences = fences;
        world
    }

    /// Begins to work, and waits until what there is has been worked on.
    pub(super) async fn begin(&mut self) {
        let (tools, mut latest, known, faults) =
            (self.tools.clone(), self.snapshots.subscribe(), self.known.clone(), self.faults.clone());
        self.work = Some(tokio::spawn(async move {
            let writes = Writes::default();
            match distribute(&tools, &writes, &mut latest, &known, &faults).await {}
        }));
        sleep(MOMENT).await;
    }

    pub(super) fn stop(&mut self) {
        self.work.take().iter().for_each(JoinHandle::abort);
    }

    /// The shards are these from now on.
    pub(super) async fn among(&self, shards: &[&str]) {
        self.snapshots.send_replace(Arc::new(among(shards)));
        sleep(MOMENT).await;
    }

    /// The ring is paused from now on, or is not any more.
    pub(super) async fn pause(&self, is_paused: bool) {
        let mut ring = ring_of(&example_spec());
        ring.spec.paused = is_paused;
        ring.metadata.generation = Some(self.snapshots.borrow().generation + 1);
        let all = [("a", ShardState::Ready), ("b", ShardState::Ready), ("gone", ShardState::Dead)];
        self.snapshots.send_replace(Arc::new(snapshot_of(&ring, &all)));
        sleep(MOMENT).await;
    }

    /// A name of a ConfigMap whose home is `shard` among these shards, the first after others.
    pub(super) fn name(&self, shard: &str, number: usize) -> String {
        let snapshot = self.snapshots.borrow().clone();
        let main = &snapshot.mains[0];
        let belongs = |name: &String| {
            let key = key_of(main, name);
            snapshot.hash_ring().owner(&key).is_some_and(|owner| owner.as_str() == shard)
        };
        (0..).map(|i| format!("o-{i}")).filter(belongs).nth(number).unwrap()
    }

    /// How many drains of Secrets are late, by shard; those that are not are counted for `""`.
    pub(super) fn known_drains(&self) -> std::collections::BTreeMap<String, usize> {
        let Some(of) = self
            .known
            .drains
            .figures()
            .remove(&ringside_ring::cluster_ring::GroupResource { group: String::new(), resource: SECRETS.to_owned() })
        else {
            return Default::default();
        };
        let late: usize = of.overdue.values().map(|overdue| overdue.objects).sum();
        let in_time = (of.draining > late).then(|| (String::new(), of.draining - late));
        let overdue = of.overdue.into_iter().map(|(shard, overdue)| (shard, overdue.objects));
        overdue.chain(in_time).collect()
    }

    /// The main resource.
    pub(super) fn resource(&self) -> ringside_ring::cluster_ring::GroupResource {
        self.snapshots.borrow().mains[0].resource.id.clone()
    }

    pub(super) fn put(&self, resource: &str, name: &str, shard: Option<&str>) {
        self.api.put(&path(resource, name), object(&self.labels, name, shard));
    }

    pub(super) fn put_child(&self, name: &str, owner: &str, shard: Option<&str>) {
        self.api.put(&path(SECRETS, name), owned(object(&self.labels, name, shard), owner));
    }

    fn label(&self, resource: &str, name: &str, key: &str) -> Option<String> {
        Some(self.api.get(&path(resource, name))?["metadata"]["labels"][key].as_str()?.to_owned())
    }

    pub(super) fn shard(&self, resource: &str, name: &str) -> Option<String> {
        self.label(resource, name, &self.labels.shard)
    }

    pub(super) fn drain(&self, name: &str) -> Option<String> {
        self.label(CONFIG_MAPS, name, &self.labels.drain)
    }

    /// The shard of a ConfigMap releases it.
    pub(super) async fn acknowledge(&self, name: &str) {
        self.put(CONFIG_MAPS, name, None);
        sleep(MOMENT).await;
    }

    /// The names of what was written to, in order.
    pub(super) fn written(&self) -> Vec<String> {
        let patches = self.asked(|asked| asked.method == Method::PATCH && asked.path.starts_with("/api/v1/"));
        patches.into_iter().map(|asked| asked.path.rsplit('/').next().unwrap().to_owned()).collect()
    }

    pub(super) fn asked(&self, which: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.api.asked().into_iter().filter(which).collect()
    }

    /// How often all objects of a resource were asked for.
    pub(super) fn lists(&self) -> usize {
        let is_list = |asked: &Asked| {
            let is_watch = asked.query.contains("watch=true") && !asked.query.contains("sendInitialEvents");
            asked.method == Method::GET && asked.path.ends_with('s') && !is_watch
        };
        self.asked(is_list).len()
    }
}
