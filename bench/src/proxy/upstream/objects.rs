//! The answers: one pod as a cluster has it, alone, in a list, and in an event, in JSON and in protobuf.

use hyper::body::Bytes;
use ringside_ring::{RingLabels, RingName};
use serde_json::{Value, json};

use super::{INSIDE, POD, SHARD};

/// A list without objects.
pub(super) const EMPTY: &[u8] =
    br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1000"},"items":[]}"#;
/// What every object in protobuf begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Made once, sent as often as asked for.
pub(super) struct Objects {
    pub(super) pod: Bytes,
    /// A list of it alone.
    pub(super) one: Bytes,
    pub(super) list: Bytes,
    pub(super) event: Bytes,
    pub(super) protobuf_event: Bytes,
}

impl Objects {
    /// With a list of so many bytes.
    pub(super) fn new(list: usize) -> anyhow::Result<Self> {
        let labels = RingLabels::of(&INSIDE.parse::<RingName>()?);
        let pod = pod(&labels.shard);
        let text = pod.to_string();
        let event = format!("{}\n", json!({"type": "MODIFIED", "object": pod}));
        Ok(Self {
            one: list_of(&text, 1).into(),
            list: list_of(&text, list.div_ceil(text.len() + 1)).into(),
            event: event.into(),
            protobuf_event: protobuf_event(&pod).into(),
            pod: text.into(),
        })
    }
}

fn list_of(pod: &str, count: usize) -> String {
    let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1000"},"items":["#;
    format!("{head}{}]}}\n", vec![pod; count].join(","))
}

/// Somewhat smaller than most, with the ring's label.
fn pod(label: &str) -> Value {
    let name = POD.rsplit('/').next().unwrap_or_default();
    let owned = json!({
        "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}},
            "f:ownerReferences": {".": {}, "k:{\"uid\":\"0b7bd2a0-6d0d-4a7f-9d53-2f1c8a7a5f11\"}": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
            "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}},
    });
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": name, "generateName": "web-7d4b9c6f5d-", "namespace": "default",
            "uid": "1f0c2a9e-8a7b-4a4e-9b52-6f1f0f3b7c21", "resourceVersion": "1000",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5d", label: SHARD},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5d",
                "uid": "0b7bd2a0-6d0d-4a7f-9d53-2f1c8a7a5f11", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": owned}],
        },
        "spec": {
            "containers": [{"name": "web", "image": "registry.example.com/web:1.27.3",
                "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log"}],
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "nodeName": "node-17", "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.17", "podIP": "10.244.3.21", "startTime": "2026-01-02T03:04:05Z",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:07Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            "qosClass": "Burstable",
        },
    })
}

/// Behind its length a `metav1.WatchEvent` with a Pod: metadata by its fields, and as many bytes of a spec as JSON has.
fn protobuf_event(pod: &Value) -> Vec<u8> {
    let metadata = &pod["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().as_bytes();
    let mut fields = Vec::new();
    for (number, name) in [(1, "name"), (2, "generateName"), (3, "namespace"), (5, "uid"), (6, "resourceVersion")] {
        fields.extend(field(number, text(name)));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default().as_bytes();
        fields.extend(field(11, &[field(1, key.as_bytes()), field(2, value)].concat()));
    }
    let spec = field(10, pod["spec"].to_string().as_bytes());
    let object = [field(1, &fields), field(2, &spec)].concat();
    let kind = [field(1, b"v1"), field(2, b"Pod")].concat();
    let unknown = [MAGIC.to_vec(), field(1, &kind), field(2, &object)].concat();
    let event = [field(1, b"MODIFIED"), field(2, &field(1, &unknown))].concat();
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length, &event[..]].concat()
}

/// A field of protobuf that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    loop {
        let [low, ..] = length.to_le_bytes();
        length >>= 7;
        field.push(low & 0x7f | if length > 0 { 0x80 } else { 0 });
        if length == 0 {
            break;
        }
    }
    field.extend_from_slice(bytes);
    field
}
