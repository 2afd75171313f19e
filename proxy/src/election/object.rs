//! What elections are held by: Leases, and ConfigMaps with the record in an annotation.
//!
//! A ConfigMap is a lock by the annotation alone. Older releases of client-go, fabric8, the Python client and
//! client-java write the same one; what they put into the record differs, so nothing but the holder is read (CLIENTS). The ConfigMap of
//! operator-sdk's "leader for life" has no record, but a Pod as its owner: it is not known here.

use std::{fmt, time::Duration};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use ringside_ring::{cluster_ring::GroupResource, labels::ring_of, lease::holder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{LASTS, Record};

/// The annotation with the election record (`LeaderElectionRecordAnnotationKey` of client-go).
pub(super) const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";
/// Of it what stands the same in JSON, where a slash may be escaped, and in a JSON pointer, where it must be.
const RECORD_DOMAIN: &[u8] = b"control-plane.alpha.kubernetes.io";

/// The kinds of objects that an election is held by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// `leases.coordination.k8s.io`.
    Lease,
    /// `configmaps`, with the record in an annotation.
    ConfigMap,
}

/// A lock's kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockName {
    /// The kind.
    pub kind: Kind,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for LockName {
    /// As the API server names an object in its messages: `leases.coordination.k8s.io "lock"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.kind.resource(), self.name)
    }
}

impl Kind {
    /// The kind that a resource is of, if elections are held by it.
    pub fn of(resource: &GroupResource) -> Option<Self> {
        [Self::Lease, Self::ConfigMap]
            .into_iter()
            .find(|kind| kind.names() == (resource.group.as_str(), resource.resource.as_str()))
    }

    /// Its resource.
    pub fn resource(self) -> GroupResource {
        let (group, resource) = self.names();
        GroupResource { group: group.to_owned(), resource: resource.to_owned() }
    }

    /// Group and plural.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Lease => ("coordination.k8s.io", "leases"),
            Self::ConfigMap => ("", "configmaps"),
        }
    }

    /// `apiVersion` and `kind` of an object.
    pub(super) fn type_meta(self) -> (&'static str, &'static str) {
        match self {
            Self::Lease => ("coordination.k8s.io/v1", "Lease"),
            Self::ConfigMap => ("v1", "ConfigMap"),
        }
    }

    /// Whether a body may have to do with an election: for what surely has not, nothing is decoded.
    pub(super) fn may_be_in(self, body: &[u8]) -> bool {
        match self {
            Self::Lease => true,
            Self::ConfigMap => body.windows(RECORD_DOMAIN.len()).any(|part| part == RECORD_DOMAIN),
        }
    }

    /// An object of this kind in JSON.
    pub(super) fn read(self, object: Value) -> serde_json::Result<Object> {
        match self {
            Self::Lease => serde_json::from_value(object).map(Object::Lease),
            Self::ConfigMap => serde_json::from_value(object).map(Object::ConfigMap),
        }
    }
}

/// An object of one of these kinds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Object {
    Lease(Lease),
    ConfigMap(ConfigMap),
}

impl Object {
    /// One that has nothing but a version.
    pub(super) fn bare(kind: Kind, version: u64) -> Self {
        let object = match kind {
            Kind::Lease => Self::Lease(Lease::default()),
            Kind::ConfigMap => Self::ConfigMap(ConfigMap::default()),
        };
        object.of(version)
    }

    /// The same with this version.
    pub(super) fn of(mut self, version: u64) -> Self {
        self.metadata_mut().resource_version = Some(version.to_string());
        self
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Lease(_) => Kind::Lease,
            Self::ConfigMap(_) => Kind::ConfigMap,
        }
    }

    pub(super) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Lease(lease) => &lease.metadata,
            Self::ConfigMap(map) => &map.metadata,
        }
    }

    pub(super) fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Lease(lease) => &mut lease.metadata,
            Self::ConfigMap(map) => &mut map.metadata,
        }
    }

    /// The length of its text, about what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len())
    }

    /// Who leads, by the record in it.
    pub(super) fn holder(&self) -> Option<String> {
        match self {
            Self::Lease(lease) => holder(lease.spec.as_ref()).map(str::to_owned),
            Self::ConfigMap(_) => Some(Record::of_object(self)?.holder()?.to_owned()),
        }
    }

    /// How long it lasts without renewal.
    pub(super) fn lasts(&self) -> Duration {
        match self {
            // Nothing of a Lease need be read for that.
            Self::Lease(lease) => {
                let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
                let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
                seconds.map_or(LASTS, Duration::from_secs)
            }
            Self::ConfigMap(_) => Record::of_object(self).map_or(LASTS, |record| record.lasts()),
        }
    }

    /// Whether it shows that it is an election's. A Lease can be much else: node heartbeats and the like have neither an
    /// `acquireTime` nor transitions.
    pub(super) fn is_record(&self) -> bool {
        match self {
            Self::Lease(lease) => {
                let spec = lease.spec.as_ref();
                spec.is_some_and(|spec| spec.acquire_time.is_some() && spec.lease_transitions.is_some())
            }
            Self::ConfigMap(_) => true,
        }
    }

    /// Whether it is the Lease of a shard: those have the label of a ring, or this shard's name.
    pub(super) fn is_of_a_shard(&self, shard: &str) -> bool {
        let Self::Lease(Lease { metadata, .. }) = self else { return false };
        ring_of(metadata).is_some() || metadata.name.as_deref() == Some(shard)
    }
}
