//! A replica of the sharder.

use std::{net::Ipv4Addr, process::Command};

use anyhow::Context as _;

use super::{Plane, SystemError, install};
use crate::{line::Line, ports::free_port, process::Process, relay::Relay, shard_identity::ShardIdentity};

pub(super) const NAMESPACE: &str = "ringside-system";
const SERVICE_ACCOUNT: &str = "ringside-sharder";

/// A port where nothing listens: discard (RFC 863).
const NOBODY: u16 = 9;

/// How a replica comes back that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// As the same Pod.
    SamePod,
    /// As another Pod, the one before being gone.
    OtherPod,
}

/// A running replica.
#[derive(Debug)]
pub struct Sharder {
    process: Process,
    webhook_port: u16,
    admin_port: u16,
    identity: ShardIdentity,
    line: Option<Line>,
}

impl Sharder {
    /// Starts it, with the permissions of the sharder's ServiceAccount. It reaches the API server by the relay, if there is one.
    pub(super) async fn start(plane: &Plane, index: usize, relay: Option<&Relay>) -> Result<Self, SystemError> {
        let identity = identity(plane, SERVICE_ACCOUNT, &format!("ringside-sharder-{index}")).await?;
        if let Some(relay) = relay {
            identity.connect_to(&plane.control_plane, &relay.url())?;
        }
        Self::run(plane, identity).await
    }

    /// Starts the process of a Pod.
    async fn run(plane: &Plane, identity: ShardIdentity) -> Result<Self, SystemError> {
        let name = identity.pod();
        let port = || free_port().context("find a free port");
        let (webhook_port, admin_port) = (port()?, port()?);
        let line = Line::where_wanted(plane.settings.lines, (Ipv4Addr::LOCALHOST, webhook_port).into()).await?;
        let answers = line.as_ref().map_or(webhook_port, |line| line.address().port());
        let told_port = if plane.settings.webhook { answers } else { NOBODY };
        let mut command = Command::new(&plane.ringside.sharder);
        command
            .arg("--kubeconfig")
            .arg(identity.kubeconfig())
            .args(["--namespace", NAMESPACE])
            .args(["--webhook-listen", &format!("127.0.0.1:{webhook_port}")])
            .args(["--webhook-url", &format!("https://127.0.0.1:{told_port}")])
            .args(["--admin-listen", &format!("127.0.0.1:{admin_port}")])
            .args(["--sync-period", &format!("{}ms", plane.settings.sync_period.as_millis())])
            .args(["--log-filter", &plane.settings.log_filter])
            .envs(install::sharder_environment()?)
            .env("HOSTNAME", name);
        if let Some(lifetime) = plane.settings.certificate_lifetime {
            command.args(["--webhook-certificate-lifetime", &format!("{}ms", lifetime.as_millis())]);
        }
        if let Some(kept) = &plane.settings.kept_certificate {
            command.arg("--webhook-certificate-dir").arg(&kept.folder).args(["--webhook-inject-ca-from", &kept.name]);
        }
        if plane.settings.controller_rings {
            command.arg("--controller-rings");
        }
        if plane.settings.injector {
            command.args(["--injector", "--proxy-image", "ringside-proxy:0.1.0"]);
        }
        if let Some(clock) = &plane.settings.sharder_clock {
            clock.give_to(&mut command);
        }
        let process = Process::spawn(name, &command, &plane.folder.path().join(format!("{name}.log")))?;
        Ok(Self { process, webhook_port, admin_port, identity, line })
    }

    /// Starts it again: in the same Pod, as a kubelet does with a container that ended, or in another.
    pub(super) async fn again(mut self, plane: &Plane, pod: Return) -> Result<Self, SystemError> {
        if pod == Return::OtherPod {
            self.identity.delete(&plane.control_plane.client()).await?;
            self.identity = identity(plane, SERVICE_ACCOUNT, self.identity.pod()).await?;
        }
        Self::run(plane, self.identity).await
    }

    /// Its name, which is its Pod's.
    pub fn name(&self) -> &str {
        self.identity.pod()
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The line by which the API server reaches its webhook, where [`Settings::lines`](super::Settings::lines) says so.
    pub fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// The port of its webhook.
    pub fn webhook_port(&self) -> u16 {
        self.webhook_port
    }

    /// The port of `/livez`, `/readyz` and `/metrics`.
    pub fn admin_port(&self) -> u16 {
        self.admin_port
    }
}

/// A Pod of this ServiceAccount in the sharder's namespace.
pub(super) async fn identity(plane: &Plane, service_account: &str, name: &str) -> anyhow::Result<ShardIdentity> {
    ShardIdentity::create(&plane.control_plane, NAMESPACE, service_account, name, plane.folder.path()).await
}
