//! What the sharder keeps of an object while it decides about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ringside_ring::{Ownership, RingLabels, partition::leading_owners, patch::Seen};

/// An object's identity, owner and version: nothing that grows with the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Target {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) shard: Option<String>,
    pub(crate) drain: Option<String>,
    pub(crate) has_labels: bool,
    /// The owner references that may say what it follows: its controller alone, or all where none controls it.
    pub(crate) owners: Vec<OwnerReference>,
}

impl Target {
    /// Takes it out of the metadata of an object.
    pub(crate) fn of(metadata: &ObjectMeta, labels: &RingLabels) -> Self {
        let ownership = labels.ownership(metadata.labels.as_ref());
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            shard: ownership.shard.map(str::to_owned),
            drain: ownership.drain.map(str::to_owned),
            has_labels: metadata.labels.is_some(),
            owners: leading_owners(metadata.owner_references.as_deref().unwrap_or_default()).to_vec(),
        }
    }

    /// Who works on it.
    pub(crate) fn ownership(&self) -> Ownership<'_> {
        Ownership { shard: self.shard.as_deref(), drain: self.drain.as_deref() }
    }

    /// Whether what it was known to follow still counts among its owners.
    pub(crate) fn still_follows(&self, before: &Self) -> bool {
        let is_named = |owner: &OwnerReference| self.owners.iter().any(|now| now.uid == owner.uid);
        before.owners.iter().all(is_named) && (!before.owners.is_empty() || self.owners.is_empty())
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{namespace}{}", self.name)
    }

    /// What a patch of it can rely on.
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            uid: &self.uid,
            resource_version: &self.resource_version,
            ownership: self.ownership(),
            has_labels: self.has_labels,
        }
    }
}
