//! The kubeconfig for the controller, all in one file.

use std::net::SocketAddr;

use k8s_openapi::ByteString;
use ringside_runtime::config::reached_at;
use serde_json::{Value, json};

/// Renders it. As JSON, which is YAML.
pub(super) fn render(listen: SocketAddr, ca: &str, token: &str, namespace: &str) -> String {
    // Kubernetes' type for bytes writes itself in base64.
    let ca = json!(ByteString(ca.as_bytes().to_vec()));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "ringside", "cluster": { "server": format!("https://{}", reached_at(listen)), "certificate-authority-data": ca } }],
        "users": [{ "name": "ringside", "user": { "token": token } }],
        "contexts": [{
            "name": "ringside",
            "context": { "cluster": "ringside", "user": "ringside", "namespace": namespace },
        }],
        "current-context": "ringside",
    });
    pretty(&config)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
