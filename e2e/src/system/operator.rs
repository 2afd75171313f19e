//! Operators: how each is started, and those without a proxy.

use std::{path::Path, process::Command};

use super::{Base, SystemError};
use crate::{checker::Event, process::Process, shard_identity::ShardIdentity};

/// What follows the Pod's name in that of the operator's process.
pub(crate) const OPERATOR: &str = "-operator";

/// A running operator that talks to the API server itself.
#[derive(Debug)]
pub(super) struct Lone {
    operator: Process,
    instance: String,
    identity: ShardIdentity,
    /// Whether it knows the contract, and is a shard. If not, it elects one leader, as before sharding.
    pub(super) is_shard: bool,
}

impl Lone {
    /// Creates the Pod of an ordinary operator and starts it.
    pub(super) async fn unsharded(base: &Base, name: &str, lock_namespace: &str) -> Result<Self, SystemError> {
        let identity = base.pod(name).await?;
        let mut command = Command::new(&base.operator);
        command.env("KUBECONFIG", identity.kubeconfig());
        let operator = start_elected(base, command, name, name, lock_namespace)?;
        Ok(Self { operator, instance: name.to_owned(), identity, is_shard: false })
    }

    /// Creates the Pod of an operator that shards itself and starts it.
    pub(super) async fn shard(base: &Base, program: &Path, name: &str) -> Result<Self, SystemError> {
        let (identity, instance) = (base.pod(name).await?, base.instance(name));
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", identity.kubeconfig())
            .arg(format!("--{}={}", base.place.ring.kind().names().singular, base.place.ring.name()))
            .args(["--shard", name])
            .args(["--lease-namespace", &base.place.namespace])
            .args(["--lease-duration", &format!("{}ms", base.settings.lease_duration.as_millis())]);
        let operator = start(base, command, name, &instance)?;
        Ok(Self { operator, instance, identity, is_shard: true })
    }

    /// Its name, which is its Pod's.
    pub(super) fn name(&self) -> &str {
        self.identity.pod()
    }

    /// Fails when it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        Ok(self.operator.check_running()?)
    }

    /// Ends it gracefully and deletes the Pod.
    pub(super) async fn stop(self, base: &Base) -> Result<(), SystemError> {
        self.operator.stop().await?;
        Ok(self.identity.delete(&base.plane.control_plane.client()).await?)
    }

    /// Kills it. The Pod object stays.
    pub(super) async fn kill(self, base: &Base) -> Result<(), SystemError> {
        self.operator.end().await?;
        base.monitor.record(Event::Killed { instance: self.instance });
        Ok(())
    }
}

/// Starts an operator that elects a leader. What differs is where the `command` leads it.
pub(super) fn start_elected(
    base: &Base,
    mut command: Command,
    pod: &str,
    instance: &str,
    lock_namespace: &str,
) -> Result<Process, SystemError> {
    command
        .args(["--leader-election-namespace", lock_namespace])
        .args(["--leader-elect-renew-deadline", &format!("{}ms", base.settings.renew_deadline.as_millis())]);
    start(base, command, pod, instance)
}

/// Starts an operator with the options that all have.
fn start(base: &Base, mut command: Command, pod: &str, instance: &str) -> Result<Process, SystemError> {
    command
        .args(["--instance", instance])
        .args(["--concurrency", &base.settings.concurrency.to_string()])
        .arg(format!("--chain={}", base.settings.chain))
        .args(["--collector", &base.collector.url()]);
    let name = format!("{pod}{OPERATOR}");
    Ok(Process::spawn(&name, &command, &base.folder.path().join(format!("{name}.log")))?)
}
