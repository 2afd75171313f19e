//! How to reach the API server, from a kubeconfig file or from inside a pod.

use std::path::{Path, PathBuf};

use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// Why it is not known how to reach the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file can't be used.
    #[error(
        "the kubeconfig '{path}' can't be used: {source}; check that it exists, is readable, and has a current context"
    )]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// This is not a pod, or its service account is not mounted.
    #[error(
        "not inside a cluster: {0}; run as a pod with its service account's token mounted, or name a file with --kubeconfig"
    )]
    InCluster(#[from] InClusterError),
}

/// Finds out how to reach the API server: from `kubeconfig`'s current context, or else as a pod.
///
/// # Errors
/// When the file, or the pod's mounted service account, can't be used.
pub async fn connect_config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let Some(path) = kubeconfig else { return Ok(Config::incluster()?) };
    let error = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
    let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(error)
}
