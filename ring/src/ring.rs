//! A ring of either kind, as the API server has it.

use std::borrow::Cow;

use k8s_openapi::{ClusterResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::Deserialize;

use crate::{
    RingKind, RingName,
    cluster_ring::{ClusterRing, ClusterRingSpec, ClusterRingStatus},
    name::InvalidName,
};

/// A `ClusterRing` or a `ControllerRing`. What is read without its kind is refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Ring {
    /// Which of the two it is.
    pub kind: RingKind,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is shared; nothing where it is absent, as in definitions that are not ours.
    #[serde(default)]
    pub spec: ClusterRingSpec,
    /// What the sharder observed.
    pub status: Option<ClusterRingStatus>,
}

impl Ring {
    /// Its name, with its kind.
    ///
    /// # Errors
    /// When the name can't be the value of a label.
    pub fn name(&self) -> Result<RingName, InvalidName> {
        RingName::new(self.kind, self.metadata.name.as_deref().unwrap_or_default())
    }

    /// The namespaces in which Leases make shards: as the spec says, or else the sharder. None where neither says it.
    pub fn shard_namespaces(&self) -> Option<&[String]> {
        match &*self.spec.shard_namespaces {
            [] => self.status.as_ref()?.shard_namespaces.as_deref(),
            named => Some(named),
        }
    }

    /// Whether a Lease in this namespace may be a shard's.
    pub fn has_shards_in(&self, namespace: &str) -> bool {
        self.shard_namespaces().is_none_or(|named| named.iter().any(|one| one == namespace))
    }
}

impl From<ClusterRing> for Ring {
    fn from(ClusterRing { metadata, spec, status }: ClusterRing) -> Self {
        Self { kind: RingKind::ClusterRing, metadata, spec, status }
    }
}

impl Resource for Ring {
    type DynamicType = RingKind;
    type Scope = ClusterResourceScope;

    fn kind(kind: &RingKind) -> Cow<'_, str> {
        kind.names().kind.into()
    }

    fn group(_: &RingKind) -> Cow<'_, str> {
        ClusterRing::group(&())
    }

    fn version(_: &RingKind) -> Cow<'_, str> {
        ClusterRing::version(&())
    }

    fn plural(kind: &RingKind) -> Cow<'_, str> {
        kind.names().plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn spec_says_where_shards_are_and_else_the_status() {
        let ring = |spec: &[&str], status: Option<&[&str]>| -> Ring {
            let status = status.map_or(json!({}), |status| json!({"shardNamespaces": status}));
            let spec = json!({"resources": [], "shardNamespaces": spec});
            serde_json::from_value(json!({"kind": "ClusterRing", "metadata": {}, "spec": spec, "status": status}))
                .unwrap()
        };
        let here = |spec: &[&str], status| ["a", "b"].map(|namespace| ring(spec, status).has_shards_in(namespace));
        assert_eq!(here(&[], None), [true, true]);
        assert_eq!(here(&[], Some(&["a"])), [true, false]);
        assert_eq!(here(&["b"], Some(&["a"])), [false, true]);
        assert_eq!(here(&[], Some(&[])), [false, false]);
    }

    #[test]
    fn a_ring_says_its_kind() {
        let read = |kind: &str| {
            let ring = json!({"kind": kind, "metadata": {"name": "example"}, "spec": {"resources": []}});
            serde_json::from_value::<Ring>(ring).map(|ring| ring.name().unwrap().to_string())
        };
        assert_eq!(read("ClusterRing").unwrap(), "example");
        assert_eq!(read("ControllerRing").unwrap(), "controllerring/example");
        assert!(read("Deployment").is_err());
        let bare = serde_json::from_value::<Ring>(json!({"kind": "ControllerRing", "metadata": {"name": "example"}}));
        assert_eq!(bare.unwrap().spec, ClusterRingSpec::default());
        let without = json!({"metadata": {"name": "example"}, "spec": {"resources": []}});
        assert!(serde_json::from_value::<Ring>(without).is_err());
        assert_eq!(Ring::api_version(&RingKind::ControllerRing), "sharding.timebertt.dev/v1alpha1");
    }
}
