//! What the policy can't judge: it passes the API server, and the audit log says who did it to which object.

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use ringside_e2e::{
    audit,
    eventually::eventually,
    manifests,
    system::{NAMESPACE, Return, Settings},
};
use ringside_ring::RingName;
use serde_json::{Value, json};

use crate::api_server_fence::fixture::{DEADLINE, Fixture, child, config_maps, refused, websites};

/// The shards may do all of it, and `jane` what they may do otherwise.
const ROLES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: what-the-fence-does-not-see}
rules:
- apiGroups: ['']
  resources: [bindings, pods/attach, pods/binding, pods/exec, pods/portforward, pods/proxy, serviceaccounts, serviceaccounts/token]
  verbs: ['*']
- {apiGroups: [apps], resources: [deployments, deployments/scale], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: what-the-fence-does-not-see}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: what-the-fence-does-not-see}
subjects:
- {kind: ServiceAccount, name: website-controller, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: everything-of-the-ring-to-jane}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything-of-the-ring}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}
";

/// The shards may be whom they like.
const IMPERSONATION: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: impersonation}
rules:
- {apiGroups: [''], resources: [users], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: impersonation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonation}
subjects:
- {kind: ServiceAccount, name: website-controller, namespace: default}
";

/// Objects of shard `a`, all with the name `of-a`: kind, version, and what they say.
const OBJECTS: [(&str, &str, &str); 3] = [
    ("ServiceAccount", "v1", "{}"),
    ("Pod", "v1", r#"{"spec": {"containers": [{"name": "x", "image": "x"}]}}"#),
    (
        "Deployment",
        "apps/v1",
        r#"{"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}}}"#,
    ),
];

/// Requests about them that show no owner: method, path, body, and how the audit log is to name them. The last one takes the
/// Pod away.
const UNSEEN: [(&str, &str, &str, &str); 9] = [
    (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/of-a/scale",
        r#"{"spec": {"replicas": 1}}"#,
        "UPDATE scale of apps/deployments default/of-a",
    ),
    (
        "POST",
        "/api/v1/namespaces/default/serviceaccounts/of-a/token",
        r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}"#,
        "CREATE token of /serviceaccounts default/of-a",
    ),
    ("POST", "/api/v1/namespaces/default/pods/of-a/exec?command=x", "", "CONNECT exec of /pods default/of-a"),
    ("POST", "/api/v1/namespaces/default/pods/of-a/attach?stdout=true", "", "CONNECT attach of /pods default/of-a"),
    ("POST", "/api/v1/namespaces/default/pods/of-a/portforward", "", "CONNECT portforward of /pods default/of-a"),
    ("GET", "/api/v1/namespaces/default/pods/of-a/proxy/", "", "CONNECT proxy of /pods default/of-a"),
    (
        "POST",
        // Done once below.
        "/api/v1/namespaces/default/bindings?dryRun=All",
        r#"{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "of-a"}, "target": {"kind": "Node", "name": "x"}}"#,
        "CREATE of /bindings default/of-a",
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/of-a/binding",
        r#"{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "of-a"}, "target": {"kind": "Node", "name": "x"}}"#,
        "CREATE binding of /pods default/of-a",
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/of-a/eviction",
        r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "of-a"}}"#,
        "CREATE eviction of /pods default/of-a",
    ),
];

/// An API server that writes down all requests.
fn audited() -> Settings {
    Settings { audit_requests: true, ..Settings::without_label_policies() }
}

/// What it has written down so far of requests that were answered. (Of what connects it writes down the beginning as well.)
fn log(fixture: &Fixture) -> Vec<Value> {
    audit::events(&fixture.control_plane().audit_log(), r#""stage":"ResponseComplete""#).unwrap()
}

async fn ask(client: &Client, method: &str, path: &str, body: &str) -> kube::Result<String> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await
}

/// An object of this kind, as the administrator sees it.
fn dynamic(client: &Client, kind: &str, version: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

pub(crate) async fn what_shows_no_owner_is_noted_in_the_audit_log_with_pod_and_object() {
    let resources = json!([
        {"group": "web.example.com", "resource": "websites", "controlledResources": [
            {"group": "", "resource": "pods"}, {"group": "", "resource": "serviceaccounts"}]},
        {"group": "apps", "resource": "deployments"}]);
    let fixture = Fixture::start(audited(), json!({"fence": "APIServer", "resources": resources})).await;
    manifests::apply(&fixture.admin, &manifests::parse(ROLES).unwrap()).await.unwrap();
    let (_a, b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    for (kind, version, object) in OBJECTS {
        let mut object: Value = serde_json::from_str(object).unwrap();
        object["metadata"] = json!({"name": "of-a", "labels": {&fixture.keys.shard: "a"}});
        let object = serde_json::from_value(object).unwrap();
        dynamic(&fixture.admin, kind, version).create(&PostParams::default(), &object).await.unwrap();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"written-by": "b"}}}));
        let judged = dynamic(&b.client, kind, version).patch("of-a", &PatchParams::default(), &patch).await;
        refused("what shows its owner", judged);
    }
    for path in ["/api/v1/namespaces/default/bindings", "/api/v1/namespaces/default/pods/of-a/binding"] {
        let metadata = json!({"name": "of-a", "labels": {&fixture.keys.shard: "b"}});
        let target = json!({"kind": "Node", "name": "x"});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
        refused("a Binding with a shard's label", ask(&b.client, "POST", path, &binding.to_string()).await);
    }
    for (method, path, body, note) in UNSEEN {
        match ask(&b.client, method, path, body).await {
            // There is no node that would carry it out.
            Err(kube::Error::Api(status)) if note.starts_with("CONNECT") && status.code != 403 => {}
            outcome => drop(outcome.unwrap_or_else(|error| panic!("{note}: {error}"))),
        }
    }
    until_noted(&fixture, &UNSEEN.map(|(.., note)| format!("pod b: {note}"))).await;
}

/// Returns when the audit log has these notes of what passed in this order, and no other.
async fn until_noted(fixture: &Fixture, expected: &[String]) {
    let key = format!("{}/unseen", fixture.ring.parse::<RingName>().unwrap().made_for());
    eventually("the audit log has all of them, and nothing else", DEADLINE, || async {
        let notes: Vec<_> = log(fixture)
            .iter()
            .filter(|event| event["responseStatus"]["code"] != 403)
            .filter_map(|event| event["annotations"][&key].as_str().map(str::to_owned))
            .collect();
        if notes == expected { Ok(()) } else { Err(format!("{notes:#?}")) }
    })
    .await
    .unwrap();
}

/// A shard that may be somebody else is somebody else to the policy.
pub(crate) async fn a_write_as_somebody_else_needs_a_permission_and_is_in_the_audit_log_with_both_names() {
    let fixture = Fixture::start(audited(), json!({"fence": "APIServer"})).await;
    manifests::apply(&fixture.admin, &manifests::parse(ROLES).unwrap()).await.unwrap();
    let (_a, b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    let name = fixture.website_of("a", "mine").await.name_any();
    let path = format!("/apis/web.example.com/v1/namespaces/{NAMESPACE}/websites/{name}");
    let as_jane = async || {
        let patch = json!({"metadata": {"annotations": {"written-by": "jane"}}}).to_string();
        let request = Request::patch(&path).header("content-type", "application/merge-patch+json");
        let request = request.header("impersonate-user", "jane").body(patch.into_bytes()).unwrap();
        b.client.request_text(request).await
    };
    match as_jane().await {
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("impersonate") => {}
        other => panic!("without the permission: {other:?}"),
    }
    manifests::apply(&fixture.admin, &manifests::parse(IMPERSONATION).unwrap()).await.unwrap();
    eventually("the permission counts, and the write lands", DEADLINE, || async {
        as_jane().await.map(drop).map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    eventually("the audit log names both", DEADLINE, || async {
        let written = log(&fixture).into_iter().find(|event| {
            event["requestURI"] == *path && event["verb"] == "patch" && event["responseStatus"]["code"] == 200
        });
        let written = written.ok_or("there is none yet")?;
        let pod = &written["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
        let both = written["impersonatedUser"]["username"] == "jane" && pod == "b";
        if both { Ok(()) } else { Err(format!("{written:#}")) }
    })
    .await
    .unwrap();
}

/// Nobody says whose its owner is, so anybody may create it; it is moved there later.
pub(crate) async fn a_child_that_is_created_while_no_sharder_answers_goes_to_its_owners_shard_later() {
    let mut fixture = Fixture::start(audited(), json!({"fence": "APIServer"})).await;
    let (_a, b) = (fixture.shard("a").await, fixture.shard("b").await);
    fixture.until_fenced("True").await;
    let website = fixture.website_of("a", "mine").await;
    fixture.system.kill_sharders().await.unwrap();
    // Of this one nobody asks whose it is. The log has it before the next.
    let mut nobodys = child(&website, "alone");
    nobodys.metadata.owner_references = None;
    config_maps(&b.client).create(&PostParams::default(), &nobodys).await.unwrap();
    let made = config_maps(&b.client).create(&PostParams::default(), &child(&website, "child")).await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata), None);
    until_noted(&fixture, &["pod b: CREATE of /configmaps default/child".to_owned()]).await;
    fixture.system.return_sharders(Return::SamePod).await.unwrap();
    let found = eventually("it is with its owner's shard", DEADLINE, || async {
        let now: ConfigMap = config_maps(&fixture.admin).get("child").await.map_err(|error| error.to_string())?;
        let shard = fixture.shard_of(&now.metadata).ok_or("nobody has it")?;
        if shard == "a" { Ok(now) } else { Err(format!("{shard} has it")) }
    });
    found.await.unwrap();
    let patch = Patch::Merge(json!({"data": {"written-by": "b"}}));
    refused("a later write", config_maps(&b.client).patch("child", &PatchParams::default(), &patch).await);
}

/// It is nobody's before, so whoever creates it takes nothing from anybody.
pub(crate) async fn who_creates_a_main_object_may_name_its_shard_where_nothing_else_keeps_the_labels() {
    let (fixture, a, b) = Fixture::fenced("fence-names-shard").await;
    let mut site = ringside_e2e::website::Website::new("named", Default::default());
    site.labels_mut().insert(fixture.keys.shard.clone(), "a".to_owned());
    let made = websites(&b.client).create(&PostParams::default(), &site).await.unwrap();
    assert_eq!(fixture.shard_of(&made.metadata).as_deref(), Some("a"));
    let patch = Patch::Merge(json!({"spec": {"content": "after that"}}));
    refused("a later write", websites(&b.client).patch("named", &PatchParams::default(), &patch).await);
    websites(&a.client).patch("named", &PatchParams::default(), &patch).await.unwrap();
}
