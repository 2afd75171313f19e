//! A second API server on the same etcd, as clusters have several.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;

use super::{ControlPlane, Lag, admin, client_of, commands, spawn, until_ready};
use crate::{
    process::Process,
    toolchain::{self, ControlPlanePrograms},
};

/// A running API server beside the control plane's own. It ends when this is dropped: drop it before the control plane.
#[derive(Debug)]
pub struct AnotherApiServer {
    process: Process,
    address: SocketAddr,
    url: String,
}

impl AnotherApiServer {
    /// The address it listens at: with the first one's port, so that one name can stand for both.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl ControlPlane {
    /// Starts another API server, and returns when it is ready.
    pub async fn start_another_api_server(&self) -> anyhow::Result<AnotherApiServer> {
        self.another(self.layout.etcd_client_port, &[]).await
    }

    /// The same with more flags: an API server that speaks what the first one does not.
    pub async fn start_api_server_with(&self, flags: &[&str]) -> anyhow::Result<AnotherApiServer> {
        self.another(self.layout.etcd_client_port, flags).await
    }

    /// The same of the [neighbouring](toolchain::neighbouring_api_server) minor version, as while a cluster is upgraded.
    pub async fn start_neighbouring_api_server(&self) -> anyhow::Result<AnotherApiServer> {
        let kube_apiserver = toolchain::built(toolchain::neighbouring_api_server).await?;
        self.another_of(
            &ControlPlanePrograms { kube_apiserver, ..self.programs.clone() },
            self.layout.etcd_client_port,
            &[],
        )
        .await
    }

    /// Starts another API server that can be held in the past.
    pub async fn start_lagging_api_server(&self) -> anyhow::Result<(AnotherApiServer, Lag)> {
        let lag = Lag::to(self.layout.etcd()).await.context("find a free port")?;
        Ok((self.another(lag.address().port(), &[]).await?, lag))
    }

    async fn another(&self, etcd: u16, flags: &[&str]) -> anyhow::Result<AnotherApiServer> {
        self.another_of(&self.programs, etcd, flags).await
    }

    async fn another_of(
        &self,
        programs: &ControlPlanePrograms,
        etcd: u16,
        flags: &[&str],
    ) -> anyhow::Result<AnotherApiServer> {
        let address = SocketAddr::from((AnotherApiServer::ADDRESS, self.layout.api_port));
        let mut command = commands::api_server(programs, &self.layout, &self.options, etcd);
        // Of a flag that is given twice the last one counts.
        command.arg(format!("--bind-address={}", address.ip())).args(flags);
        let process = spawn("kube-apiserver-2", &command, &self.layout)?;
        let url = format!("https://{address}");
        let kubeconfig = self.layout.file("kubeconfig-2");
        admin::write(&kubeconfig, &url, &self.credentials.ca, &self.credentials.admin_token, "default")?;
        until_ready(&client_of(&kubeconfig).await?, &[&process]).await?;
        Ok(AnotherApiServer { process, address, url })
    }
}
