//! A shard that shards itself: a Pod with an operator that knows the contract, and without a proxy.

use std::{path::Path, process::Command, time::Duration};

use super::{Base, SystemError, unsharded};
use crate::{checker::Event, process::Process, shard_identity::ShardIdentity};

/// The kubelet's default grace period.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A running shard.
#[derive(Debug)]
pub(super) struct OwnShard {
    operator: Process,
    instance: String,
    identity: ShardIdentity,
}

impl OwnShard {
    /// Creates its Pod and starts it.
    pub(super) async fn start(base: &Base, program: &Path, name: &str) -> Result<Self, SystemError> {
        let (dir, account) = (base.folder.path(), unsharded::SERVICE_ACCOUNT);
        let identity =
            ShardIdentity::create(&base.plane.control_plane, &base.place.namespace, account, name, dir).await?;
        let instance = base.instance(name);
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", identity.kubeconfig())
            .arg(format!("--{}={}", base.place.ring.kind().names().singular, base.place.ring.name()))
            .args(["--shard", name])
            .args(["--lease-namespace", &base.place.namespace])
            .args(["--lease-duration", &format!("{}ms", base.settings.lease_duration.as_millis())]);
        unsharded::configure(base, &mut command, &instance);
        let log = dir.join(format!("{name}-operator.log"));
        let operator = Process::spawn(&format!("{name}-operator"), &command, &log)?;
        Ok(Self { operator, instance, identity })
    }

    /// The shard's name, which is its Pod's.
    pub(super) fn name(&self) -> &str {
        self.identity.pod()
    }

    /// Fails when it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        Ok(self.operator.check_running()?)
    }

    /// Ends it gracefully and deletes the Pod.
    pub(super) async fn stop(self, base: &Base) -> Result<(), SystemError> {
        self.operator.terminate()?;
        self.operator.wait(STOP_DEADLINE).await?;
        Ok(self.identity.delete(&base.plane.control_plane.client()).await?)
    }

    /// Kills it. The Pod object stays.
    pub(super) async fn kill(self, base: &Base) -> Result<(), SystemError> {
        self.operator.kill()?;
        self.operator.wait(STOP_DEADLINE).await?;
        base.recorder.record(Event::Killed { instance: self.instance });
        Ok(())
    }
}
