//! The permissions of `deploy/`: what sharder and proxies do under them, and what the bearer of the sharder's token can't do.

use std::{path::Path, time::Duration};

use http::{Request, header::CONTENT_TYPE};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy, authentication::v1::TokenRequest, core::v1::ServiceAccount,
    flowcontrol::v1::FlowSchema,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use ringside_e2e::{
    audit::{self, Requests},
    case,
    control_plane::client_of,
    eventually::eventually,
    live::Group,
    manifests,
    plain_shard::LEASE_RING,
    system::{NAMESPACE, RING, SHARDER_USER, Settings, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, cluster_ring::SHARDER_NAMESPACE};
use serde_json::{Value, json};

use self::Outcome::{Forbidden, Guarded, Passed};

mod foreign;

use foreign::foreign_leases_change_nothing;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "rights",
        vec![
            case!(no_request_of_sharder_or_proxies_is_refused).works(),
            case!(stolen_sharder_token_changes_labels_of_rings_alone),
            case!(foreign_leases_change_nothing).works(),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);
const OBJECTS: usize = 24;
/// What the sharder's own webhook configurations say.
const OURS: &str = "app.kubernetes.io/managed-by";

async fn no_request_of_sharder_or_proxies_is_refused() {
    let mut system = System::start(Settings { audit_requests: true, ..Settings::default() }).await.unwrap();
    let log = system.control_plane().audit_log();
    let (mut sharder, mut shards) = (Requests::of(log.clone(), SHARDER_USER), Requests::of(log, &system.shards_user()));
    system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&Workload::idle("site", OBJECTS), DEADLINE).await.unwrap();
    system.add_shard("shard-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.remove_shard("shard-0").await.unwrap();
    system.kill_shard("shard-1").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let leader = system.leading_sharder(DEADLINE).await.unwrap();
    system.stop_sharder(&leader).await.unwrap();
    system.leading_sharder(DEADLINE).await.unwrap();
    // With the fence, and without the ring.
    let client = system.control_plane().client();
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let fenced = Patch::Merge(json!({"spec": {"fence": "APIServer"}}));
    rings.patch(RING, &PatchParams::default(), &fenced).await.unwrap();
    system.until_fenced(DEADLINE).await.unwrap();
    rings.delete(RING, &DeleteParams::default()).await.unwrap();
    let labelled = ListParams::default().labels(&RingLabels::of(&RING.parse().unwrap()).shard);
    eventually("no object has labels of the ring", DEADLINE, || async {
        let left = Api::<Website>::all(client.clone()).list_metadata(&labelled).await;
        let left = left.map_err(|error| error.to_string())?.items.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} have some")) }
    })
    .await
    .unwrap();

    let (sharder, shards) = (sharder.since().unwrap(), shards.since().unwrap());
    assert!(sharder.len() > OBJECTS && shards.len() > OBJECTS, "{} and {}", sharder.len(), shards.len());
    // The probe of policies is refused by the sharder's own policy.
    let is_probe = |request: &audit::Request| {
        request.uri.contains("dryRun=All") && (request.name.is_empty() || request.name == "ringside-sharder-probe")
    };
    let refused = sharder.iter().chain(&shards).filter(|request| request.code == 403 && !is_probe(request));
    let refused: Vec<_> = refused.map(|request| format!("{} {}", request.verb, request.uri)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The guard refused it, by one of its sentences.
    Guarded,
    /// RBAC refused it.
    Forbidden,
    Other(String),
}

/// A request: its method, the path of its object, or of a collection, and its body.
type Attempt<'a> = (&'a str, String, Value);

fn request<B: From<Vec<u8>>>((method, path, body): &Attempt<'_>) -> Request<B> {
    let is_patch = *method == "PATCH";
    let kind = if is_patch { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request::builder().method(*method).uri(path).header(CONTENT_TYPE, kind).body(bytes.into()).unwrap()
}

async fn ask(client: &Client, attempt: &Attempt<'_>) -> Outcome {
    match client.request_text(request(attempt)).await {
        Ok(_) => Passed,
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("cannot") => Forbidden,
        Err(error) => {
            let text = error.to_string();
            let is_guarded = text.contains("ringside-sharder-guard") && text.contains("the sharder ");
            if is_guarded { Guarded } else { Outcome::Other(text) }
        }
    }
}

/// Makes one attempt after the other, and fails unless this comes of each.
async fn all<'a>(client: &Client, attempts: impl IntoIterator<Item = Attempt<'a>>, expected: Outcome) {
    for attempt in attempts {
        assert_eq!(ask(client, &attempt).await, expected, "{attempt:?}");
    }
}

/// Waits until this comes of an attempt: an API server looks for new policies once a second.
async fn until(client: &Client, attempt: impl Fn() -> Attempt<'static>, expected: Outcome) {
    eventually(&format!("{expected:?}"), DEADLINE, || async {
        let outcome = ask(client, &attempt()).await;
        if outcome == expected { Ok(()) } else { Err(format!("{outcome:?}")) }
    })
    .await
    .unwrap();
}

/// A client with a token of the sharder's account, while rings of Secrets, ConfigMaps, Deployments and Websites give it the most
/// that a sharder has.
async fn thief(system: &System) -> Client {
    let resources = json!([
        {"resource": "secrets"}, {"resource": "configmaps"}, {"group": "apps", "resource": "deployments"},
        {"group": "web.example.com", "resource": "websites"}]);
    let ring = ClusterRing::new("stolen", serde_json::from_value(json!({"resources": resources})).unwrap());
    system.allow(&ring, &[NAMESPACE]).await.unwrap();
    client_as(system, SHARDER_NAMESPACE, "ringside-sharder").await
}

/// A client with a token of this account.
async fn client_as(system: &System, namespace: &str, account: &str) -> Client {
    let plane = system.control_plane();
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), namespace);
    let request = (PostParams::default(), TokenRequest::default());
    let answer = accounts.create_token_request(account, &request.0, &request.1).await.unwrap();
    let kubeconfig = system.dir().join(format!("{account}-alone.kubeconfig"));
    plane.write_kubeconfig(&kubeconfig, &answer.status.unwrap().token, NAMESPACE).unwrap();
    client_of(&kubeconfig).await.unwrap()
}

fn admission(resource: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{resource}")
}

async fn stolen_sharder_token_changes_labels_of_rings_alone() {
    let system = System::start(Settings::default()).await.unwrap();
    let (admin, thief) = (system.control_plane().client(), thief(&system).await);
    // Another one each time: what changes nothing passes.
    let steal = || {
        let password = json!({"stringData": {"password": rand::random::<u64>().to_string()}});
        ("PATCH", "/api/v1/namespaces/default/secrets/secret".to_owned(), password)
    };
    let objects = given(&admin).await;
    until(&thief, steal, Guarded).await;
    let keys = RingLabels::of(&"stolen".parse().unwrap());
    let labels = |path: &String, labels: Value| ("PATCH", path.clone(), json!({"metadata": {"labels": labels}}));
    for path in &objects {
        // It sets, changes and takes off the ring's labels, and nothing beside them.
        let [both, another, none] = [
            json!({&keys.shard: "a", &keys.drain: "b"}),
            json!({&keys.shard: "c"}),
            json!({&keys.shard: null, &keys.drain: null}),
        ];
        all(&thief, [labels(path, both), labels(path, another), labels(path, none)], Passed).await;
        all(&thief, [labels(path, json!({&keys.shard: "a", "app": "stolen"}))], Guarded).await;
    }
    parts(&thief).await;
    leases(&admin, &thief).await;
    webhooks(&admin, &thief).await;
    injectors(&admin, &thief).await;
    names(&thief).await;
    priorities(&admin, &thief).await;

    // Without the guard the Secret is the thief's: these refusals were its own.
    let binding = admission("validatingadmissionpolicybindings/ringside-sharder-guard");
    all(&admin, [("DELETE", binding, Value::Null)], Passed).await;
    until(&thief, steal, Passed).await;
    system.check().unwrap();
}

/// Creates objects as the administrator; returns their paths.
async fn given(admin: &Client) -> Vec<String> {
    let meta = |name: &str| json!({"name": name, "labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["example.com/kept"]});
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let deployment = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let mut paths = Vec::new();
    for (collection, object) in [
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": meta("secret"), "stringData": {"password": "right"}}),
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": meta("large"), "data": {"x": "x".repeat(1_000_000)}}),
        ),
        ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "bare"}})),
        ("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": meta("web"), "spec": deployment})),
        (
            "/apis/web.example.com/v1/namespaces/default/websites",
            json!({"apiVersion": "web.example.com/v1", "kind": "Website", "metadata": meta("site"), "spec": {"content": "x"}}),
        ),
    ] {
        paths.push(format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap()));
        all(admin, [("POST", collection.to_owned(), object)], Passed).await;
    }
    paths
}

/// All that an object has beside labels.
async fn parts(thief: &Client) {
    let large = "/api/v1/namespaces/default/configmaps/large";
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "bare", "uid": "1"}]);
    let patches = [
        json!({"data": {"x": "y"}}),
        json!({"data": null}),
        json!({"immutable": true}),
        json!({"metadata": {"annotations": {"a": "c"}}}),
        json!({"metadata": {"annotations": null}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"labels": {"app": null}}}),
        json!({"metadata": {"ownerReferences": owner}}),
    ];
    all(thief, patches.map(|patch| ("PATCH", large.to_owned(), patch)), Guarded).await;
    let deployment = "/apis/apps/v1/namespaces/default/deployments/web".to_owned();
    all(thief, [("PATCH", deployment, json!({"spec": {"replicas": 9}}))], Guarded).await;
}

/// Leases: those of shards, and no others.
async fn leases(admin: &Client, thief: &Client) {
    let of = |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let held = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": name}});
    let shard = json!({LEASE_RING: "stolen"});
    let made = [held("election", json!({})), held("shard", shard.clone())];
    all(admin, made.map(|lease| ("POST", of(NAMESPACE), lease)), Passed).await;
    let taken = json!({"spec": {"holderIdentity": "thief"}});
    let [election, shards] = ["election", "shard"].map(|name| format!("{}/{name}", of(NAMESPACE)));
    let guarded = [
        ("PATCH", election.clone(), taken.clone()),
        ("PATCH", election.clone(), json!({"metadata": {"labels": shard}})),
        ("DELETE", election, Value::Null),
    ];
    all(thief, guarded, Guarded).await;
    all(thief, [("PATCH", shards.clone(), taken.clone()), ("DELETE", shards, Value::Null)], Passed).await;
    let elsewhere = format!("{}/any", of("kube-system"));
    all(thief, [("PATCH", elsewhere.clone(), taken), ("DELETE", elsewhere, Value::Null)], Forbidden).await;
}

/// Webhook configurations: those of rings and of the sharder, and no others.
async fn webhooks(admin: &Client, thief: &Client) {
    let (collection, ours) = (admission("mutatingwebhookconfigurations"), json!({OURS: "ringside-sharder"}));
    let create = |name: &str, labels: &Value| {
        ("POST", collection.clone(), json!({"metadata": {"name": name, "labels": labels}}))
    };
    let adopt = |name: &str| ("PATCH", format!("{collection}/{name}"), json!({"metadata": {"labels": ours}}));
    let delete = |name: &str| ("DELETE", format!("{collection}/{name}"), Value::Null);
    // The second has the name that another project gives to its own.
    for name in ["foreign", "sharding-clusterring-50d858e0-example"] {
        let foreign = create(name, &json!({}));
        all(thief, [foreign.clone()], Guarded).await;
        all(admin, [foreign], Passed).await;
        all(thief, [adopt(name), delete(name)], Guarded).await;
    }
    all(thief, [create("another", &ours)], Guarded).await;
    let own = "sharding-clusterring-50d858e0-own";
    all(thief, [create(own, &ours), adopt(own), delete(own)], Passed).await;
}

/// The configurations of the injecting webhook: with its component alone, and where they lead to the sharder.
async fn injectors(admin: &Client, thief: &Client) {
    let write = |name: &str, client_config: Value| {
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
        let webhook = json!({"name": "inject.ringside.dev", "clientConfig": client_config, "rules": rules,
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let metadata = json!({"name": name, "labels": {OURS: "ringside-sharder"}});
        let path = admission("mutatingwebhookconfigurations?dryRun=All");
        ("POST", path, json!({"metadata": metadata, "webhooks": [webhook]}))
    };
    let [pods, namespaces, sidecars] =
        ["ringside-injector", "ringside-injector-namespaces", "ringside-injector-sidecars"];
    let service = |namespace, name| json!({"service": {"namespace": namespace, "name": name, "path": "/inject"}});
    let own = || service(SHARDER_NAMESPACE, "ringside-sharder");
    all(thief, [write(pods, own())], Guarded).await;

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize/components/injector/guard.yaml");
    let patch: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    let guard: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    guard.patch("ringside-sharder-guard", &PatchParams::default(), &patch).await.unwrap();
    until(thief, || write(pods, own()), Passed).await;
    until(thief, || write(namespaces, own()), Passed).await;
    until(thief, || write(sidecars, own()), Passed).await;
    let elsewhere = [
        write(pods, json!({"url": "https://elsewhere.example"})),
        write(namespaces, service("default", "ringside-sharder")),
        write(namespaces, service(SHARDER_NAMESPACE, "another")),
        write("another", own()),
    ];
    all(thief, elsewhere, Guarded).await;
}

/// What RBAC alone refuses.
async fn names(thief: &Client) {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let binding = json!({"metadata": {"name": "thief"}, "roleRef": role});
    let attempts = [
        ("PATCH", admission("validatingadmissionpolicies/foreign"), json!({"metadata": {"labels": {"a": "b"}}})),
        ("POST", admission("validatingadmissionpolicies"), json!({"metadata": {"name": "foreign"}, "spec": {}})),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(), binding),
        ("POST", "/api/v1/namespaces/ringside-system/secrets".to_owned(), json!({"metadata": {"name": "another"}})),
    ];
    all(thief, attempts, Forbidden).await;
}

/// Its Leases and its writes do not wait behind lists: the API server applies these FlowSchemas to them.
async fn priorities(admin: &Client, thief: &Client) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/flow-schemas.yaml");
    manifests::apply(admin, &manifests::read(&file).unwrap()).await.unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ringside-system/leases/ringside-sharder".to_owned();
    let secret = "/api/v1/namespaces/default/secrets/secret?dryRun=All".to_owned();
    for (schema, attempt) in [
        ("ringside-leases", ("GET", lease, Value::Null)),
        ("ringside-sharder-writes", ("PATCH", secret, json!({"metadata": {"labels": {}}}))),
    ] {
        let uid = Api::<FlowSchema>::all(admin.clone()).get(schema).await.unwrap().metadata.uid.unwrap();
        eventually(&format!("{schema} applies"), DEADLINE, || async {
            let answer = thief.send(request::<Body>(&attempt)).await.unwrap();
            let applied = answer.headers()["x-kubernetes-pf-flowschema-uid"].to_str().unwrap();
            if applied == uid { Ok(()) } else { Err(applied.to_owned()) }
        })
        .await
        .unwrap();
    }
}
