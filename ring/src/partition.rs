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
    references?.iter().find(|reference| reference.controls())
}

/// The owner references of an object that may say what it follows: its controller alone, or all where none controls it.
pub fn leading_owners<R: Controls>(references: &[R]) -> &[R] {
    match references.iter().position(R::controls) {
        Some(at) => &references[at..=at],
        None => references,
    }
}

/// What an object of a controlled resource follows (CONTRACT, "owner"): its controller; without one, the only owner of a kind of the
/// ring.
pub fn owner_of<R: Controls>(references: &[R], is_of_ring: impl Fn(&R) -> bool) -> Owner<&R> {
    let leading = leading_owners(references);
    let mut owners = leading.iter().filter(|owner| owner.controls() || is_of_ring(owner));
    match (owners.next(), owners.next()) {
        (None, _) => Owner::None,
        (Some(one), None) => Owner::One(one),
        (Some(_), Some(_)) => Owner::Several,
    }
}

/// What an object of a controlled resource follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<R> {
    /// Nothing: it has no owner that counts.
    None,
    /// This one, which may be outside of the ring where it controls the object.
    One(R),
    /// Undecided: several owners are of the ring, and none controls it.
    Several,
}

impl<R> Owner<R> {
    /// The one that it follows.
    pub fn one(self) -> Option<R> {
        match self {
            Self::One(owner) => Some(owner),
            Self::None | Self::Several => None,
        }
    }
}

/// An owner reference, in whichever form it was read.
pub trait Controls {
    /// Whether it says that the owner controls the object.
    fn controls(&self) -> bool;
}

impl Controls for OwnerReference {
    fn controls(&self) -> bool {
        self.controller == Some(true)
    }
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

    #[test]
    fn an_object_follows_its_controller_or_else_its_only_owner_of_the_ring() {
        let reference = |name: &str| OwnerReference {
            name: name.trim_end_matches('!').into(),
            kind: if name.starts_with("other") { "Other" } else { "Website" }.into(),
            controller: name.ends_with('!').then_some(true),
            ..OwnerReference::default()
        };
        // `!` controls; what is `other` is of a kind outside of the ring.
        for (names, follows) in [
            (&[][..], Owner::None),
            (&["a"], Owner::One("a")),
            (&["other"], Owner::None),
            (&["other", "a"], Owner::One("a")),
            (&["a", "b"], Owner::Several),
            (&["a", "b!"], Owner::One("b")),
            (&["a", "other!"], Owner::One("other")),
            (&["a", "b", "c!"], Owner::One("c")),
        ] {
            let references: Vec<_> = names.iter().map(|name| reference(name)).collect();
            let found = match owner_of(&references, |owner| owner.kind == "Website") {
                Owner::One(owner) => Owner::One(&*owner.name),
                Owner::None => Owner::None,
                Owner::Several => Owner::Several,
            };
            assert_eq!(found, follows, "{names:?}");
        }
    }
}
