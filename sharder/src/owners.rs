//! Who works on the owner of a child at this moment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use ringside_ring::ShardName;

use crate::{resources::Resource, snapshot::Snapshot};

/// The available shard that an object is labelled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveShard {
    pub(crate) shard: ShardName,
    /// Whether it was asked to let go of the object.
    pub(crate) draining: bool,
}

/// Reads the owner's labels. None when there is no such object any more, or no available shard works on it.
pub(crate) async fn live_shard(
    client: &Client,
    snapshot: &Snapshot,
    resource: &Resource,
    owner: &OwnerReference,
    namespace: Option<&str>,
) -> Result<Option<LiveShard>, kube::Error> {
    let found = resource.objects(client, namespace).get_opt(&owner.name).await?;
    // One of the same name and another uid is another object.
    let Some(found) = found.filter(|found| found.metadata.uid.as_deref() == Some(&owner.uid)) else { return Ok(None) };
    let ownership = snapshot.labels.ownership(found.metadata.labels.as_ref());
    let shard = ownership.shard.filter(|shard| snapshot.members.is_available(shard));
    Ok(shard.and_then(|shard| Some(LiveShard { shard: shard.parse().ok()?, draining: ownership.drain.is_some() })))
}
