//! The operator alone, as it ran before sharding: it talks to the API server itself and elects one leader.

use std::{process::Command, time::Duration};

use super::{Base, SystemError};
use crate::{process::Process, shard_identity::ShardIdentity};

/// The operator's ServiceAccount in the example manifests.
pub(super) const SERVICE_ACCOUNT: &str = "website-controller";

/// What follows the Pod's name in that of the operator's process.
pub(crate) const OPERATOR: &str = "-operator";

/// What the API server calls it.
pub(super) fn user(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}")
}

const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A running operator without a proxy.
#[derive(Debug)]
pub(super) struct Unsharded {
    operator: Process,
    identity: ShardIdentity,
}

impl Unsharded {
    /// Creates its Pod and starts it.
    pub(super) async fn start(base: &Base, name: &str, lock_namespace: &str) -> Result<Self, SystemError> {
        let dir = base.folder.path();
        let identity =
            ShardIdentity::create(&base.plane.control_plane, &base.place.namespace, SERVICE_ACCOUNT, name, dir).await?;
        let mut command = Command::new(&base.operator);
        command.env("KUBECONFIG", identity.kubeconfig());
        let operator = start_operator(base, command, name, name, lock_namespace)?;
        Ok(Self { operator, identity })
    }

    /// Ends it gracefully and deletes the Pod.
    pub(super) async fn stop(self, base: &Base) -> Result<(), SystemError> {
        self.operator.terminate()?;
        self.operator.wait(STOP_DEADLINE).await?;
        Ok(self.identity.delete(&base.plane.control_plane.client()).await?)
    }

    /// Fails when it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        Ok(self.operator.check_running()?)
    }
}

/// Starts the operator. The same for both: what differs is where the `command` leads it.
pub(super) fn start_operator(
    base: &Base,
    mut command: Command,
    pod: &str,
    instance: &str,
    lock_namespace: &str,
) -> Result<Process, SystemError> {
    let name = format!("{pod}{OPERATOR}");
    command
        .args(["--leader-election-namespace", lock_namespace])
        .args(["--leader-elect-renew-deadline", &format!("{}ms", base.settings.renew_deadline.as_millis())]);
    configure(base, &mut command, instance);
    Ok(Process::spawn(&name, &command, &base.folder.path().join(format!("{name}.log")))?)
}

/// The options that all operators have.
pub(super) fn configure(base: &Base, command: &mut Command, instance: &str) {
    command
        .args(["--instance", instance])
        .args(["--concurrency", &base.settings.concurrency.to_string()])
        .arg(format!("--chain={}", base.settings.chain))
        .args(["--collector", &base.collector.url()]);
}
