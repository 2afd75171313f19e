//! Ways in: kubeconfigs and clients.

use std::{fs, path::Path};

use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use crate::files::failed;

/// Writes a kubeconfig without references to other files, for the bearer of a token. JSON is YAML as well.
pub(super) fn write(path: &Path, url: &str, ca: &str, token: &str, namespace: &str) -> anyhow::Result<()> {
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
    fs::write(path, format!("{config:#}\n")).map_err(failed("write", path))
}

/// Makes a client that uses a kubeconfig in a file.
pub async fn client_of(path: &Path) -> anyhow::Result<Client> {
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
