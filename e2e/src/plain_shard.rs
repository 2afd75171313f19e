//! Shards that are nothing but a Lease, and release what they are asked to at once: what the contract asks of a member
//! of a ring, without a controller and its proxy. Many of them cost a few requests a second.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream};
use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use ringside_ring::{
    Grace, RingKind, RingLabels, RingName, ShardName,
    labels::{ACKNOWLEDGER, LEASE_GRACE},
    lease::{SHARDER_HOLDER, holder},
    patch,
};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// On a shard's Lease: the label that names its `ClusterRing`.
pub const LEASE_RING: &str = RingKind::ClusterRing.names().lease_label;

/// Renewals in one duration, as of client-go's leader election.
const RENEWALS: u32 = 3;

/// Acknowledgements under way at once: more than the sharder writes at once, so that no move waits for them.
const ACKNOWLEDGEMENTS: usize = 32;

/// A member of a ring; it stops renewing when it is dropped.
pub struct PlainShard {
    name: ShardName,
    leases: Api<Lease>,
    duration: Duration,
    clock: Clock,
    renewing: AbortOnDropHandle<()>,
}

/// A wall clock, by how many seconds it is ahead.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn now(&self) -> MicroTime {
        MicroTime(Timestamp::now() + SignedDuration::from_secs(self.0.load(Ordering::Relaxed)))
    }
}

impl PlainShard {
    /// Creates its Lease, and renews it from then on.
    pub async fn join(
        client: &Client,
        namespace: &str,
        ring: &RingName,
        name: &ShardName,
        duration: Duration,
    ) -> kube::Result<Self> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let metadata = json!({"name": name.as_str(), "labels": {ring.kind().names().lease_label: ring.name()}});
        let seconds = i32::try_from(duration.as_secs()).unwrap_or(i32::MAX);
        let now = MicroTime(Timestamp::now());
        let spec = json!({"holderIdentity": name.as_str(), "leaseDurationSeconds": seconds, "renewTime": now});
        let lease =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).map_err(kube::Error::SerdeError)?;
        leases.create(&PostParams::default(), &lease).await?;
        Ok(Self::of(leases, name, duration))
    }

    /// Takes the Lease that a shard of its name has released, as in a Pod that is made again, and renews it from then on. Waits
    /// while the sharder holds it.
    pub async fn rejoin(client: &Client, namespace: &str, name: &ShardName, duration: Duration) -> kube::Result<Self> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        while holder(leases.get(name.as_str()).await?.spec.as_ref()) == Some(SHARDER_HOLDER) {
            tokio::time::sleep(duration / RENEWALS).await;
        }
        write(&leases, name, name.as_str(), &Clock::default()).await?;
        Ok(Self::of(leases, name, duration))
    }

    fn of(leases: Api<Lease>, name: &ShardName, duration: Duration) -> Self {
        let clock = Clock::default();
        let renewing = renew(&leases, name, duration, &clock);
        Self { name: name.clone(), leases, duration, clock, renewing }
    }

    /// Its name.
    pub fn name(&self) -> &ShardName {
        &self.name
    }

    /// Says from now on how long it waits before it releases an object that it is asked for; none: it does not say.
    pub async fn promise(&self, grace: Option<Grace>) -> kube::Result<()> {
        let said = json!({"metadata": {"annotations": {LEASE_GRACE: grace.map(|grace| grace.to_string())}}});
        self.leases.patch(self.name.as_str(), &PatchParams::default(), &Patch::Merge(said)).await.map(drop)
    }

    /// Stops to renew, as a process that stands still.
    pub fn pause(&self) {
        self.renewing.abort();
    }

    /// Renews again.
    pub fn resume(&mut self) {
        self.renewing = renew(&self.leases, &self.name, self.duration, &self.clock);
    }

    /// From now on its wall clock, which it writes as the time of its renewals, is so many seconds ahead, or behind.
    pub fn shift_clock(&self, seconds: i64) {
        self.clock.0.store(seconds, Ordering::Relaxed);
    }

    /// Releases the Lease, as at a graceful end.
    pub async fn release(self) -> kube::Result<()> {
        self.renewing.abort();
        write(&self.leases, &self.name, "", &self.clock).await
    }
}

fn renew(leases: &Api<Lease>, name: &ShardName, duration: Duration, clock: &Clock) -> AbortOnDropHandle<()> {
    let (leases, name, clock) = (leases.clone(), name.clone(), clock.clone());
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            if let Err(error) = write(&leases, &name, name.as_str(), &clock).await {
                tracing::warn!(shard = %name, %error, "a plain shard can't renew its Lease; trying again");
            }
            tokio::time::sleep(duration / RENEWALS).await;
        }
    }))
}

async fn write(leases: &Api<Lease>, name: &ShardName, holder: &str, clock: &Clock) -> kube::Result<()> {
    let spec = json!({"spec": {"holderIdentity": holder, "renewTime": clock.now()}});
    leases.patch(name.as_str(), &PatchParams::default(), &Patch::Merge(spec)).await.map(drop)
}

/// Acknowledges drains of one resource, for all shards of a ring that may; it stops when it is dropped.
pub struct Acknowledger(#[allow(dead_code, reason = "stops the task")] AbortOnDropHandle<()>);

impl Acknowledger {
    /// Acknowledges the drains of shards for which `releases` returns true, each once the grace that it asks for is
    /// over.
    pub fn start(
        client: &Client,
        labels: &RingLabels,
        resource: &ApiResource,
        releases: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let objects: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), resource);
        let (client, labels, resource) = (client.clone(), Arc::new(labels.clone()), resource.clone());
        let config = watcher::Config::default().labels(&labels.drain);
        let drained = watcher(objects, config).default_backoff().applied_objects().filter_map(|object| {
            ready(object.inspect_err(|error| tracing::warn!(%error, "can't watch for drained objects")).ok())
        });
        let (releases, writes) = (Arc::new(releases), Arc::new(Semaphore::new(ACKNOWLEDGEMENTS)));
        let acknowledging = drained.for_each_concurrent(None, move |object| {
            let (client, labels, resource, releases, writes) =
                (client.clone(), labels.clone(), resource.clone(), releases.clone(), writes.clone());
            async move {
                let ownership = labels.ownership(object.metadata.labels.as_ref());
                let (Some(shard), Some(drain)) = (ownership.shard.filter(|shard| releases(shard)), ownership.drain)
                else {
                    return;
                };
                let Ok(shard) = shard.parse::<ShardName>() else { return };
                let objects: Api<PartialObjectMeta<DynamicObject>> = match object.namespace() {
                    Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
                    None => Api::all_with(client, &resource),
                };
                if let Some(grace) = Grace::asked(drain) {
                    tokio::time::sleep(grace.duration()).await;
                }
                let _turn = writes.acquire().await;
                let patch = patch::acknowledge(&labels, &object.uid().unwrap_or_default(), &shard, drain);
                let params = PatchParams { field_manager: Some(ACKNOWLEDGER.to_owned()), ..PatchParams::default() };
                let patched = objects.patch(&object.name_any(), &params, &Patch::<()>::Json(patch)).await;
                if let Err(error) = patched {
                    // Another client did, or it is gone: the next event says so.
                    tracing::debug!(%error, object = object.name_any(), "a drain was not acknowledged");
                }
            }
        });
        Self(AbortOnDropHandle::new(tokio::spawn(acknowledging)))
    }
}

/// Starts so many members of a ring, named `<prefix>-0` and so on.
pub async fn join_all(
    client: &Client,
    namespace: &str,
    ring: &RingName,
    names: impl IntoIterator<Item = ShardName>,
    duration: Duration,
) -> kube::Result<Vec<PlainShard>> {
    let joining =
        names.into_iter().map(|name| async move { PlainShard::join(client, namespace, ring, &name, duration).await });
    stream::iter(joining).buffered(ACKNOWLEDGEMENTS).try_collect().await
}
