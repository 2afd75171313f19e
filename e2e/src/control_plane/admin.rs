//! Ways in: kubeconfigs and clients.

use std::{fs, path::Path};

use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use crate::files::failed;

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
pub(super) fn write(path: &Path, kubeconfig: &str) -> anyhow::Result<()> {
    fs::write(path, kubeconfig).map_err(failed("write", path))
}

/// Makes a client that uses a kubeconfig in a file.
pub async fn client_of(path: &Path) -> anyhow::Result<Client> {
    connect(Kubeconfig::read_from(path)?).await
}

/// Makes a client that uses a kubeconfig.
pub(super) async fn client(kubeconfig: &str) -> anyhow::Result<Client> {
    connect(Kubeconfig::from_yaml(kubeconfig)?).await
}

async fn connect(kubeconfig: Kubeconfig) -> anyhow::Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
