//! What the policy can't judge: it passes the API server, and the audit log says who did it to which object.

use kube::{
    ResourceExt as _,
    api::{PatchParams, PostParams},
};
use ringside_e2e::{
    audit,
    eventually::eventually,
    manifests,
    system::{Return, Settings},
};
use ringside_ring::RingName;
use serde_json::{Value, json};

use crate::api_server_fence::{
    fixture::{DEADLINE, Fixture, ask, child, config_maps, refused, touch},
    tricks::set_labels,
};

/// The shards may do all of it.
const ROLES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: what-the-fence-does-not-see}
rules:
- apiGroups: ['']
  resources: [bindings, pods/binding, pods/exec, pods/proxy]
  verbs: ['*']
- {apiGroups: [apps], resources: [deployments, deployments/scale], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: what-the-fence-does-not-see}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: what-the-fence-does-not-see}
subjects:
- {kind: ServiceAccount, name: website-controller, namespace: default}
";

/// Objects of shard `a`, all with the name `of-a`: where they are created, and what they say.
const OBJECTS: [(&str, &str); 2] = [
    ("/api/v1/namespaces/default/pods", r#"{"spec": {"containers": [{"name": "x", "image": "x"}]}}"#),
    (
        "/apis/apps/v1/namespaces/default/deployments",
        r#"{"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}}}"#,
    ),
];

const BINDING: &str = r#"{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "of-a"},
    "target": {"kind": "Node", "name": "x"}}"#;
const EVICTION: &str = r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "of-a"}}"#;

/// Requests about them that show no owner: method, path below that of core resources, body, and what the audit log says of
/// them. The last one takes the Pod away.
const UNSEEN: [(&str, &str, &str, &str); 5] = [
    ("POST", "pods/of-a/exec?command=x", "", "CONNECT exec of /pods"),
    ("GET", "pods/of-a/proxy/", "", "CONNECT proxy of /pods"),
    // Done once below.
    ("POST", "bindings?dryRun=All", BINDING, "CREATE of /bindings"),
    ("POST", "pods/of-a/binding", BINDING, "CREATE binding of /pods"),
    ("POST", "pods/of-a/eviction", EVICTION, "CREATE eviction of /pods"),
];

/// An API server that writes down all requests.
fn audited() -> Settings {
    Settings { audit_requests: true, ..Settings::without_label_policies() }
}

pub(crate) async fn what_shows_no_owner_is_noted_in_the_audit_log_with_pod_and_object() {
    let resources = json!([
        {"group": "web.example.com", "resource": "websites", "controlledResources": [{"group": "", "resource": "pods"}]},
        {"group": "apps", "resource": "deployments"}]);
    let fixture = Fixture::start(audited(), json!({"fence": "APIServer", "resources": resources})).await;
    manifests::apply(&fixture.admin, &manifests::parse(ROLES).unwrap()).await.unwrap();
    let (fixture, _a, b) = fixture.with_shards().await;
    for (collection, object) in OBJECTS {
        let mut object: Value = serde_json::from_str(object).unwrap();
        object["metadata"] = json!({"name": "of-a", "labels": {&fixture.keys.shard: "a"}});
        ask(&fixture.admin, "POST", collection, &object.to_string()).await.unwrap();
        let late = r#"{"metadata": {"annotations": {"written-by": "b"}}}"#;
        refused("what shows its owner", ask(&b, "PATCH", &format!("{collection}/of-a"), late).await);
    }
    let labelled = json!({"name": "of-a", "labels": {&fixture.keys.shard: "b"}}).to_string();
    let labelled = BINDING.replace(r#"{"name": "of-a"}"#, &labelled);
    for path in ["/api/v1/namespaces/default/bindings", "/api/v1/namespaces/default/pods/of-a/binding"] {
        refused("a Binding with a shard's label", ask(&b, "POST", path, &labelled).await);
    }
    let scale = format!("{}/of-a/scale", OBJECTS[1].0);
    ask(&b, "PATCH", &scale, r#"{"spec": {"replicas": 1}}"#).await.unwrap();
    let mut notes = vec!["pod b: UPDATE scale of apps/deployments default/of-a".to_owned()];
    for (method, path, body, note) in UNSEEN {
        match ask(&b, method, &format!("/api/v1/namespaces/default/{path}"), body).await {
            // There is no node that would carry it out.
            Err(kube::Error::Api(status)) if note.starts_with("CONNECT") && status.code != 403 => {}
            outcome => drop(outcome.unwrap_or_else(|error| panic!("{note}: {error}"))),
        }
        notes.push(format!("pod b: {note} default/of-a"));
    }
    until_noted(&fixture, &notes).await;
}

/// Returns when the audit log has these notes of what passed in this order, and no other.
async fn until_noted(fixture: &Fixture, expected: &[String]) {
    let key = format!("{}/unseen", fixture.ring.parse::<RingName>().unwrap().made_for());
    eventually("the audit log has all of them, and nothing else", DEADLINE, || async {
        // Of what connects it writes down the beginning as well.
        let log = audit::events(&fixture.system.control_plane().audit_log(), r#""stage":"ResponseComplete""#);
        let notes: Vec<_> = log
            .map_err(|error| error.to_string())?
            .iter()
            .filter(|event| event["responseStatus"]["code"] != 403)
            .filter_map(|event| event["annotations"][&key].as_str().map(str::to_owned))
            .collect();
        if notes == expected { Ok(()) } else { Err(format!("{notes:#?}")) }
    })
    .await
    .unwrap();
}

/// No sharder says whose its owner is, so any shard may create it; it is moved there later. What has no owner meanwhile
/// is taken by no shard.
pub(crate) async fn a_child_that_is_created_while_no_sharder_answers_goes_to_its_owners_shard_later() {
    let fixture = Fixture::start(audited(), json!({"fence": "APIServer"})).await;
    let (mut fixture, a, b) = fixture.with_shards().await;
    let website = fixture.website_of("a").await;
    fixture.system.kill_sharders().await.unwrap();
    let name = website.name_any();
    fixture.label(&name, None, None).await;
    refused("taking what has no owner", set_labels(&b, &name, json!({&fixture.keys.shard: "b"})).await);
    fixture.label(&name, Some("a"), None).await;
    // Of this one no client asks whose it is. The log has it before the next.
    let mut unowned = child(&website, "alone");
    unowned.metadata.owner_references = None;
    config_maps(&b).create(&PostParams::default(), &unowned).await.unwrap();
    let made = config_maps(&b).create(&PostParams::default(), &child(&website, "child")).await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata), None);
    until_noted(&fixture, &["pod b: CREATE of /configmaps default/child".to_owned()]).await;
    fixture.system.return_sharders(Return::SamePod).await.unwrap();
    eventually("it is with its owner's shard", DEADLINE, || async {
        let now = config_maps(&fixture.admin).get("child").await.map_err(|error| error.to_string())?;
        let shard = fixture.shard_of(&now.metadata);
        if shard.as_deref() == Some("a") { Ok(()) } else { Err(format!("{shard:?} has it")) }
    })
    .await
    .unwrap();
    refused("a later write", config_maps(&b).patch("child", &PatchParams::default(), &touch()).await);
    config_maps(&a).patch("child", &PatchParams::default(), &touch()).await.unwrap();
}
