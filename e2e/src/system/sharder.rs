//! A replica of the sharder.

use std::process::Command;

use super::{Ground, SystemError, probe};
use crate::{ports::free_port, process::Process, shard_identity::ShardIdentity};

const NAMESPACE: &str = "sharding-system";
const SERVICE_ACCOUNT: &str = "ringside-sharder";

/// A port where nobody listens: discard, of which nobody has heard for long.
const NOBODY: u16 = 9;

/// A running replica.
#[derive(Debug)]
pub struct Sharder {
    process: Process,
    admin_port: u16,
    _identity: ShardIdentity,
}

impl Sharder {
    /// Starts it, with the permissions of the sharder's ServiceAccount.
    pub(super) async fn start(ground: &Ground, index: usize) -> Result<Self, SystemError> {
        let name = format!("ringside-sharder-{index}");
        let dir = ground.folder.path();
        let identity = ShardIdentity::create(&ground.control_plane, NAMESPACE, SERVICE_ACCOUNT, &name, dir).await?;
        let webhook_port = free_port().map_err(SystemError::NoFreePort)?;
        let admin_port = free_port().map_err(SystemError::NoFreePort)?;
        let told_port = if ground.settings.webhook { webhook_port } else { NOBODY };
        let mut command = Command::new(&ground.ringside.sharder);
        command
            .arg("--kubeconfig")
            .arg(identity.kubeconfig())
            .args(["--namespace", NAMESPACE])
            .args(["--webhook-listen", &format!("127.0.0.1:{webhook_port}")])
            .args(["--webhook-url", &format!("https://127.0.0.1:{told_port}")])
            .args(["--admin-listen", &format!("127.0.0.1:{admin_port}")])
            .args(["--sync-period", &format!("{}ms", ground.settings.sync_period.as_millis())])
            .args(["--log-filter", &ground.settings.log_filter])
            .env("HOSTNAME", &name);
        let process = Process::spawn(&name, &command, &dir.join(format!("{name}.log")))?;
        Ok(Self { process, admin_port, _identity: identity })
    }

    /// Waits until it is ready.
    pub(super) async fn until_ready(&self) -> Result<(), SystemError> {
        probe::until_ready(&self.process, self.admin_port).await
    }

    /// Fails when it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        Ok(self.process.check_running()?)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The port of `/livez`, `/readyz` and `/metrics`.
    pub fn admin_port(&self) -> u16 {
        self.admin_port
    }
}
