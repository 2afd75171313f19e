//! What commands about one ring have in common: the ring, and the way to its API server.

use std::{path::PathBuf, time::Duration};

use kube::Client;
use ringside_ring::RingName;
use ringside_runtime::{
    client::{ApiServer, ConnectError},
    config::Faults,
};

/// How long a request may go without any byte of an answer: longer than the API server may take (CONTROL-PLANE, 13).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);

/// The options as they were given.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OfRing {
    /// Name of the ClusterRing.
    #[arg(long)]
    ring: String,
    /// Kubeconfig file; without it the service account of the pod is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl OfRing {
    /// The ring; what is wrong with its name is noted.
    pub(super) fn check(&self, faults: &mut Faults) -> Option<RingName> {
        faults.check("--ring", self.ring.parse())
    }

    /// A client of the API server.
    pub(super) fn connect(&self) -> Result<Client, ConnectError> {
        ApiServer::find(self.kubeconfig.as_deref(), crate::AGENT)?.client_within(REQUEST_TIMEOUT)
    }
}
