//! What the policy can't judge is at least noted: the audit log says who did it to which object.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{EvictParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::{eventually::eventually, system::NAMESPACE};
use serde_json::json;

use crate::ground::{DEADLINE, Ground, alone};

#[tokio::test]
async fn an_eviction_shows_no_owner_and_is_noted_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.yaml");
    // Without a request's body: the note is the policy's.
    let evictions = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/eviction"]}]}]});
    fs::write(&file, evictions.to_string()).unwrap();
    let mut settings = alone();
    // The later one counts.
    settings.api_server_flags.push(format!("--audit-policy-file={}", file.display()));
    let resources = json!([{"group": "web.example.com", "resource": "websites", "controlledResources": [
        {"group": "", "resource": "pods"}]}]);
    let ground = Ground::start(settings, json!({"fence": "APIServer", "resources": resources})).await;
    let (_a, b) = (ground.shard("a").await, ground.shard("b").await);
    ground.until_fenced("True").await;

    let pods: Api<Pod> = Api::namespaced(ground.admin.clone(), NAMESPACE);
    let pod = json!({"metadata": {"name": "of-a", "labels": {&ground.keys.shard: "a"}},
        "spec": {"containers": [{"name": "x", "image": "x"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let by_b: Api<Pod> = Api::namespaced(b.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"written-by": "b"}}}));
    crate::ground::refused("patch", by_b.patch("of-a", &PatchParams::default(), &patch).await);
    by_b.evict("of-a", &EvictParams::default()).await.unwrap();

    let note = "pod b: CREATE eviction of /pods default/of-a";
    eventually("the audit log has it", DEADLINE, || async {
        let log = fs::read_to_string(ground.control_plane().audit_log()).map_err(|error| error.to_string())?;
        if log.contains(note) { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
}
