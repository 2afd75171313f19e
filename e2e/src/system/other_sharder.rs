//! A sharder that is not ours: a small one after the thesis.

use std::{path::Path, process::Command};

use super::{Plane, SystemError};
use crate::{manifests, ports::free_port, process::Process, shard_identity::ShardIdentity};

const NAMESPACE: &str = "ringside-system";
const SERVICE_ACCOUNT: &str = "ringside-sharder";
/// What it may do besides what ours may: it creates its webhook by POST, which RBAC can't limit to a name.
const MORE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: other-sharder, labels: {ringside.dev/aggregate-to-sharder: 'true'}}
rules: [{apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations], verbs: [create]}]
";
const NAME: &str = "other-sharder";

/// A running sharder.
#[derive(Debug)]
pub struct OtherSharder {
    process: Process,
    _identity: ShardIdentity,
}

impl OtherSharder {
    /// Starts it for one ring.
    pub(super) async fn start(plane: &Plane, program: &Path, ring: &str) -> Result<Self, SystemError> {
        let client = plane.control_plane.client();
        manifests::apply(&client, &manifests::parse(MORE)?).await?;
        let dir = plane.folder.path();
        let identity = ShardIdentity::create(&plane.control_plane, NAMESPACE, SERVICE_ACCOUNT, NAME, dir).await?;
        let webhook_port = free_port().map_err(SystemError::NoFreePort)?;
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", identity.kubeconfig())
            .args(["--clusterring", ring])
            .args(["--webhook-listen", &format!("127.0.0.1:{webhook_port}")]);
        let process = Process::spawn(NAME, &command, &dir.join(format!("{NAME}.log")))?;
        Ok(Self { process, _identity: identity })
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Fails when it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        Ok(self.process.check_running()?)
    }
}
