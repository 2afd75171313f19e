//! Who works on the owner of a child at this moment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use ringside_ring::ShardName;

use crate::{leases::Leases, resources::Resource, snapshot::Snapshot, target::Target};

/// The owner as it is now. None when there is no such object any more.
pub(crate) async fn read(
    client: &Client,
    snapshot: &Snapshot,
    resource: &Resource,
    owner: &OwnerReference,
    namespace: Option<&str>,
) -> Result<Option<Target>, kube::Error> {
    let found = resource.objects(client, namespace).get_opt(&owner.name).await?;
    // One of the same name and another uid is another object.
    let found = found.filter(|found| found.metadata.uid.as_deref() == Some(&owner.uid));
    Ok(found.map(|found| Target::of(&found.metadata, &snapshot.labels)))
}

/// The available shard that works on the owner, or is about to let go of it. None when there is no such object any more,
/// or no available shard has it.
///
/// A shard that is not available as far as this replica knows may have come back: then its controller already creates
/// children, and only the API server can tell.
pub(crate) async fn live_shard(
    (client, leases): (&Client, &Leases),
    snapshot: &Snapshot,
    resource: &Resource,
    owner: &OwnerReference,
    namespace: Option<&str>,
) -> Result<Option<ShardName>, kube::Error> {
    let owner = read(client, snapshot, resource, owner, namespace).await?;
    let Some(shard) = owner.and_then(|owner| owner.shard) else { return Ok(None) };
    let available = snapshot.members.is_available(&shard) || leases.confirm(client, &snapshot.ring, &shard).await?;
    Ok(if available { shard.parse().ok() } else { None })
}
