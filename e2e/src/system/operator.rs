//! Operators: how each is started, and those without a proxy.

use std::{path::Path, process::Command, sync::atomic::Ordering};

use anyhow::Context as _;

use super::{Base, SystemError, install, published};
use crate::{
    checker::Event,
    process::Process,
    shard_identity::ShardIdentity,
    toolchain::{Environment, Operator},
};

/// The lock of the operators that elect, and the peering of those that pause for each other.
const LOCK: &str = "website-operator";

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
        let which = base.settings.operator;
        prepare(base, which).await?;
        let mut command = which.command(&Environment::of_process())?;
        command.env("KUBECONFIG", identity.kubeconfig());
        let operator = start_elected(base, which, command, name, name, lock_namespace)?;
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
        let operator = start(base, Told::ByFlags, command, name, &instance)?;
        Ok(Self { operator, instance, identity, is_shard: true })
    }

    /// Its name, which is its Pod's.
    pub(super) fn name(&self) -> &str {
        self.identity.pod()
    }

    /// Its process.
    pub(super) fn process(&self) -> &Process {
        &self.operator
    }

    /// Fails when it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        Ok(self.operator.check_running()?)
    }

    /// Ends it gracefully and deletes the Pod.
    pub(super) async fn stop(self, base: &Base) -> Result<(), SystemError> {
        self.operator.stop().await?;
        base.monitor.record(Event::Killed { instance: self.instance });
        Ok(self.identity.delete(&base.plane.control_plane.client()).await?)
    }

    /// Kills it. The Pod object stays.
    pub(super) async fn kill(self, base: &Base) -> Result<(), SystemError> {
        self.operator.end().await?;
        base.monitor.record(Event::Killed { instance: self.instance });
        Ok(())
    }
}

/// How an operator is told its options.
#[derive(Clone, Copy)]
enum Told {
    /// `--some-option=value`.
    ByFlags,
    /// `SOME_OPTION=value`.
    ByEnvironment,
}

impl Told {
    const fn of(operator: Operator) -> Self {
        match operator {
            Operator::Go | Operator::CertManager | Operator::ExternalSecrets => Self::ByFlags,
            Operator::Python | Operator::Java | Operator::Rust | Operator::Node => Self::ByEnvironment,
        }
    }

    fn tell(self, command: &mut Command, options: &[(&str, &str)]) {
        for (name, value) in options {
            match self {
                Self::ByFlags => command.arg(format!("--{name}={value}")),
                Self::ByEnvironment => command.env(name.replace('-', "_").to_uppercase(), value),
            };
        }
    }
}

/// Builds or fetches an operator, and gives its Pods their rights. From then on it is at hand.
pub(super) async fn prepare(base: &Base, operator: Operator) -> Result<(), SystemError> {
    install::rights_of_operator(&base.plane.control_plane.client(), operator, &base.place.namespace).await?;
    let prepared = tokio::task::spawn_blocking(move || operator.command(&Environment::of_process()));
    prepared.await.context("prepare the operator")??;
    Ok(())
}

/// Starts an operator that elects a leader, where its language has that. What differs is where the `command` leads it.
pub(super) fn start_elected(
    base: &Base,
    operator: Operator,
    mut command: Command,
    pod: &str,
    instance: &str,
    lock_namespace: &str,
) -> Result<Process, SystemError> {
    if operator.is_published() {
        return spawn(base, &published::command(operator, command, pod), pod);
    }
    let told = Told::of(operator);
    if operator == Operator::Python {
        // Of several without Ringside the one of the highest priority works.
        let priority = base.lives.fetch_add(1, Ordering::Relaxed).to_string();
        command.args(["--namespace", &base.place.namespace, "--peering", LOCK, "--priority", &priority]);
    }
    let deadline = format!("{}ms", base.settings.renew_deadline.as_millis());
    told.tell(
        &mut command,
        &[("leader-election-namespace", lock_namespace), ("leader-elect-renew-deadline", &deadline)],
    );
    start(base, told, command, pod, instance)
}

/// Starts an operator with the options that all have.
fn start(base: &Base, told: Told, mut command: Command, pod: &str, instance: &str) -> Result<Process, SystemError> {
    let (concurrency, chain) = (base.settings.concurrency.to_string(), base.settings.chain.to_string());
    let url = base.collector.url();
    told.tell(
        &mut command,
        &[("instance", instance), ("concurrency", &concurrency), ("chain", &chain), ("collector", &url)],
    );
    spawn(base, &command, pod)
}

fn spawn(base: &Base, command: &Command, pod: &str) -> Result<Process, SystemError> {
    let name = format!("{pod}{OPERATOR}");
    Ok(Process::spawn(&name, command, &base.folder.path().join(format!("{name}.log")))?)
}
