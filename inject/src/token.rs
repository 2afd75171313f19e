//! The token of the pod's service account: a volume of the proxy's own, and what stood in the token's folder before.

use serde_json::{Value, json};

use crate::{Kind, TOKEN_FOLDER, resolved};

/// The volume with the token. Other injectors can be told its name.
pub const TOKEN_VOLUME: &str = "ringside-token";
/// How the volumes begin that the API server adds to pods for that folder.
const OF_API_SERVER: &str = "kube-api-access-";
/// How long a token is valid; the kubelet asks for another before. As the API server's own volumes have it.
const SECONDS: u32 = 3607;
/// The volume's file of the pod's namespace.
const NAMESPACE: &str = "namespace";
/// Where a controller's container shows that file, and nothing else of the volume.
pub(super) const SIGN: &str = "/var/run/secrets/ringside.dev/serviceaccount";

/// The volume, as the API server makes it for pods. So a pod needs no `automountServiceAccountToken`.
pub(super) fn volume() -> Value {
    let namespace = json!({"path": NAMESPACE, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": TOKEN_VOLUME, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}

/// The proxy's mount.
pub(super) fn mount() -> Value {
    json!({"name": TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": true})
}

/// A mount of the volume for a container that talks to the proxy. It has no token. Vault's injector gives its agent the volume of the
/// first mount with `serviceaccount` in its path: this stands before the mount of the proxy's folder.
pub(super) fn sign() -> Value {
    json!({"name": TOKEN_VOLUME, "mountPath": SIGN, "subPath": NAMESPACE, "readOnly": true})
}

/// Where a container mounts the token of the pod's service account: by the API server, or by hand as that does.
pub(super) fn mounted(kind: Kind, volumes: &[Value], mounts: &[Value]) -> Option<usize> {
    let is_token = |mount: &Value| {
        let path = mount["mountPath"].as_str().unwrap_or_default();
        let is_folder = resolved(path) == resolved(TOKEN_FOLDER) && mount.get("subPath").is_none();
        let mut of_mount = volumes.iter().filter(|volume| volume["name"] == mount["name"]);
        is_folder && (is_added(kind, mount) || of_mount.any(has_token))
    };
    mounts.iter().position(is_token)
}

/// Whether the API server has added a mount.
pub(super) fn is_added(kind: Kind, mount: &Value) -> bool {
    kind == Kind::Pod && mount["name"].as_str().is_some_and(|volume| volume.starts_with(OF_API_SERVER))
}

/// Whether a volume has a token of the pod's service account for the API server.
#[must_use]
pub fn has_token(volume: &Value) -> bool {
    let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
    let mut tokens = sources.into_iter().flatten().filter_map(|source| source.get("serviceAccountToken"));
    tokens.any(|token| token["path"] == "token" && token["audience"].as_str().unwrap_or_default().is_empty())
}
