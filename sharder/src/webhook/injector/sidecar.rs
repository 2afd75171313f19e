//! Makes the proxy of a pod a native sidecar again, where a webhook or a client dropped what says so.
//!
//! Who decodes a pod by types older than Kubernetes 1.28 and writes it back drops `restartPolicy` of init containers. The API server
//! then refuses the pod for the probes of the proxy, or for a change that a pod can't have.

use ringside_inject::CONTAINER;
use serde_json::{Value, json};

use super::read;
use crate::webhook::{request::Unreadable, response::Answer};

/// Answers a review of a pod that has the proxy.
pub(in crate::webhook) fn answer(body: &[u8]) -> Result<Answer, Unreadable> {
    let (request, pod) = read(body)?;
    let allow = Answer::allow(&request.uid);
    let containers = pod.pointer("/spec/initContainers").and_then(Value::as_array);
    let lost = containers.into_iter().flatten().position(|container| {
        container["name"] == CONTAINER && container.get("restartPolicy").is_none_or(Value::is_null)
    });
    let Some(at) = lost else { return Ok(allow) };
    let path = format!("/spec/initContainers/{at}/restartPolicy");
    let patch = serde_json::from_value(json!([{"op": "add", "path": path, "value": "Always"}]));
    let patch = patch.map_err(|error| Unreadable::new(body, error.to_string()))?;
    tracing::info!(namespace = request.namespace(), "made the proxy of a pod a sidecar again");
    let told = format!("another webhook or client dropped restartPolicy of {CONTAINER}, which was put back");
    Ok(allow.with_patch(&patch).with_warning(told))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use base64::{Engine, engine::general_purpose::STANDARD};

    use super::*;

    fn answered(containers: &Value) -> Value {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "n", "operation": "UPDATE",
            "object": {"metadata": {"name": "p"}, "spec": {"initContainers": containers}}}});
        serde_json::to_value(answer(&serde_json::to_vec(&review).unwrap()).unwrap()).unwrap()["response"].clone()
    }

    #[test]
    fn dropped_restart_policy_of_the_proxy_is_put_back() {
        let answer = answered(&json!([{"name": "first"}, {"name": CONTAINER}]));
        let patch = STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
        let expected = json!([{"op": "add", "path": "/spec/initContainers/1/restartPolicy", "value": "Always"}]);
        assert_eq!(serde_json::from_slice::<Value>(&patch).unwrap(), expected);
        assert!(answer["warnings"][0].as_str().unwrap().contains("restartPolicy"), "{answer}");
    }

    #[test]
    fn pod_with_its_sidecar_stays_as_it_is() {
        for containers in
            [json!([{"name": CONTAINER, "restartPolicy": "Always"}]), json!([{"name": "first"}]), json!(null)]
        {
            assert_eq!(answered(&containers), json!({"uid": "u", "allowed": true}));
        }
    }
}
