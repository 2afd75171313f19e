//! Leases of replicas of a ring that is gone: no sharder removes them any more.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Preconditions},
};
use ringside_ring::{
    RingName,
    cluster_ring::GroupResource,
    lease::{LeaseFacts, LeaseOwner},
};
use ringside_runtime::explain::{code, explain};

use super::belongings::{Belonging, Outcome};

/// Why a Lease stays.
const HELD: &str = "kept, as its Pod is there: run this again when that has ended";

/// Deletes the Leases of replicas that have ended, or only looks for them. A killed replica's names it as the holder for good:
/// it has ended where its Pod is gone.
pub(crate) async fn remove(client: &Client, ring: &RingName, dry_run: bool) -> Vec<Belonging> {
    let of_ring = ListParams::default().labels(&ring.lease_selector());
    let listed = match Api::<Lease>::all(client.clone()).list(&of_ring).await {
        Ok(listed) => listed.items,
        Err(error) => return vec![belonging("of the ring's replicas".to_owned(), Outcome::Failed(explain(&error)))],
    };
    let mut found = Vec::new();
    for lease in listed.into_iter().filter(|lease| LeaseOwner::of(lease, None) == LeaseOwner::Shard) {
        let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
        let pod = match LeaseFacts::of(&lease).held_by_shard {
            true => Api::<Pod>::namespaced(client.clone(), &namespace).get_metadata_opt(&name).await,
            false => Ok(None),
        };
        let outcome = match pod {
            // Its replica works.
            Ok(Some(_)) if dry_run => continue,
            Ok(Some(_)) => Outcome::Kept(HELD),
            Ok(None) if dry_run => Outcome::Removed,
            Ok(None) => delete(client, &namespace, &lease).await.into(),
            Err(error) => Outcome::Failed(explain(&error)),
        };
        found.push(belonging(format!("{namespace}/{name}"), outcome));
    }
    found
}

/// Deletes the Lease as it was read, so that no replica loses one that it acquired since; returns why it is still there.
async fn delete(client: &Client, namespace: &str, lease: &Lease) -> Option<String> {
    let preconditions = Preconditions { uid: lease.uid(), resource_version: lease.resource_version() };
    let as_read = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match Api::<Lease>::namespaced(client.clone(), namespace).delete(&lease.name_any(), &as_read).await {
        Err(error) if code(&error) != Some(404) => Some(explain(&error)),
        _ => None,
    }
}

fn belonging(name: String, outcome: Outcome) -> Belonging {
    let resource = GroupResource { group: "coordination.k8s.io".to_owned(), resource: "leases".to_owned() };
    Belonging { resource, name, outcome }
}
