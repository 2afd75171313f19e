//! The cluster that a command is about: kubeconfig, context, namespace and timeout.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_runtime::config::parse_duration;

use crate::output::Format;

/// Options that all commands have.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// Kubeconfig file; without it as kubectl finds one, or the service account of the pod.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one without it.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of what is named without one; the context's without it.
    #[arg(long, short, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How the result is printed.
    #[arg(long, short, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// How long a request may take, and what is waited for.
    #[arg(long, global = true, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub timeout: Duration,
}

impl Global {
    /// Connects to the API server of the context.
    ///
    /// # Errors
    /// When no kubeconfig tells where it is.
    pub async fn connect(&self) -> anyhow::Result<Cluster> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match &self.kubeconfig {
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(file)
                    .with_context(|| format!("can't read {}: name an existing kubeconfig file", file.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(anyhow::Error::from)
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await.map_err(anyhow::Error::from),
            None => Config::infer().await.map_err(anyhow::Error::from),
        };
        let mut config = config.context("no cluster: set KUBECONFIG, or name a file with --kubeconfig")?;
        config.read_timeout = Some(self.timeout);
        // Else the time that a connection was idle counts against its next request.
        config.reset_reader_on_write = true;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).with_context(|| format!("can't speak to the API server at {server}"))?;
        Ok(Cluster { client, namespace, server })
    }
}

/// A connected cluster.
#[derive(Clone)]
pub struct Cluster {
    /// A client of its API server.
    pub client: Client,
    /// The namespace of what is named without one.
    pub namespace: String,
    /// The API server's URL, for messages.
    pub server: String,
}

impl Cluster {
    /// Splits `NAMESPACE/NAME`; a name alone is in the namespace of the context.
    #[must_use]
    pub fn split<'a>(&'a self, named: &'a str) -> (&'a str, &'a str) {
        named.split_once('/').unwrap_or((&self.namespace, named))
    }
}
