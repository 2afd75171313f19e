//! The two kinds of ring, and the names in which they differ (CONTRACT, "The newer kind").

use std::fmt;

use serde::Deserialize;

use crate::{
    RingName,
    labels::{label_suffix, short_hash},
};

/// The kind of a ring. Its spec, its status and all else are the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum RingKind {
    /// `ClusterRing`, the kind of the published contract.
    #[default]
    ClusterRing,
    /// `ControllerRing`, as the project that the contract comes from calls it since its release 0.9.
    ControllerRing,
}

/// The names of a kind of ring.
#[derive(Debug)]
pub struct Names {
    /// The kind.
    pub kind: &'static str,
    /// One of the kind, as `kubectl` takes it.
    pub singular: &'static str,
    /// The resource.
    pub plural: &'static str,
    /// The `CustomResourceDefinition`.
    pub definition: &'static str,
    /// On a shard Lease: the key of the label that names the shard's ring.
    pub lease_label: &'static str,
    /// The path of the admission webhook, before the ring's name.
    pub webhook_path: &'static str,
    /// What the names of the objects that the sharder makes for a ring begin with.
    pub made_for_prefix: &'static str,
}

const CLUSTER_RING: Names = Names {
    kind: "ClusterRing",
    singular: "clusterring",
    plural: "clusterrings",
    definition: "clusterrings.sharding.timebertt.dev",
    lease_label: "alpha.sharding.timebertt.dev/clusterring",
    webhook_path: "/webhooks/sharder/clusterring/",
    made_for_prefix: "sharding-clusterring-",
};

const CONTROLLER_RING: Names = Names {
    kind: "ControllerRing",
    singular: "controllerring",
    plural: "controllerrings",
    definition: "controllerrings.sharding.timebertt.dev",
    lease_label: "alpha.sharding.timebertt.dev/controllerring",
    webhook_path: "/webhooks/sharder/controllerring/",
    made_for_prefix: "controllerring-",
};

impl RingKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::ClusterRing, Self::ControllerRing];

    /// Its names.
    pub const fn names(self) -> &'static Names {
        match self {
            Self::ClusterRing => &CLUSTER_RING,
            Self::ControllerRing => &CONTROLLER_RING,
        }
    }

    /// The kind that a person calls so: `controllerring`, `controllerrings`, or the name of its definition.
    pub fn called(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let Names { singular, plural, definition, .. } = kind.names();
            [singular, plural, definition].iter().any(|name| name.eq_ignore_ascii_case(text))
        })
    }
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().kind)
    }
}

impl RingName {
    /// The part of the keys of the ring's labels after the `/`. At most 63 characters.
    pub(crate) fn label_name(&self) -> String {
        match self.kind() {
            RingKind::ClusterRing => label_suffix(self),
            RingKind::ControllerRing => self.name().to_owned(),
        }
    }

    /// The name of what the sharder makes for the ring: its `MutatingWebhookConfiguration`, and its policies with their bindings.
    pub fn made_for(&self) -> String {
        let prefix = self.kind().names().made_for_prefix;
        match self.kind() {
            RingKind::ClusterRing => format!("{prefix}{}-{}", short_hash(self), self.name()),
            RingKind::ControllerRing => format!("{prefix}{}", self.name()),
        }
    }

    /// The selector of the Leases of the ring's shards.
    pub fn lease_selector(&self) -> String {
        format!("{}={}", self.kind().names().lease_label, self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::RingLabels;

    #[test]
    fn names_are_those_of_the_contract() {
        let ring: RingName = "controllerring/example".parse().unwrap();
        let labels = RingLabels::of(&ring);
        assert_eq!(labels.shard, "shard.alpha.sharding.timebertt.dev/example");
        assert_eq!(labels.drain, "drain.alpha.sharding.timebertt.dev/example");
        assert_eq!(ring.made_for(), "controllerring-example");
        assert_eq!(ring.lease_selector(), "alpha.sharding.timebertt.dev/controllerring=example");
        let older: RingName = "example".parse().unwrap();
        assert_eq!(older.made_for(), "sharding-clusterring-50d858e0-example");
        assert_eq!(older.lease_selector(), "alpha.sharding.timebertt.dev/clusterring=example");
    }

    #[test]
    fn kinds_with_one_name_share_no_name_in_the_cluster() {
        let [older, newer] = RingKind::ALL.map(|kind| RingName::new(kind, "example").unwrap());
        assert_ne!(older, newer);
        assert_ne!(RingLabels::of(&older), RingLabels::of(&newer));
        assert_ne!(older.made_for(), newer.made_for());
        assert_ne!(older.lease_selector(), newer.lease_selector());
    }
}
