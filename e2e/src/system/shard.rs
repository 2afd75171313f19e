//! A shard: a Pod with a proxy and an operator that knows of nothing.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ringside_ring::doing::LEAVE;
use ringside_runtime::probe::{self, ProbeError};

use super::{Base, Ended, SystemError, WayIn, operator, until_ready};
use crate::{
    checker::Event,
    in_cluster,
    line::Line,
    process::Process,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    toolchain::{Environment, Operator},
};

/// What `ringside inject` gives the hooks of a Pod that says nothing of its time, and within which the proxy answers beyond it.
const HOOKS: Duration = Duration::from_secs(20);
const ANSWERS: Duration = Duration::from_secs(5);

/// A running shard.
#[derive(Debug)]
pub struct Shard {
    // Dropped in this order: the operator before what it talks to.
    operator: Process,
    runs: Operator,
    proxy: Proxy,
    instance: String,
    identity: ShardIdentity,
    line: Option<Line>,
}

impl Shard {
    /// Creates its Pod, starts the proxy, and once that is ready the operator. `options` are more ones for the proxy, which
    /// reaches the API server at `url`.
    pub(super) async fn start(
        base: &Base,
        name: &str,
        runs: Operator,
        options: &[&str],
        url: &str,
    ) -> Result<Self, SystemError> {
        let Base { settings, place, plane, .. } = base;
        let identity = base.pod(name).await?;
        let line = Line::where_wanted(settings.lines, plane.control_plane.address()).await?;
        let by_line = line.as_ref().map(|line| format!("https://{}", line.address()));
        identity.connect_to(&plane.control_plane, by_line.as_deref().unwrap_or(url))?;
        let mut command = Command::new(&plane.ringside.proxy);
        command
            .arg("--kubeconfig")
            .arg(identity.kubeconfig())
            .args(["--lease-duration", &format!("{}ms", settings.lease_duration.as_millis())])
            .args(["--drain-grace", &format!("{}ms", settings.drain_grace.as_millis())])
            .args(options)
            .env("RINGSIDE_LOG_FILTER", &settings.log_filter);
        let ring = place.ring.to_string();
        let whose = Identity { ring: &ring, shard: name, namespace: &place.namespace };
        // A new Pod has new volumes.
        let access = base.folder.path().join(format!("{name}.{}.access", identity.uid()));
        let proxy = Proxy::start_with_access(command, whose, base.folder.path(), access)?;
        until_ready(&proxy.process, proxy.admin_port).await?;
        let instance = base.instance(name);
        operator::prepare(base, runs).await?;
        let operator = start_operator(base, runs, name, &instance, &proxy)?;
        Ok(Self { operator, runs, proxy, instance, identity, line })
    }

    /// The shard's name, which is its Pod's.
    pub fn name(&self) -> &str {
        self.identity.pod()
    }

    /// The proxy's process.
    pub fn proxy(&self) -> &Process {
        &self.proxy.process
    }

    /// The operator's process.
    pub fn operator(&self) -> &Process {
        &self.operator
    }

    /// The kubeconfig that the proxy wrote for its controller.
    pub fn kubeconfig(&self) -> PathBuf {
        self.proxy.kubeconfig()
    }

    /// The folder that proxy and controller share.
    pub fn access(&self) -> &Path {
        &self.proxy.access
    }

    /// Where the proxy listens for its controller.
    pub fn address(&self) -> SocketAddr {
        self.proxy.address()
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
        self.proxy.admin_port
    }

    /// Fails when a part of it has ended.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        self.proxy.process.check_running()?;
        Ok(self.operator.check_running()?)
    }

    /// What a kubelet does before it ends the containers: the hooks.
    ///
    /// # Errors
    /// When not all objects were handed over, which changes nothing of what comes next.
    pub(super) async fn hand_over(&self) -> Result<(), ProbeError> {
        let (address, limit) = ((Ipv4Addr::LOCALHOST, self.admin_port()).into(), HOOKS + ANSWERS);
        let token = fs::read_to_string(self.access().join("token")).unwrap_or_default();
        probe::post(address, &format!("{LEAVE}/{}", HOOKS.as_secs()), &token, limit).await
    }

    /// Ends it gracefully and deletes the Pod.
    pub(super) async fn stop(self, base: &Base) -> Result<(), SystemError> {
        self.terminate(base).await?;
        Ok(self.identity.delete(&base.plane.control_plane.client()).await?)
    }

    /// Ends it gracefully and starts it again in the same Pod.
    pub(super) async fn restart(&mut self, base: &Base) -> Result<(), SystemError> {
        self.terminate(base).await?;
        self.proxy.start_again()?;
        until_ready(&self.proxy.process, self.proxy.admin_port).await?;
        self.start_operator_again(base)
    }

    /// Kills both processes, as the end of a node does. The Pod object stays, as it does then.
    pub(super) async fn kill(self, base: &Base) -> Result<(), SystemError> {
        tokio::try_join!(self.proxy.process.end(), self.operator.end())?;
        base.monitor.record(Event::Killed { instance: self.instance });
        Ok(())
    }

    /// Starts again what has ended by itself, as a kubelet does with containers; returns what that was.
    pub(super) fn revive(&mut self, base: &Base) -> Result<Vec<Ended>, SystemError> {
        let mut revived = Vec::new();
        if self.proxy.process.status()?.is_some() {
            revived.push(Ended::of(&self.proxy.process));
            self.proxy.start_again()?;
        }
        if self.operator.status()?.is_some() {
            revived.push(Ended::of(&self.operator));
            let instance = self.instance.clone();
            base.monitor.record(Event::Killed { instance });
            self.start_operator_again(base)?;
        }
        Ok(revived)
    }

    fn start_operator_again(&mut self, base: &Base) -> Result<(), SystemError> {
        self.instance = base.instance(self.identity.pod());
        self.operator = start_operator(base, self.runs, self.identity.pod(), &self.instance, &self.proxy)?;
        Ok(())
    }

    /// As the kubelet ends a Pod with a native sidecar: the sidecar after the controller.
    async fn terminate(&self, base: &Base) -> Result<(), SystemError> {
        self.operator.stop().await?;
        // One that breaks off what it has begun reports no end of it.
        base.monitor.record(Event::Killed { instance: self.instance.clone() });
        Ok(self.proxy.process.stop().await?)
    }
}

fn start_operator(
    base: &Base,
    runs: Operator,
    pod: &str,
    instance: &str,
    proxy: &Proxy,
) -> Result<Process, SystemError> {
    let mut command = runs.command(&Environment::of_process())?;
    match base.settings.way_in {
        WayIn::Kubeconfig => drop(command.env("KUBECONFIG", proxy.kubeconfig())),
        WayIn::InCluster => {
            command = in_cluster::command(Path::new(command.get_program()), &proxy.access, proxy.address());
        }
    }
    operator::start_elected(base, runs, command, pod, instance, &base.place.namespace)
}
