//! cert-manager, with self-signed certificates.

use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt as _, api::DynamicObject};
use ringside_e2e::{checker::Change, toolchain::Operator};
use serde_json::{Value, json};

use super::{
    controller::{Controller, ready},
    objects::name,
    scenario::SOLO,
};

const ISSUER: &str = "
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self-signed, namespace: default}
spec: {selfSigned: {}}
";

pub(super) const CERT_MANAGER: Controller = Controller {
    operator: Operator::CertManager,
    deployment: "cert-manager",
    beside: ISSUER,
    made_beside: 0,
    kind: ["cert-manager.io", "v1", "Certificate"],
    spec,
    secret,
    is_final,
    // It deletes the requests of before the last by itself. Whose a deletion was is judged with all writes. And it creates one
    // again that it has, now and then, without shards too: where no move has to do with that.
    is_its_own: |fault| {
        fault.shard == SOLO
            || fault.change == Change::Deleted
            || (fault.change == Change::Refused && fault.moved.is_none())
    },
    // A request for each version and the key of each, beside the Secret that stays.
    again: |made, versions| {
        let [requests, secrets] = ["certificaterequests", "secrets"].map(|of| made.get(of).copied().unwrap_or(0));
        requests.saturating_sub(versions).max(secrets.saturating_sub(1 + versions))
    },
    // As seen in one run of a scenario: why is not known.
    may_again: Some(20),
};

/// What an object says of itself, which its controller puts into the Secret.
fn content(change: usize) -> String {
    format!("v{change}.example.com")
}

fn secret(index: usize) -> String {
    format!("{}-tls", name(index))
}

fn spec(index: usize, change: usize) -> Value {
    json!({
        "secretName": secret(index),
        "dnsNames": [content(change)],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {"name": "self-signed", "kind": "Issuer"},
    })
}

/// Whether a Certificate is issued as it is, and its Secret has that.
fn is_final(root: &DynamicObject, secret: &Secret, change: usize) -> bool {
    let names = secret.annotations().get("cert-manager.io/alt-names");
    ready(root).is_some_and(|ready| ready["observedGeneration"].as_i64() == root.metadata.generation)
        && root.data["status"]["nextPrivateKeySecretName"].is_null()
        && names.is_some_and(|names| *names == content(change))
}
