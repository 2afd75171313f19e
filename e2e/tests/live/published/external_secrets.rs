//! external-secrets, with a store of its provider `fake`.

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use ringside_e2e::toolchain::Operator;
use serde_json::{Value, json};

use super::{
    controller::{Controller, ready},
    objects::name,
    scenario::SOLO,
};

/// What all name, and one that makes an ExternalSecret itself.
const BESIDE: &str = "
apiVersion: external-secrets.io/v1
kind: SecretStore
metadata: {name: store, namespace: default}
spec: {provider: {fake: {data: [{key: password, value: correct-horse}]}}}
---
apiVersion: external-secrets.io/v1
kind: ClusterExternalSecret
metadata: {name: everywhere}
spec:
  externalSecretName: everywhere
  namespaceSelectors: [{matchLabels: {kubernetes.io/metadata.name: default}}]
  refreshTime: 1m
  externalSecretSpec:
    secretStoreRef: {name: store, kind: SecretStore}
    data: [{secretKey: password, remoteRef: {key: password}}]
";

pub(super) const EXTERNAL_SECRETS: Controller = Controller {
    operator: Operator::ExternalSecrets,
    deployment: "external-secrets",
    beside: BESIDE,
    made_beside: 1,
    kind: ["external-secrets.io", "v1", "ExternalSecret"],
    spec,
    secret: name,
    is_final,
    is_its_own: |fault| fault.shard == SOLO,
    // One Secret, which stays.
    again: |made, _| made.get("secrets").copied().unwrap_or(0).saturating_sub(1),
    may_again: None,
};

/// What an object says of itself, which its controller puts into the Secret.
fn content(change: usize) -> String {
    format!("v{change}")
}

fn spec(_index: usize, change: usize) -> Value {
    json!({
        "secretStoreRef": {"name": "store", "kind": "SecretStore"},
        "refreshInterval": "1h",
        "target": {"template": {"data": {"content": content(change), "password": "{{ .password }}"}}},
        "data": [{"secretKey": "password", "remoteRef": {"key": "password"}}],
    })
}

/// Whether an ExternalSecret is synced as it is, and its Secret has that.
fn is_final(root: &DynamicObject, secret: &Secret, change: usize) -> bool {
    let data = secret.data.as_ref();
    let has = |key: &str, value: &str| data.and_then(|data| data.get(key)).is_some_and(|has| has.0 == value.as_bytes());
    let synced = root.data["status"]["syncedResourceVersion"].as_str().and_then(|version| version.split('-').next());
    ready(root).is_some()
        && synced == root.metadata.generation.map(|generation| generation.to_string()).as_deref()
        && has("content", &content(change))
        && has("password", "correct-horse")
}
