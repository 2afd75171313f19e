//! Admission reviews, and what the webhook answers. The input is the body.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use ringside_ring::{Ring, RingLabels, ShardName, cluster_ring::GroupResource};
use serde_json::{Value, json};

use super::Webhook;

const SHARDS: [&str; 2] = ["a", "b"];

/// Websites with ConfigMaps that they control, and Secrets without children.
static WEBHOOK: LazyLock<Webhook> = LazyLock::new(|| {
    let ring = json!({"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
        "metadata": {"name": "example", "uid": "r"}, "spec": {"resources": [
            {"group": "web.example.com", "resource": "websites", "controlledResources": [{"group": "", "resource": "configmaps"}]},
            {"group": "", "resource": "secrets"}]}});
    let ring: Ring = serde_json::from_value(ring).expect("a ring");
    let served =
        [("web.example.com", "websites", "Website"), ("", "configmaps", "ConfigMap"), ("", "secrets", "Secret")];
    let served =
        served.map(|(group, resource, kind)| (GroupResource { group: group.into(), resource: resource.into() }, kind));
    let shards: Vec<ShardName> = SHARDS.iter().map(|shard| shard.parse().expect("a name")).collect();
    Webhook::new(&ring, &served, &shards).expect("a webhook")
});

/// The labels without those that say who owns the object.
fn others(object: &Value, labels: &RingLabels) -> Value {
    let mut object = object.clone();
    let mut none = false;
    if let Some(map) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        map.remove(&labels.shard);
        map.remove(&labels.drain);
        none = map.is_empty();
    }
    // No labels map, null, and an empty one are the same.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && (none || metadata.get("labels").is_some_and(Value::is_null))
    {
        metadata.remove("labels");
    }
    object
}

/// Panics when a promise is broken.
pub fn run(body: &[u8]) {
    let answer = WEBHOOK.answer(body).expect("an answer");
    let answer: Value = serde_json::from_slice(&answer).expect("the answer is JSON");
    let response = &answer["response"];
    // Whatever it is, no client is kept from writing.
    assert_eq!((&answer["kind"], &response["allowed"]), (&json!("AdmissionReview"), &json!(true)));
    for warning in response["warnings"].as_array().into_iter().flatten() {
        assert!(warning.as_str().is_some_and(|warning| warning.len() <= 256));
    }
    let Ok(review) = serde_json::from_slice::<Value>(body) else { return };
    // Read by another way, it has the same uid, without which no answer counts.
    assert_eq!(response["uid"].as_str(), Some(review["request"]["uid"].as_str().unwrap_or_default()));
    let Some(patch) = response.get("patch") else { return };
    let patch = STANDARD.decode(patch.as_str().expect("text")).expect("base64");
    let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
    let before = &review["request"]["object"];
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).expect("the patch fits the object");
    let labels = RingLabels::of(&"example".parse().expect("a name"));
    // It says who owns the object: one of the shards, or who did before. And nothing else. What is no text is no label.
    let text = |of: &Value, key: &str| of["metadata"]["labels"][key].as_str().map(str::to_owned);
    let owner = |of: &Value| (text(of, &labels.shard), text(of, &labels.drain));
    let now = owner(&after);
    let restored = now == owner(&review["request"]["oldObject"]);
    let assigned = SHARDS.iter().any(|shard| now.0.as_deref() == Some(*shard)) && now.1.is_none();
    assert!(restored || assigned, "{now:?}");
    assert_eq!(others(before, &labels), others(&after, &labels));
}
