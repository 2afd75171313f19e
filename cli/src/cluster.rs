//! The cluster that a command is about: kubeconfig, context, namespace and timeout.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow};
use http::Request;
use kube::{
    Client, Config,
    api::{ListParams, ObjectList},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_runtime::{
    config::parse_duration,
    explain::{code, explain},
};
use serde::de::DeserializeOwned;

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

/// Asks the admin server of a Pod at this port, by way of the API server.
///
/// # Errors
/// When it can't be asked.
pub async fn ask_pod<T: DeserializeOwned>(
    client: &Client,
    (namespace, pod): (&str, &str),
    port: u16,
    path: &str,
) -> anyhow::Result<T> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}");
    let request = Request::get(path).body(Vec::new())?;
    client.request(request).await.map_err(|error| match code(&error) {
        Some(403) => anyhow!("{}: it takes the right to get pods/proxy in namespace '{namespace}'", explain(&error)),
        _ => anyhow!("can't ask Pod '{namespace}/{pod}': {}", explain(&error)),
    })
}

/// Reads a list page by page, of so many objects each.
///
/// # Errors
/// When a page can't be read; those before it were taken.
pub async fn pages<K: Clone>(
    limit: u32,
    mut list: impl AsyncFnMut(&ListParams) -> kube::Result<ObjectList<K>>,
    mut take: impl FnMut(K),
) -> kube::Result<()> {
    let mut parameters = ListParams::default().limit(limit);
    loop {
        let page = list(&parameters).await?;
        page.items.into_iter().for_each(&mut take);
        let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else { return Ok(()) };
        parameters.continue_token = Some(token);
    }
}

impl Cluster {
    /// Namespace and name of a Pod that is named as `drain` and `kubectl` do it, with or without `pod/` before.
    pub fn pod<'a>(&'a self, named: &'a str) -> (&'a str, &'a str) {
        self.split(named.strip_prefix("pod/").unwrap_or(named))
    }

    /// Splits `NAMESPACE/NAME`; a name alone is in the namespace of the context.
    #[must_use]
    pub fn split<'a>(&'a self, named: &'a str) -> (&'a str, &'a str) {
        named.split_once('/').unwrap_or((&self.namespace, named))
    }
}
