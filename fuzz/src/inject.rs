//! Admission reviews of pods, and what the injecting webhook answers. The input is the body.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{Webhook, uninject};

static WEBHOOK: LazyLock<Webhook> = LazyLock::new(|| {
    let ring = json!({"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
        "metadata": {"name": "example", "uid": "r"}, "spec": {"resources": []}});
    Webhook::new(&serde_json::from_value(ring).expect("a ring"), &[], &[]).expect("a webhook")
});

/// The pod as a template, which an injection can be taken off.
fn template(pod: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PodTemplate", "template": {"metadata": pod["metadata"], "spec": pod["spec"]}})
}

/// Panics when a promise is broken.
pub fn run(body: &[u8]) {
    let Some(answer) = WEBHOOK.inject(body) else { return };
    let answer: Value = serde_json::from_slice(&answer).expect("the answer is JSON");
    let response = &answer["response"];
    assert_eq!(answer["kind"], "AdmissionReview");
    let Ok(review) = serde_json::from_slice::<Value>(body) else { return };
    let Some(patch) = response.get("patch") else {
        let refused = response["allowed"] == false;
        assert_eq!(refused, response["status"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        return;
    };
    assert_eq!(response["allowed"], true);
    let patch = STANDARD.decode(patch.as_str().expect("text")).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
    let before = &review["request"]["object"];
    let mut pod = before.clone();
    json_patch::patch(&mut pod, &patch).expect("the patch fits");
    let list = |key: &str| pod["spec"][key].as_array().cloned().unwrap_or_default();
    let proxies = list("initContainers").iter().filter(|container| container["name"] == "ringside-proxy").count();
    assert_eq!(proxies, 1);
    // What the API server has mounted for the controller is the proxy's then.
    if before.to_string().contains("kube-api-access-") {
        return;
    }
    let mut back = template(&pod);
    uninject(&mut back).expect("what was added can be taken off");
    assert_eq!(back, template(before));
}
