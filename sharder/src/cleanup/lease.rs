//! Leases of replicas of a ring that is gone: no sharder removes them any more.

use k8s_openapi::api::coordination::v1::Lease;
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

use super::belongings::Belonging;

/// Deletes the Leases that no replica holds, or only looks for them. One that is held stays: its replica works.
pub(crate) async fn remove(client: &Client, ring: &RingName, dry_run: bool) -> Vec<Belonging> {
    let of_ring = ListParams::default().labels(&ring.lease_selector());
    let listed = match Api::<Lease>::all(client.clone()).list(&of_ring).await {
        Ok(listed) => listed.items,
        Err(error) => return vec![belonging("of the ring's replicas".to_owned(), Some(explain(&error)))],
    };
    let is_free =
        |lease: &Lease| LeaseOwner::of(lease, None) == LeaseOwner::Shard && !LeaseFacts::of(lease).held_by_shard;
    let mut found = Vec::new();
    for lease in listed.into_iter().filter(is_free) {
        let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
        let fault = if dry_run { None } else { delete(client, &namespace, &lease).await };
        found.push(belonging(format!("{namespace}/{name}"), fault));
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

fn belonging(name: String, fault: Option<String>) -> Belonging {
    let resource = GroupResource { group: "coordination.k8s.io".to_owned(), resource: "leases".to_owned() };
    Belonging { resource, name, fault }
}
