//! A shard: a Pod with a proxy and an operator that knows of nothing.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{Base, Ended, SystemError, WayIn, probe, unsharded};
use crate::{
    checker::Event, in_cluster, line::Line, ports::free_port, process::Process, shard_identity::ShardIdentity,
};

/// The kubelet's default grace period is 30 s; both are expected to end well before.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A running shard.
#[derive(Debug)]
pub struct Shard {
    // Dropped in this order: the operator before what it talks to.
    operator: Process,
    proxy: Process,
    address: SocketAddr,
    admin_port: u16,
    instance: String,
    identity: ShardIdentity,
    access: PathBuf,
    options: Vec<String>,
    line: Option<Line>,
}

impl Shard {
    /// Creates its Pod, starts the proxy, and once that is ready the operator. `options` are more ones for the proxy, which
    /// reaches the API server at `url`.
    pub(super) async fn start(base: &Base, name: &str, options: &[&str], url: &str) -> Result<Self, SystemError> {
        let dir = base.folder.path();
        let service_account = unsharded::SERVICE_ACCOUNT;
        let identity =
            ShardIdentity::create(&base.plane.control_plane, &base.place.namespace, service_account, name, dir).await?;
        let line = match base.settings.lines {
            true => Some(Line::to(base.plane.control_plane.address()).await.map_err(SystemError::Line)?),
            false => None,
        };
        let by_line = line.as_ref().map(|line| format!("https://{}", line.address()));
        identity.connect_to(&base.plane.control_plane, by_line.as_deref().unwrap_or(url))?;
        // A new Pod has new volumes.
        let access = dir.join(format!("{name}.{}.access", identity.uid()));
        std::fs::create_dir(&access).map_err(SystemError::Folder)?;
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        let (proxy, address, admin_port) = start_proxy(base, &identity, &access, &options).await?;
        let instance = base.instance(name);
        let operator = start_operator(base, name, &instance, &access, address)?;
        Ok(Self { operator, proxy, address, admin_port, instance, identity, access, options, line })
    }

    /// The shard's name, which is its Pod's.
    pub fn name(&self) -> &str {
        self.identity.pod()
    }

    /// The proxy's process.
    pub fn proxy(&self) -> &Process {
        &self.proxy
    }

    /// The operator's process.
    pub fn operator(&self) -> &Process {
        &self.operator
    }

    /// The kubeconfig that the proxy wrote for its controller.
    pub fn kubeconfig(&self) -> PathBuf {
        self.access.join("kubeconfig")
    }

    /// The folder that proxy and controller share.
    pub fn access(&self) -> &Path {
        &self.access
    }

    /// Where the proxy listens for its controller.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the operator calls itself: unique to one life of its process.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The line by which the proxy asks the API server, where [`Settings::lines`](super::Settings::lines) says so.
    pub fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// The port of the proxy's `/livez`, `/readyz` and `/metrics`.
    pub fn admin_port(&self) -> u16 {
        self.admin_port
    }

    /// Fails when a part of it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        self.proxy.check_running()?;
        Ok(self.operator.check_running()?)
    }

    /// Ends it gracefully and deletes the Pod.
    pub(super) async fn stop(self, base: &Base) -> Result<(), SystemError> {
        self.terminate().await?;
        Ok(self.identity.delete(&base.plane.control_plane.client()).await?)
    }

    /// Ends it gracefully and starts it again in the same Pod.
    pub(super) async fn restart(&mut self, base: &Base) -> Result<(), SystemError> {
        self.terminate().await?;
        let proxy = start_proxy(base, &self.identity, &self.access, &self.options).await?;
        (self.proxy, self.address, self.admin_port) = proxy;
        self.instance = base.instance(self.identity.pod());
        self.operator = start_operator(base, self.identity.pod(), &self.instance, &self.access, self.address)?;
        Ok(())
    }

    /// Kills both processes, as the end of a node does. The Pod object stays, as it does then.
    pub(super) async fn kill(self, base: &Base) -> Result<(), SystemError> {
        self.proxy.kill()?;
        self.operator.kill()?;
        self.proxy.wait(STOP_DEADLINE).await?;
        self.operator.wait(STOP_DEADLINE).await?;
        base.recorder.record(Event::Killed { instance: self.instance });
        Ok(())
    }

    /// Starts again what has ended by itself, as a kubelet does with containers; returns what that was.
    pub(super) fn revive(&mut self, base: &Base) -> Result<Vec<Ended>, SystemError> {
        let mut revived = Vec::new();
        if self.proxy.status()?.is_some() {
            revived.push(Ended::of(&self.proxy));
            self.proxy = spawn_proxy(base, &self.identity, &self.access, &self.options, self.address, self.admin_port)?;
        }
        if self.operator.status()?.is_some() {
            revived.push(Ended::of(&self.operator));
            let pod = self.identity.pod();
            let ended = std::mem::replace(&mut self.instance, base.instance(pod));
            base.recorder.record(Event::Killed { instance: ended });
            self.operator = start_operator(base, pod, &self.instance, &self.access, self.address)?;
        }
        Ok(revived)
    }

    /// As the kubelet ends a Pod with a native sidecar: the sidecar after the controller.
    async fn terminate(&self) -> Result<(), SystemError> {
        for process in [&self.operator, &self.proxy] {
            process.terminate()?;
            process.wait(STOP_DEADLINE).await?;
        }
        Ok(())
    }
}

fn start_operator(
    base: &Base,
    pod: &str,
    instance: &str,
    access: &Path,
    proxy: SocketAddr,
) -> Result<Process, SystemError> {
    let command = match base.settings.way_in {
        WayIn::Kubeconfig => {
            let mut command = Command::new(&base.operator);
            command.env("KUBECONFIG", access.join("kubeconfig"));
            command
        }
        WayIn::InCluster => in_cluster::command(&base.operator, access, proxy),
    };
    unsharded::start_operator(base, command, pod, instance, &base.place.namespace)
}

async fn start_proxy(
    base: &Base,
    identity: &ShardIdentity,
    access: &Path,
    options: &[String],
) -> Result<(Process, SocketAddr, u16), SystemError> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().map_err(SystemError::NoFreePort)?));
    let admin_port = free_port().map_err(SystemError::NoFreePort)?;
    let process = spawn_proxy(base, identity, access, options, listen, admin_port)?;
    probe::until_ready(&process, admin_port).await?;
    Ok((process, listen, admin_port))
}

fn spawn_proxy(
    base: &Base,
    identity: &ShardIdentity,
    access: &Path,
    options: &[String],
    listen: SocketAddr,
    admin_port: u16,
) -> Result<Process, SystemError> {
    let name = format!("{}-proxy", identity.pod());
    let mut command = Command::new(&base.plane.ringside.proxy);
    command
        .args(["--ring", &base.place.ring.to_string(), "--shard-name", identity.pod()])
        .args(["--lease-namespace", &base.place.namespace])
        .arg("--kubeconfig")
        .arg(identity.kubeconfig())
        .arg("--access-dir")
        .arg(access)
        .args(["--listen", &listen.to_string()])
        .args(["--admin-listen", &format!("127.0.0.1:{admin_port}")])
        .args(["--lease-duration", &format!("{}ms", base.settings.lease_duration.as_millis())])
        .args(["--drain-grace", &format!("{}ms", base.settings.drain_grace.as_millis())])
        .args(options)
        .env("RINGSIDE_LOG_FILTER", &base.settings.log_filter);
    let log = base.folder.path().join(format!("{name}.log"));
    Ok(Process::spawn(&name, &command, &log)?)
}
