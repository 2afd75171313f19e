//! The commands `drain` and `undrain`: a replica gives away its objects, and gets objects again.

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use ringside_ring::{
    Controller, Ring, RingLabels, RingName, Weight,
    labels::{self, LEASE_DRAINED, LEASE_INSTANCE},
    lease::annotation,
};
use ringside_runtime::{
    discovery,
    explain::{code, explain},
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    cluster::{Cluster, Global},
    output::Said,
    rings::{self, Replica},
};

/// The arguments of `drain`.
#[derive(Clone, Debug, clap::Args)]
pub struct Drain {
    /// The replica: its Pod, as NAME or NAMESPACE/NAME.
    pod: String,
    /// Waits until it has no objects, for as long as --timeout says.
    #[arg(long)]
    wait: bool,
}

/// The arguments of `undrain`.
#[derive(Clone, Debug, clap::Args)]
pub struct Undrain {
    /// The replica: its Pod, as NAME or NAMESPACE/NAME.
    pod: String,
}

/// Asks the sharder to move all objects of a replica to others.
///
/// # Errors
/// When its Lease can't be written, or no other replica could take the objects.
pub async fn drain(global: &Global, Drain { pod, wait }: &Drain) -> anyhow::Result<Said> {
    let cluster = global.connect().await?;
    let lease = read(&cluster, pod).await?;
    let ring = ring_of(&lease)?;
    let name = lease.metadata.name.clone().unwrap_or_default();
    let of_ring = rings::read(&cluster.client, &ring).await?;
    let replicas = rings::replicas(&of_ring, &rings::leases(&cluster.client, &ring).await?);
    // Where no replica is left, all count alike, and objects would move to those that are drained.
    let group = Replica::of(&lease).and_then(|it| it.group);
    if of_ring.spec.paused {
        return Ok(Said::unhealthy(format!(
            "{pod} is not drained: its ring is paused; `ringside resume {ring}` ends that"
        )));
    }
    let has_groups = !of_ring.spec.groups.is_empty();
    let alike: Vec<_> = replicas.into_iter().filter(|it| !has_groups || it.group == group).collect();
    if !has_receiver(&alike, &name) {
        let of_group = group.filter(|_| has_groups).map(|group| format!(" of group '{group}'")).unwrap_or_default();
        return Ok(Said::unhealthy(format!("{pod} is not drained: no other replica{of_group} takes objects")));
    }
    mark(&cluster, &lease, Some(annotation(&lease, LEASE_INSTANCE).unwrap_or("true"))).await?;
    if !wait {
        return Ok(Said::good(format!("{pod} is drained: its objects move; `ringside undrain {pod}` takes it back")));
    }
    match timeout(global.timeout, until_empty(&cluster.client, &ring, &name)).await {
        Ok(done) => done.map(|()| Said::good(format!("{pod} has no objects"))),
        Err(_) => Ok(Said::unhealthy(format!(
            "{pod} still has objects after {:?}: `ringside status {ring}` says more",
            global.timeout
        ))),
    }
}

/// Lets a replica have objects again, by the weight that it had.
///
/// # Errors
/// When its Lease can't be written.
pub async fn undrain(global: &Global, Undrain { pod }: &Undrain) -> anyhow::Result<Said> {
    let cluster = global.connect().await?;
    let lease = read(&cluster, pod).await?;
    ring_of(&lease)?;
    let weight = Replica::of(&mark(&cluster, &lease, None).await?).map_or(String::new(), |it| it.weight.to_string());
    Ok(Said::good(format!("{pod} takes objects again, with weight {weight}")))
}

/// Reads the Lease of a replica.
async fn read(cluster: &Cluster, pod: &str) -> anyhow::Result<Lease> {
    let (namespace, name) = cluster.pod(pod);
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), namespace);
    leases.get(name).await.map_err(|error| match code(&error) {
        Some(404) => anyhow::anyhow!("no replica {namespace}/{name}: `ringside status RING` lists those of a ring"),
        _ => anyhow::anyhow!("can't read Lease {namespace}/{name}: {}", explain(&error)),
    })
}

/// Writes or removes the mark on the replica's Lease.
async fn mark(cluster: &Cluster, lease: &Lease, mark: Option<&str>) -> anyhow::Result<Lease> {
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {LEASE_DRAINED: mark}}}));
    let patched = leases.patch(&name, &PatchParams::default(), &patch).await;
    patched.map_err(|error| anyhow::anyhow!("can't write Lease {namespace}/{name}: {}", explain(&error)))
}

fn ring_of(lease: &Lease) -> anyhow::Result<RingName> {
    let ring = labels::ring_of(&lease.metadata);
    Ok(ring.ok_or_else(|| anyhow::anyhow!("this Lease is no replica's: it has no label of a ring"))??)
}

/// Whether another replica than this one takes objects.
fn has_receiver(replicas: &[Replica], drained: &str) -> bool {
    replicas.iter().any(|it| {
        it.name.as_str() != drained
            && it.weight > Weight::ZERO
            && it.state.is_available()
            && it.controller == Controller::Working
    })
}

/// Follows the ring until no object of its resources has the replica's label. Says the count whenever it is another one.
async fn until_empty(client: &Client, ring: &RingName, name: &str) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", ring.name()));
    let changes =
        watcher(Api::<Ring>::all_with(client.clone(), &ring.kind()), config).default_backoff().applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut told = None;
    while let Some(change) = changes.next().await {
        let ring = match change {
            Ok(ring) => ring,
            Err(error) => {
                rings::go_on(&error)?;
                continue;
            }
        };
        let left = left(&ring, name);
        if let Some(left) = left.filter(|left| told.replace(*left) != Some(*left)) {
            say(left);
        }
        // Counts are some seconds old, and of very many replicas the ring counts those with the most.
        if left.is_none_or(|left| left == 0) && !has_objects(client, &ring, name).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether an object of the ring's resources has the replica's label.
async fn has_objects(client: &Client, ring: &Ring, name: &str) -> anyhow::Result<bool> {
    let labels = RingLabels::of(&ring.name()?);
    let one = ListParams::default().labels(&format!("{}={name}", labels.shard)).limit(1);
    for resource in ring.spec.families().keys() {
        let api = discovery::resource(client, resource).await?.api;
        let found = Api::<DynamicObject>::all_with(client.clone(), &api).list_metadata(&one).await;
        let found = found.map_err(|error| anyhow::anyhow!("can't list {resource}: {}", explain(&error)))?;
        if !found.items.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many objects the replica has; none where the ring does not count it.
fn left(ring: &Ring, name: &str) -> Option<i64> {
    rings::objects_of(ring.status.as_ref()?.objects.as_ref()?, name)
}

#[allow(clippy::print_stderr, reason = "progress, beside the result")]
fn say(left: i64) {
    eprintln!("{left} objects left");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::rings::tests::lease;

    #[test]
    fn drained_replicas_and_those_of_weight_zero_receive_nothing() {
        let of = |annotations: &serde_json::Value| {
            let all = [lease("a", "ready", &json!({})), lease("b", "ready", annotations)];
            has_receiver(&rings::replicas(&Ring::default(), &all), "a")
        };
        assert!(of(&json!({})));
        assert!(!of(&json!({"ringside.dev/weight": "0"})) && !of(&json!({LEASE_DRAINED: "true"})));
    }

    #[test]
    fn objects_left_are_those_that_the_ring_counts() {
        let ring: Ring = serde_json::from_value(json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": "websites"},
            "spec": {"resources": []}, "status": {"objects": {"shards": [{"name": "a", "objects": 3}]}},
        }))
        .unwrap();
        assert_eq!((left(&ring, "a"), left(&ring, "b")), (Some(3), Some(0)));
        assert_eq!(left(&Ring::default(), "a"), None);
        assert!(ring_of(&lease("a", "ready", &json!({}))).is_ok() && ring_of(&Lease::default()).is_err());
    }
}
