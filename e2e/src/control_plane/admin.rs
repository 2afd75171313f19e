//! The administrator's way in: kubeconfig and client.

use std::fs;

use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::{ControlPlaneError, commands::Layout, credentials::Credentials};

/// Writes the kubeconfig and returns a client that uses it.
pub(super) async fn write_kubeconfig(layout: &Layout, credentials: &Credentials) -> Result<Client, ControlPlaneError> {
    let text = kubeconfig(&layout.url(), credentials.ca.as_bytes(), &credentials.admin_token);
    let path = layout.kubeconfig();
    fs::write(&path, &text).map_err(|source| ControlPlaneError::File { action: "write", path, source })?;
    client(&text).await.map_err(ControlPlaneError::Client)
}

/// A kubeconfig without references to files. JSON is YAML as well.
fn kubeconfig(url: &str, ca: &[u8], token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        // Bytes are base64 in JSON, as the field wants them.
        "clusters": [{"name": "e2e", "cluster": {
            "server": url,
            "certificate-authority-data": ByteString(ca.to_vec()),
        }}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "admin"}}],
        "current-context": "e2e",
    });
    format!("{config:#}\n")
}

async fn client(kubeconfig: &str) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
