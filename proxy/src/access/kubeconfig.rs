//! The kubeconfig for the controller, all in one file.

use std::net::SocketAddr;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// Renders it. As JSON, which is YAML.
pub(super) fn render(listen: SocketAddr, ca: &str, token: &str, namespace: &str) -> String {
    // Kubernetes' type for bytes writes itself in base64.
    let ca = json!(ByteString(ca.as_bytes().to_vec()));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "ringside", "cluster": { "server": server(listen), "certificate-authority-data": ca } }],
        "users": [{ "name": "ringside", "user": { "token": token } }],
        "contexts": [{
            "name": "ringside",
            "context": { "cluster": "ringside", "user": "ringside", "namespace": namespace },
        }],
        "current-context": "ringside",
    });
    pretty(&config)
}

/// The address that reaches a listener: one that listens everywhere is reached on loopback.
fn server(listen: SocketAddr) -> String {
    let reached = match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port())),
        other => other,
    };
    format!("https://{reached}")
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
