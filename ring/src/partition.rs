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
    fn only_a_controller_reference_counts() {
        let plain = OwnerReference { name: "plain".into(), ..OwnerReference::default() };
        let controller = OwnerReference { name: "boss".into(), controller: Some(true), ..OwnerReference::default() };
        assert_eq!(controller_of(None), None);
        assert_eq!(controller_of(Some(std::slice::from_ref(&plain))), None);
        assert_eq!(controller_of(Some(&[plain, controller.clone()])), Some(&controller));
    }
}
