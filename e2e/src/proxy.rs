//! A proxy, as a process: beside a control plane alone, for what shows without a sharder and controllers, or in a shard.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use kube::Client;
use ringside_runtime::{
    admin::Probe,
    probe::{self, ProbeError},
};

use crate::{
    control_plane::{START_DEADLINE, client_of},
    ports::free_port,
    process::Process,
    system::until_ready,
};

/// So soon a probe is answered by who can: a kubelet waits no longer, either.
const ANSWERS: Duration = Duration::from_secs(5);

/// Which shard of which ring a proxy is, and where its Lease is.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The name of the ring.
    pub ring: &'a str,
    /// The name of the shard.
    pub shard: &'a str,
    /// The namespace of its Lease.
    pub namespace: &'a str,
}

/// A running proxy. Gone when dropped.
#[derive(Debug)]
pub struct Proxy {
    /// Its process, or that of what runs it.
    pub process: Process,
    /// Where its controller connects to, on loopback.
    pub port: u16,
    /// Where probes and metrics are served, on loopback.
    pub admin_port: u16,
    /// The folder with what a controller is given.
    pub access: PathBuf,
    command: Command,
}

impl Proxy {
    /// Starts one, with access folder and log in `folder`. What runs the program, how it reaches the API server, and what
    /// is out of the ordinary, is said by `command`.
    pub fn start(mut command: Command, identity: Identity<'_>, folder: &Path) -> anyhow::Result<Self> {
        // What uses it here is seldom a controller that watches.
        command.arg("--controller=always");
        Self::start_with_access(command, identity, folder, folder.join(format!("{}.access", identity.shard)))
    }

    /// The same for a controller that watches, with this access folder.
    pub(crate) fn start_with_access(
        mut command: Command,
        identity: Identity<'_>,
        folder: &Path,
        access: PathBuf,
    ) -> anyhow::Result<Self> {
        let Identity { ring, shard, namespace } = identity;
        fs::create_dir_all(&access).context("prepare the start of a proxy")?;
        let port = || free_port().context("prepare the start of a proxy");
        let (port, admin_port) = (port()?, port()?);
        command.args(["--ring", ring, "--shard-name", shard, "--lease-namespace", namespace]);
        command.arg("--access-dir").arg(&access);
        command.args([format!("--listen=127.0.0.1:{port}"), format!("--admin-listen=127.0.0.1:{admin_port}")]);
        let name = format!("{shard}-proxy");
        let process = Process::spawn(&name, &command, &folder.join(format!("{name}.log")))?;
        Ok(Self { process, port, admin_port, access, command })
    }

    /// Starts it once more, where it has ended.
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        self.process = Process::spawn(self.process.name(), &self.command, self.process.log())?;
        Ok(())
    }

    /// Where its controller connects to.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Waits until it knows its ring and holds its Lease.
    pub async fn until_ready(&self) -> anyhow::Result<()> {
        Ok(until_ready(&self.process, self.admin_port).await?)
    }

    /// Whether it knows its ring and holds its Lease.
    pub async fn is_ready(&self) -> bool {
        probe::ask((Ipv4Addr::LOCALHOST, self.admin_port).into(), Probe::Ready, ANSWERS).await.is_ok()
    }

    /// Whether the controller is to go on, or why it is to be restarted.
    ///
    /// # Errors
    /// With what the proxy says.
    pub async fn controller_may_go_on(&self) -> Result<(), ProbeError> {
        probe::ask((Ipv4Addr::LOCALHOST, self.admin_port).into(), Probe::Controller, START_DEADLINE).await
    }

    /// What a controller is given.
    pub fn kubeconfig(&self) -> PathBuf {
        self.access.join("kubeconfig")
    }

    /// kube's own client, as a controller uses it.
    pub async fn client(&self) -> anyhow::Result<Client> {
        client_of(&self.kubeconfig()).await
    }
}
