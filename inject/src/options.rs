//! What is added to a pod template, and how.

use ringside_ring::RingName;

use crate::Resources;

/// What is added.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The ring that the pods join.
    pub ring: RingName,
    /// The proxy's image.
    pub image: String,
    /// The containers that talk to the proxy; all of them where none is named.
    pub containers: Vec<String>,
    /// Further options of the proxy, as on its command line.
    pub options: Vec<String>,
    /// Where the proxy listens, if not at its defaults.
    pub ports: Option<Ports>,
    /// Whether others than the pod may read the proxy's metrics.
    pub metrics: bool,
    /// How the container is added.
    pub sidecar: Sidecar,
    /// What it asks of its node.
    pub resources: Resources,
}

/// How the proxy's container is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// As an init container that goes on: it starts before the controller, and ends after it. From Kubernetes 1.29.
    Native,
    /// As a container beside the controller's.
    Plain,
}

impl Sidecar {
    /// How it is added for an API server of this version.
    #[must_use]
    pub fn for_server(major: &str, minor: &str) -> Self {
        // Providers write the minor version with a plus sign behind it.
        let number = |text: &str| text.trim_end_matches(|sign: char| !sign.is_ascii_digit()).parse().unwrap_or(0);
        if (number(major), number(minor)) >= (1, 29) { Self::Native } else { Self::Plain }
    }
}

/// The ports of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// For the controller.
    pub listen: u16,
    /// For probes and metrics.
    pub admin: u16,
}

impl Ports {
    pub(super) const DEFAULT: Self = Self { listen: 6443, admin: 6444 };

    /// The ports of a ring's proxies on the network of their node, where API servers have the default ones. Below those of Services
    /// and of outgoing connections.
    pub(super) fn on_node(ring: &RingName) -> Self {
        let hash = ring.to_string().bytes().fold(5381_u16, |hash, byte| hash.wrapping_mul(33) ^ u16::from(byte));
        let listen = 20_000 + hash % 4_000 * 2;
        Self { listen, admin: listen + 1 }
    }
}
