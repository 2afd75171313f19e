//! Ways in: kubeconfigs and clients.

use std::{fs, path::Path};

use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::ControlPlaneError;

/// A kubeconfig without references to files, for the bearer of a token. JSON is YAML as well.
pub(super) fn kubeconfig(url: &str, ca: &str, token: &str, namespace: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        // Bytes are base64 in JSON, as the field wants them.
        "clusters": [{"name": "e2e", "cluster": {
            "server": url,
            "certificate-authority-data": ByteString(ca.as_bytes().to_vec()),
        }}],
        "users": [{"name": "e2e", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e", "namespace": namespace}}],
        "current-context": "e2e",
    });
    format!("{config:#}\n")
}

/// Writes a kubeconfig to a file.
pub(super) fn write(path: &Path, kubeconfig: &str) -> Result<(), ControlPlaneError> {
    fs::write(path, kubeconfig).map_err(|source| ControlPlaneError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// A client that uses a kubeconfig.
pub(super) async fn client(kubeconfig: &str) -> Result<Client, ControlPlaneError> {
    connect(kubeconfig).await.map_err(ControlPlaneError::Client)
}

async fn connect(kubeconfig: &str) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
