//! The commands `drain` and `undrain`: a replica gives away its objects, and gets objects again.

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use ringside_ring::{
    ClusterRing, RingName,
    labels::{LEASE_DRAINED, LEASE_RING},
    lease::annotation,
};
use ringside_runtime::explain::{code, explain, explain_watch};
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
    let lease = mark(&cluster, pod, Some("true")).await?;
    let ring = ring_of(&lease)?;
    let replicas = rings::replicas(&rings::leases(&cluster.client, &ring).await?);
    if !has_receiver(&replicas) {
        return Ok(Said::unhealthy(format!("{pod} is drained, but no other replica takes objects: nothing moves")));
    }
    if !wait {
        return Ok(Said::good(format!("{pod} is drained: its objects move; `ringside undrain {pod}` takes it back")));
    }
    let name = lease.metadata.name.unwrap_or_default();
    match timeout(global.timeout, until_empty(&cluster.client, &ring, &name, lease.metadata.namespace)).await {
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
    let weight = Replica::of(&mark(&cluster, pod, None).await?).map_or(String::new(), |it| it.weight.to_string());
    Ok(Said::good(format!("{pod} takes objects again, with weight {weight}")))
}

/// Writes or removes the mark on the replica's Lease.
async fn mark(cluster: &Cluster, pod: &str, mark: Option<&str>) -> anyhow::Result<Lease> {
    let (namespace, name) = cluster.split(pod);
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), namespace);
    let explained = |error: kube::Error| match code(&error) {
        Some(404) => anyhow::anyhow!("no replica {namespace}/{name}: `ringside status RING` lists those of a ring"),
        _ => anyhow::anyhow!("can't read or write Lease {namespace}/{name}: {}", explain(&error)),
    };
    ring_of(&leases.get(name).await.map_err(explained)?)?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {LEASE_DRAINED: mark}}}));
    leases.patch(name, &PatchParams::default(), &patch).await.map_err(explained)
}

fn ring_of(lease: &Lease) -> anyhow::Result<RingName> {
    let ring = lease.metadata.labels.as_ref().and_then(|labels| labels.get(LEASE_RING));
    let ring = ring.ok_or_else(|| anyhow::anyhow!("this Lease is no replica's: it has no label {LEASE_RING}"))?;
    Ok(ring.parse()?)
}

/// Whether a drained replica has somewhere to give its objects: where all have weight 0, all count alike.
fn has_receiver(replicas: &[Replica]) -> bool {
    replicas
        .iter()
        .any(|replica| !replica.drained && replica.weight > ringside_ring::Weight::ZERO && replica.state.is_available())
}

/// Follows the ring until it counts no object with the replica. Says the count whenever it is another one.
async fn until_empty(client: &Client, ring: &RingName, name: &str, namespace: Option<String>) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={ring}"));
    let changes = watcher(Api::<ClusterRing>::all(client.clone()), config).default_backoff().applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut told = None;
    while let Some(change) = changes.next().await {
        let ring = change.map_err(|error| anyhow::anyhow!("can't watch the ring: {}", explain_watch(&error)))?;
        let left = left(&ring, name);
        if let Some(left) = left.filter(|left| told.replace(*left) != Some(*left)) {
            say(left);
        }
        // The count may be one from before the mark.
        if left == Some(0) && is_marked(client, name, namespace.as_deref().unwrap_or_default()).await? {
            return Ok(());
        }
    }
    Ok(())
}

async fn is_marked(client: &Client, name: &str, namespace: &str) -> anyhow::Result<bool> {
    let lease = Api::<Lease>::namespaced(client.clone(), namespace).get_opt(name).await?;
    Ok(lease.is_none_or(|lease| annotation(&lease, LEASE_DRAINED).is_some()))
}

/// How many objects the replica has; none before they were counted.
fn left(ring: &ClusterRing, name: &str) -> Option<i64> {
    let counts = ring.status.as_ref()?.objects.as_ref()?;
    Some(counts.shards.iter().find(|it| it.name == name).map_or(0, |it| it.objects))
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
            let others = [lease("a", "ready", &json!({LEASE_DRAINED: "true"})), lease("b", "ready", annotations)];
            has_receiver(&rings::replicas(&others))
        };
        assert!(of(&json!({})));
        assert!(!of(&json!({"ringside.dev/weight": "0"})) && !of(&json!({LEASE_DRAINED: "true"})));
    }

    #[test]
    fn objects_left_are_those_that_the_ring_counts() {
        let ring: ClusterRing = serde_json::from_value(json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": "websites"},
            "spec": {"resources": []}, "status": {"objects": {"shards": [{"name": "a", "objects": 3}]}},
        }))
        .unwrap();
        assert_eq!((left(&ring, "a"), left(&ring, "b")), (Some(3), Some(0)));
        assert_eq!(left(&ClusterRing::default(), "a"), None);
        assert!(ring_of(&lease("a", "ready", &json!({}))).is_ok() && ring_of(&Lease::default()).is_err());
    }
}
