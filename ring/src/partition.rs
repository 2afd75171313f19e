//! The key by which an object is placed on the hash ring.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use xxhash_rust::xxh64::xxh64;

/// The partition key of an object: `<group>/<kind>/<namespace>/<name>` (CONTRACT, "Assignment").
///
/// A controlled object has the key of its controller, so both fall to the same shard. The group stands
/// without its version, because an owner reference may name another version than the request. The uid
/// is not part of it: at admission of a CREATE there is none yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(String);

impl PartitionKey {
    /// The key of a main object. `namespace` is empty for a cluster-scoped one.
    pub fn of(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self(format!("{group}/{kind}/{namespace}/{name}"))
    }

    /// The key of the object that `owner` points to, from a dependent in `namespace`.
    ///
    /// An owner reference carries no namespace: the owner lives in the dependent's (`owner_namespaced`)
    /// or in none at all (Kubernetes, "Owners and Dependents").
    pub fn of_owner(owner: &OwnerReference, owner_namespaced: bool, namespace: &str) -> Self {
        let namespace = if owner_namespaced { namespace } else { "" };
        Self::of(group_of(&owner.api_version), &owner.kind, namespace, &owner.name)
    }

    /// The key that all objects have which are placed by one value: `<by>/<key>/<value>`, without `<key>` for a namespace.
    pub(crate) fn shared(by: &str, key: &str, value: &str) -> Self {
        Self(if key.is_empty() { format!("{by}/{value}") } else { format!("{by}/{key}/{value}") })
    }

    /// Where it stands on the hash ring: xxHash64 with seed 0.
    pub fn point(&self) -> u64 {
        xxh64(self.0.as_bytes(), 0)
    }

    /// The bytes that are hashed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The API group in an `apiVersion`: `apps` in `apps/v1`, empty in `v1`.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The controller among an object's owner references, if it has one. Kubernetes admits one at most.
pub fn controller_of(references: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    references?.iter().find(|reference| reference.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_its_controllers_key_whatever_version_it_names() {
        let owner = |api_version: &str| OwnerReference {
            api_version: api_version.into(),
            kind: "Deployment".into(),
            name: "web".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let key = PartitionKey::of("apps", "Deployment", "default", "web");
        assert_eq!(PartitionKey::of_owner(&owner("apps/v1"), true, "default"), key);
        assert_eq!(PartitionKey::of_owner(&owner("apps/v1beta1"), true, "default"), key);
        assert_eq!(PartitionKey::of_owner(&owner("v1"), false, "default").as_str(), "/Deployment//web");
    }

    #[test]
    fn only_a_controller_reference_counts() {
        let plain = OwnerReference { name: "plain".into(), ..OwnerReference::default() };
        let controller = OwnerReference { name: "boss".into(), controller: Some(true), ..OwnerReference::default() };
        assert_eq!(controller_of(None), None);
        assert_eq!(controller_of(Some(std::slice::from_ref(&plain))), None);
        assert_eq!(controller_of(Some(&[plain, controller.clone()])), Some(&controller));
    }
}
