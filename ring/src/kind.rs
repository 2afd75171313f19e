//! The two kinds of ring, and the names in which they differ (CONTRACT, "The newer kind").

use std::fmt;

use serde::Deserialize;

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
