//! A real control plane on loopback: etcd, API server and, where asked for, controller manager; ready in seconds.
//!
//! Several run side by side, each in a folder and on ports of its own, and each is gone without a trace when it is
//! dropped or its owner ends (see [`process`](crate::process)). There are no nodes, and Pods are objects that no
//! kubelet runs, but where a [`node`](crate::node) is added.

mod admin;
mod another;
mod audit;
mod commands;
mod credentials;
mod history;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use ringside_ring::cluster_ring::GroupResource;

pub use self::{admin::client_of, another::AnotherApiServer};
use self::{commands::Layout, credentials::Credentials};
use crate::{
    eventually::eventually,
    files::failed,
    line::Line,
    ports::free_port,
    process::{Folder, Process, ProcessError},
    toolchain::{self, ControlPlanePrograms},
};

/// What an API server asks etcd by that can be held in the past.
pub type Lag = Line;

/// For each of the API server and the controller manager. Two seconds is usual; a loaded machine with many of them at once
/// needs longer.
pub const START_DEADLINE: Duration = Duration::from_secs(120);

/// A port can be taken by another process between its choice and its use. Each attempt chooses new ones.
const START_ATTEMPTS: usize = 5;

/// The name of the node, where there is one.
pub const NODE: &str = "node";

/// How a control plane differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More flags for the API server, such as feature gates.
    pub api_server_flags: Vec<String>,
    /// Whether the controller manager runs: garbage collection, ServiceAccounts, Deployments. Most cases need none of it.
    pub controller_manager: bool,
    /// Whether the API server writes who asked for what to [`ControlPlane::audit_log`].
    pub audit: bool,
    /// The resources of which it writes down each write with what came of it, without the fields' managers. Where there are
    /// some, it writes of nothing else.
    pub audit_writes: Vec<GroupResource>,
    /// Whether the API server asks etcd by a line that can be slow: [`ControlPlane::line_to_etcd`].
    pub line_to_etcd: bool,
    /// Where the node's kubelet and pods reach the API server. Without it there is no node, and the API server listens on
    /// loopback alone.
    pub node_address: Option<Ipv4Addr>,
}

/// A running control plane.
pub struct ControlPlane {
    // Dropped in this order: clients of a server before it, the folder last.
    controller_manager: Option<Process>,
    api_server: Option<Process>,
    line_to_etcd: Option<Line>,
    etcd: Process,
    client: Client,
    credentials: Credentials,
    layout: Layout,
    programs: ControlPlanePrograms,
    options: Options,
    folder: Folder,
}

impl ControlPlane {
    /// Starts one, and returns when it is ready. The first time on a machine this builds the programs.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let programs = toolchain::built(toolchain::control_plane).await?;
        let mut attempt = 1;
        loop {
            match Self::attempt(programs.clone(), options.clone()).await {
                Err(error) if is_port_taken(&error) && attempt < START_ATTEMPTS => {
                    tracing::debug!(%error, attempt, "a port was taken, trying others");
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(programs: ControlPlanePrograms, options: Options) -> anyhow::Result<Self> {
        let folder = Folder::create("control-plane").map_err(failed("create a folder in", &std::env::temp_dir()))?;
        let port = || free_port().context("find a free port");
        let layout = Layout {
            dir: folder.path().to_owned(),
            api_port: port()?,
            etcd_client_port: port()?,
            etcd_peer_port: port()?,
        };
        let credentials = credentials::write(&layout)?;
        audit::write_policy(&layout, &options)?;
        let kubeconfig = layout.kubeconfig();
        admin::write(&kubeconfig, &layout.url(), &credentials.ca, &credentials.admin_token, "default")?;
        let client = client_of(&kubeconfig).await?;
        let etcd = spawn("etcd", &commands::etcd(&programs, &layout), &layout)?;
        let line_to_etcd = Line::where_wanted(options.line_to_etcd, layout.etcd()).await?;
        let mut control_plane = Self {
            controller_manager: None,
            api_server: None,
            line_to_etcd,
            etcd,
            client,
            credentials,
            layout,
            programs,
            options,
            folder,
        };
        control_plane.start_api_server().await?;
        if control_plane.options.controller_manager {
            control_plane.start_controller_manager().await?;
        }
        Ok(control_plane)
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of [`client`](Self::client). It holds all that it needs, so it can be copied.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// The bearer token of [`client`](Self::client).
    pub fn admin_token(&self) -> &str {
        &self.credentials.admin_token
    }

    /// The bearer token of the node's kubelet.
    pub fn node_token(&self) -> &str {
        &self.credentials.node_token
    }

    /// Writes a kubeconfig for the bearer of `token`, whose work is in `namespace`. It holds all that it needs.
    pub fn write_kubeconfig(&self, path: &Path, token: &str, namespace: &str) -> anyhow::Result<()> {
        admin::write(path, &self.url(), &self.credentials.ca, token, namespace)
    }

    /// Where the API server answers, as `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.layout.url()
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.layout.api_port).into()
    }

    /// The PEM file of the authority that signed the API server's certificate.
    pub fn ca_path(&self) -> PathBuf {
        self.layout.file("ca.crt")
    }

    /// The PEM files of the API server's certificate, which is good for all of loopback, and of its key.
    pub fn server_pair(&self) -> (PathBuf, PathBuf) {
        (self.layout.file("server.crt"), self.layout.file("server.key"))
    }

    /// The folder with its data and logs.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// What the API server wrote when [`Options::audit`] or [`Options::audit_writes`] say so: a line of JSON for each
    /// request.
    pub fn audit_log(&self) -> PathBuf {
        self.layout.file("audit.log")
    }

    /// Lets etcd forget the states before a resourceVersion, so that asking for one is answered with 410.
    pub async fn forget_before(&self, resource_version: &str) -> anyhow::Result<()> {
        history::forget(self.layout.etcd_client_port, resource_version).await.context("compact etcd")
    }

    /// The line by which the API server asks etcd, where [`Options::line_to_etcd`] says so.
    pub fn line_to_etcd(&self) -> Option<&Line> {
        self.line_to_etcd.as_ref()
    }

    /// The API server's process, while it runs.
    pub fn api_server(&self) -> Option<&Process> {
        self.api_server.as_ref()
    }

    /// The process of etcd.
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// Whether all of it runs that was not stopped.
    ///
    /// # Errors
    /// Names the process that ended by itself, with the end of its log.
    pub fn check_running(&self) -> anyhow::Result<()> {
        let processes = [Some(&self.etcd), self.api_server.as_ref(), self.controller_manager.as_ref()];
        Ok(processes.into_iter().flatten().try_for_each(Process::check_running)?)
    }

    /// The API server is started with these flags from now on.
    pub fn set_api_server_flags(&mut self, flags: Vec<String>) {
        self.options.api_server_flags = flags;
    }

    /// Kills the API server; etcd and the controller manager go on.
    pub async fn stop_api_server(&mut self) -> anyhow::Result<()> {
        if let Some(api_server) = self.api_server.take() {
            api_server.end().await?;
        }
        Ok(())
    }

    /// Starts the API server, on the same port and data as before, and waits until it is ready.
    pub async fn start_api_server(&mut self) -> anyhow::Result<()> {
        let etcd = self.line_to_etcd.as_ref().map_or(self.layout.etcd(), Line::address);
        let command = commands::api_server(&self.programs, &self.layout, &self.options, etcd.port());
        let api_server = spawn("kube-apiserver", &command, &self.layout)?;
        until_ready(&self.client, &[&self.etcd, &api_server]).await?;
        self.api_server = Some(api_server);
        Ok(())
    }

    async fn start_controller_manager(&mut self) -> anyhow::Result<()> {
        let program = toolchain::built(toolchain::kube_controller_manager).await?;
        let command = commands::controller_manager(&program, &self.layout, &self.options);
        let manager = spawn("kube-controller-manager", &command, &self.layout)?;
        // The first thing that users of a cluster can see of it: Pods need the account.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), "default");
        until(&[&manager], "the ServiceAccount `default`", || async { accounts.get("default").await.map(drop) })
            .await?;
        self.controller_manager = Some(manager);
        Ok(())
    }
}

/// Waits until an API server is ready, while all of these run.
async fn until_ready(client: &Client, processes: &[&Process]) -> anyhow::Result<()> {
    until(processes, "the API server is ready", || async {
        let request = http::Request::get("/readyz").body(Vec::new()).map_err(kube::Error::HttpError)?;
        client.request_text(request).await.map(drop)
    })
    .await
}

/// Waits until the probe succeeds, while all of these run.
async fn until<F>(processes: &[&Process], what: &str, probe: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = kube::Result<()>>,
{
    let running = || processes.iter().try_for_each(|process| process.check_running());
    let ready = eventually(what, START_DEADLINE, || async {
        match running() {
            Ok(()) => probe().await.map_err(|error| error.to_string()),
            Err(_) => Ok(()),
        }
    });
    ready.await?;
    Ok(running()?)
}

/// Whether a server found its port taken.
fn is_port_taken(error: &anyhow::Error) -> bool {
    let ended = error.downcast_ref::<ProcessError>();
    matches!(ended, Some(ProcessError::Ended { tail, .. }) if tail.contains("address already in use"))
}

fn spawn(name: &str, command: &std::process::Command, layout: &Layout) -> anyhow::Result<Process> {
    Ok(Process::spawn(name, command, &layout.file(&format!("{name}.log")))?)
}
