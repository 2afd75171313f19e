//! What the audit log says about one write.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use ringside_ring::{ResourceVersion, RingLabels, cluster_ring::GroupResource, partition::owner_of};

use crate::checker::Uid;

/// A write that the API server carried out, or a create that it refused because there is such an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The request's audit id, which its client may choose.
    pub id: String,
    /// When the request arrived.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
    /// The shard whose Pod asked for it; none where another client did.
    pub shard: Option<String>,
    /// Whether the sharder asked for it.
    pub by_sharder: bool,
    /// What it did.
    pub change: Change,
    /// The resource.
    pub resource: GroupResource,
    /// What came out.
    pub object: Object,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was not there before.
    Created,
    /// It was changed; perhaps to what it was.
    Updated,
    /// It is gone.
    Deleted,
    /// It was to be created, and there was one already.
    Refused,
    /// Unknown: the client was gone before the answer, or there was none in time.
    Unanswered,
    /// Nothing: the API server's fence refused it.
    Barred,
}

/// A version that a watch showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When.
    pub at: Timestamp,
    /// The resource.
    pub resource: GroupResource,
    /// The object.
    pub object: Object,
}

/// An object after a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its uid; empty where the write was refused.
    pub uid: Uid,
    /// Its namespace and name.
    pub name: String,
    /// Its resourceVersion; none when it is gone.
    pub version: Option<ResourceVersion>,
    /// Its labels of the ring; none where the answer did not show them.
    pub labels: Option<Labels>,
    /// The uid of its controller.
    pub controller: Option<Uid>,
    /// Who holds it, when it is a Lease.
    pub holder: Option<String>,
}

/// The labels of a ring on an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The value of its shard label.
    pub shard: Option<String>,
    /// The value of its drain label.
    pub drain: Option<String>,
}

impl Object {
    /// What an object's metadata say; none of what has no uid, name or version.
    pub fn of(metadata: &ObjectMeta, labels: &RingLabels) -> Option<Self> {
        let ownership = labels.ownership(metadata.labels.as_ref());
        let [shard, drain] = [ownership.shard, ownership.drain].map(|label| label.map(str::to_owned));
        Some(Self {
            uid: metadata.uid.clone()?,
            name: format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref()?),
            version: Some(metadata.resource_version.as_deref()?.parse().ok()?),
            labels: Some(Labels { shard, drain }),
            controller: owner_of(metadata.owner_references.as_deref().unwrap_or_default(), |_| true)
                .one()
                .map(|owner| owner.uid.clone()),
            holder: None,
        })
    }
}
