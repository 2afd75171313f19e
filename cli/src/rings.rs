//! What the API server has of a ring: the ring itself, and its replicas as their Leases show them.

use std::collections::BTreeMap;

use anyhow::anyhow;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams, runtime::watcher};
use ringside_ring::{
    Controller, Grace, Members, Ring, RingKind, RingName, ShardName, Weight,
    cluster_ring::{NAMED_SHARDS, ObjectCounts},
    labels::{LEASE_STATE, LEASE_VERSION, ring_of},
    lease::{LeaseFacts, LeaseOwner, ShardState, annotation, group},
    members::Member,
    weight::is_drained,
};
use ringside_runtime::explain::{code, explain, explain_watch};
use ringside_sharder::ELECTION;

/// Reads a ring.
///
/// # Errors
/// When there is none, or it can't be read.
pub async fn read(client: &Client, name: &RingName) -> anyhow::Result<Ring> {
    let (titled, plural) = (name.titled(), name.kind().names().plural);
    Api::<Ring>::all_with(client.clone(), &name.kind()).get(name.name()).await.map_err(|error| match code(&error) {
        Some(404) => anyhow!("there is no {titled}: `kubectl get {plural}` lists those that there are"),
        _ => anyhow!("can't read {titled}: {}", explain(&error)),
    })
}

/// Reads all rings, of each kind that the API server knows. An install of before may have the older kind alone.
///
/// # Errors
/// When they can't be listed, or the API server knows none.
pub async fn read_all(client: &Client) -> anyhow::Result<BTreeMap<RingKind, Vec<Ring>>> {
    let mut rings = BTreeMap::new();
    for kind in RingKind::ALL {
        match Api::<Ring>::all_with(client.clone(), &kind).list(&ListParams::default()).await {
            Ok(listed) => drop(rings.insert(kind, listed.items)),
            Err(error) if kind == RingKind::ControllerRing && code(&error) == Some(404) => {}
            Err(error) if kind == RingKind::ControllerRing && code(&error) == Some(403) => {
                say(&format!("controllerrings were not looked at: {}", explain(&error)));
            }
            Err(error) if code(&error) == Some(404) => {
                return Err(anyhow!("the API server knows no {kind}: install Ringside first"));
            }
            Err(error) => return Err(anyhow!("can't list {}: {}", kind.names().plural, explain(&error))),
        }
    }
    Ok(rings)
}

#[allow(clippy::print_stderr, reason = "beside the result")]
fn say(what: &str) {
    eprintln!("{what}");
}

/// The Leases of the sharder's own election, of all installations.
///
/// # Errors
/// When they can't be listed.
pub async fn elections(client: &Client) -> anyhow::Result<Vec<Lease>> {
    all_leases(client, &ListParams::default().fields(&format!("metadata.name={ELECTION}"))).await
}

/// The Leases of all namespaces that are selected so.
///
/// # Errors
/// When they can't be listed.
pub async fn all_leases(client: &Client, which: &ListParams) -> anyhow::Result<Vec<Lease>> {
    let found = Api::<Lease>::all(client.clone()).list(which).await;
    Ok(found.map_err(|error| anyhow!("can't list Leases: {}", explain(&error)))?.items)
}

/// Reads the Leases with the ring's label.
///
/// # Errors
/// When they can't be listed.
pub async fn leases(client: &Client, ring: &RingName) -> anyhow::Result<Vec<Lease>> {
    let of_ring = ListParams::default().labels(&ring.lease_selector());
    let leases = Api::<Lease>::all(client.clone()).list(&of_ring).await;
    let leases = leases.map_err(|error| anyhow!("can't list the Leases of the replicas: {}", explain(&error)))?;
    let is_of_ring = |lease: &Lease| ring_of(&lease.metadata).is_some_and(|of| of.is_ok_and(|of| of == *ring));
    Ok(leases.items.into_iter().filter(is_of_ring).collect())
}

/// A replica, as its Lease shows it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Its name, which is its Pod's.
    pub name: ShardName,
    /// The namespace of Lease and Pod.
    pub namespace: String,
    /// The state that the sharder judged.
    pub state: ShardState,
    /// How much of the objects it gets.
    pub weight: Weight,
    /// Whether a person drains it.
    pub drained: bool,
    /// The group of replicas that it is of.
    pub group: Option<String>,
    /// Whether its controller works.
    pub controller: Controller,
    /// How long it keeps still before a release.
    pub grace: Option<Grace>,
    /// The version of its proxy.
    pub version: Option<String>,
}

impl Replica {
    /// Reads a Lease; none where it is not a replica's.
    #[must_use]
    pub fn of(lease: &Lease) -> Option<Self> {
        let metadata = &lease.metadata;
        if LeaseOwner::of(lease, None) != LeaseOwner::Shard {
            return None;
        }
        let judged = metadata.labels.as_ref().and_then(|labels| labels.get(LEASE_STATE));
        let held = LeaseFacts::of(lease).held_by_shard;
        // No sharder has seen a Lease without the label yet.
        let unjudged = if held { ShardState::Ready } else { ShardState::Dead };
        let state = judged.and_then(|text| ShardState::ALL.into_iter().find(|state| state.as_str() == text));
        Some(Self {
            name: metadata.name.as_deref()?.parse().ok()?,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            state: state.unwrap_or(unjudged),
            weight: Weight::of(lease).unwrap_or_default(),
            drained: is_drained(lease),
            group: group(lease).map(str::to_owned),
            controller: Controller::of(lease),
            grace: Grace::promised(lease),
            version: annotation(lease, LEASE_VERSION).map(str::to_owned),
        })
    }
}

/// Returns the replicas of a ring among these Leases, by name: those in its namespaces.
#[must_use]
pub fn replicas(ring: &Ring, leases: &[Lease]) -> Vec<Replica> {
    let replicas = leases.iter().filter_map(Replica::of);
    let mut replicas: Vec<_> = replicas.filter(|replica| ring.has_shards_in(&replica.namespace)).collect();
    replicas.sort_by(|a, b| a.name.cmp(&b.name));
    replicas
}

/// How many objects the ring counts with a replica; none where it may have some that are not counted by name.
#[must_use]
pub fn objects_of(counts: &ObjectCounts, name: &str) -> Option<i64> {
    let counted = counts.shards.iter().find(|it| it.name == name).map(|it| it.objects);
    counted.or_else(|| (counts.shards.len() < NAMED_SHARDS).then_some(0))
}

/// Goes on after a watch was interrupted, as it begins again by itself; what a retry can't mend is returned.
///
/// # Errors
/// Where the caller may not watch, or there is nothing to watch.
#[allow(clippy::print_stderr, reason = "beside the result")]
pub fn go_on(error: &watcher::Error) -> anyhow::Result<()> {
    let explained = explain_watch(error);
    let refused = |error: &kube::Error| matches!(code(error), Some(401 | 403 | 404));
    match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) if refused(cause) => {
            anyhow::bail!("can't watch the ring: {explained}")
        }
        _ => eprintln!("the watch was interrupted, and begins again: {explained}"),
    }
    Ok(())
}

/// Returns the same as members of the ring.
#[must_use]
pub fn members(replicas: &[Replica]) -> Members {
    let member = |it: &Replica| Member { state: it.state, weight: it.weight, controller: it.controller };
    let groups = replicas.iter().filter_map(|it| Some((it.name.clone(), it.group.clone()?)));
    let all: Members = replicas.iter().map(|replica| (replica.name.clone(), member(replica))).collect();
    all.with_groups(groups.collect())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// A Lease that its replica holds, with this state and these annotations.
    pub(crate) fn lease(name: &str, state: &str, annotations: &serde_json::Value) -> Lease {
        let holder = if state == "dead" { "" } else { name };
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default", "annotations": annotations,
                "labels": {"alpha.sharding.timebertt.dev/clusterring": "websites", LEASE_STATE: state}},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }))
        .unwrap()
    }

    #[test]
    fn lease_shows_state_weight_and_version() {
        let leases = [
            lease("b", "ready", &json!({"ringside.dev/weight": "2", "ringside.dev/version": "0.1.0"})),
            lease("a", "dead", &json!({"ringside.dev/weight": "2", "ringside.dev/drained": "true"})),
            Lease::default(),
        ];
        let mut ring = Ring::default();
        let replicas = replicas(&ring, &leases);
        let [a, b] = &replicas[..] else { panic!("{replicas:?}") };
        assert_eq!((a.state, a.weight, a.drained), (ShardState::Dead, Weight::ZERO, true));
        assert_eq!((b.weight.to_string(), b.version.as_deref()), ("2".to_owned(), Some("0.1.0")));
        assert_eq!(members(&replicas).available().count(), 1);
        ring.spec.shard_namespaces = vec!["other".to_owned()];
        assert!(super::replicas(&ring, &leases).is_empty(), "they are elsewhere");
    }
}
