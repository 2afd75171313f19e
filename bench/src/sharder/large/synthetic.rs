//! Objects of a ring that is too large for etcd here: each is made from its number when it is sent.

use std::fmt;

use ringside_e2e::system::NAMESPACE;
use ringside_ring::{HashRing, PartitionKey, RingLabels, ShardName, placement::DEFAULT_TOKENS_PER_SHARD};

use crate::sharder::objects::{Shape, child, root};

/// The version of the first of them.
const FIRST_VERSION: usize = 1_000;

/// Main objects, or what they control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
}

impl Kind {
    /// That of a resource, by its name in paths.
    pub(super) fn of(resource: &str) -> Option<Self> {
        match resource {
            "secrets" => Some(Self::Secret),
            "configmaps" => Some(Self::ConfigMap),
            _ => None,
        }
    }
}

/// All objects, each with the label of the shard where it belongs.
pub(super) struct Synthetic {
    shape: Shape,
    labels: RingLabels,
    ring: HashRing,
}

impl Synthetic {
    pub(super) fn new(shape: Shape, labels: RingLabels, shards: impl IntoIterator<Item = ShardName>) -> Self {
        Self { shape, labels, ring: HashRing::new(shards, DEFAULT_TOKENS_PER_SHARD) }
    }

    /// The key of the label that all of them have.
    pub(super) fn label(&self) -> &str {
        &self.labels.shard
    }

    /// How many there are of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Secret => self.shape.objects,
            Kind::ConfigMap => self.shape.objects * self.shape.children,
        }
    }

    /// How many there are of both.
    pub(super) fn total(&self) -> usize {
        self.count(Kind::Secret) + self.count(Kind::ConfigMap)
    }

    /// Later than that of each of them.
    pub(super) fn version(&self) -> usize {
        FIRST_VERSION + self.total()
    }

    /// One of a kind, in the order of their names.
    pub(super) fn object(&self, kind: Kind, number: usize) -> Object<'_> {
        Object { of: self, kind, number }
    }
}

/// An object's metadata; it is written as the API server does.
pub(super) struct Object<'a> {
    of: &'a Synthetic,
    kind: Kind,
    number: usize,
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of: Synthetic { shape, labels, ring }, kind, number } = self;
        let (family, nth) = match kind {
            Kind::Secret => (*number, None),
            Kind::ConfigMap => (number / shape.children, Some(number % shape.children)),
        };
        let owner = root(family);
        let shard = ring.owner(&PartitionKey::of("", "Secret", NAMESPACE, &owner)).map_or("", ShardName::as_str);
        let name = nth.map(|nth| child(family, nth));
        let name = name.as_deref().unwrap_or(&owner);
        // Made one family after the other.
        let first = family * (1 + shape.children);
        let place = first + nth.map_or(0, |nth| 1 + nth);
        let (uid, version, label) = (Uid(place), FIRST_VERSION + place, &labels.shard);
        write!(f, r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"name":"{name}","#,)?;
        write!(f, r#""namespace":"{NAMESPACE}","uid":"{uid}","resourceVersion":"{version}","#)?;
        write!(f, r#""creationTimestamp":"2026-06-01T12:00:00Z","labels":{{"app":"bench","{label}":"{shard}"}},"#)?;
        if nth.is_some() {
            let uid = Uid(first);
            write!(f, r#""ownerReferences":[{{"apiVersion":"v1","kind":"Secret","name":"{owner}","uid":"{uid}","#)?;
            f.write_str(r#""controller":true}],"#)?;
        }
        f.write_str(MANAGED)
    }
}

/// Who wrote it, at the end of the metadata.
const MANAGED: &str = concat!(
    r#""managedFields":[{"manager":"bench","operation":"Update","apiVersion":"v1","time":"2026-06-01T12:00:00Z","#,
    r#""fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:token":{}},"#,
    r#""f:metadata":{"f:labels":{".":{},"f:app":{}}}}}]}}"#,
);

/// A UUID of version 4, another one for each number.
struct Uid(usize);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All bits of the first are in it, and no two numbers have the same.
        let first = mixed(self.0 as u64);
        let last = mixed(first) >> 16;
        let [a, b] = [first >> 32, first >> 16 & 0xffff];
        write!(f, "{a:08x}-{b:04x}-4{:03x}-a{:03x}-{last:012x}", first >> 4 & 0xfff, first & 0xfff)
    }
}

/// Another number for each, without order (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use kube::{
        ResourceExt as _,
        api::DynamicObject,
        core::{PartialObjectMeta, PartialObjectMetaExt as _},
    };
    use ringside_e2e::system::RING;
    use ringside_ring::partition::controller_of;

    use super::*;

    pub(in crate::sharder) fn synthetic(objects: usize) -> Synthetic {
        let shards = ["a", "b", "c"].map(|name| name.parse().unwrap());
        Synthetic::new(Shape { objects, children: 2 }, RingLabels::of(&RING.parse().unwrap()), shards)
    }

    #[test]
    fn a_child_has_the_identity_of_its_owner_in_its_reference_and_is_beside_it() {
        let all = synthetic(1_000);
        let read = |kind, number| -> PartialObjectMeta<DynamicObject> {
            serde_json::from_str(&all.object(kind, number).to_string()).unwrap()
        };
        let (mut uids, mut versions, mut shards) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for number in 0..all.count(Kind::ConfigMap) {
            let (owner, child) = (read(Kind::Secret, number / 2), read(Kind::ConfigMap, number));
            let expected = owner.metadata.clone().into_response_partial::<k8s_openapi::api::core::v1::Secret>();
            let reference = controller_of(child.metadata.owner_references.as_deref()).unwrap();
            assert_eq!((&reference.name, reference.uid.len()), (&owner.name_any(), 36));
            assert_eq!(reference.uid, expected.uid().unwrap());
            assert_eq!(child.labels(), owner.labels());
            shards.insert(owner.labels()[all.label()].clone());
            for object in [owner, child] {
                uids.insert(object.uid().unwrap());
                versions.insert(object.resource_version().unwrap().parse::<usize>().unwrap());
            }
        }
        assert_eq!((uids.len(), versions.len(), shards.len()), (all.total(), all.total(), 3));
        assert!(versions.last() < Some(&all.version()));
    }
}
