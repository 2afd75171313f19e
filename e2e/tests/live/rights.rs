//! The permissions of `deploy/`: what sharder and proxies do under them, and what the bearer of the sharder's token can't do.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::Method;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        },
        apps::v1::Deployment,
        authentication::v1::TokenRequest,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Secret, ServiceAccount},
        flowcontrol::v1::FlowSchema,
        rbac::v1::ClusterRoleBinding,
    },
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::plain_shard::LEASE_RING;
use ringside_e2e::{
    audit::Requests,
    case,
    compatibility::client::{Ask, Endpoint, Http},
    control_plane::client_of,
    eventually::eventually,
    live::Group,
    manifests,
    system::{NAMESPACE, SHARDER_USER, Settings, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels};
use serde_json::{Value, json};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "rights",
        vec![
            case!(no_request_of_sharder_or_proxies_is_refused).works(),
            case!(stolen_sharder_token_changes_labels_of_rings_alone),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);
const OBJECTS: usize = 24;

async fn no_request_of_sharder_or_proxies_is_refused() {
    let mut system = System::start(Settings { audit_requests: true, ..Settings::default() }).await.unwrap();
    let log = system.control_plane().audit_log();
    let (mut sharder, mut shards) = (Requests::of(log.clone(), SHARDER_USER), Requests::of(log, &system.shards_user()));
    system.start_sharding(2).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    let workload = Workload::idle("site", OBJECTS);
    system.share_out(&workload, DEADLINE).await.unwrap();
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
    rings.patch("websites", &PatchParams::default(), &fenced).await.unwrap();
    system.until_fenced(DEADLINE).await.unwrap();
    rings.delete("websites", &DeleteParams::default()).await.unwrap();
    let labelled = kube::api::ListParams::default().labels(&RingLabels::of(&"websites".parse().unwrap()).shard);
    eventually("no object has labels of the ring", DEADLINE, || async {
        let left =
            Api::<Website>::all(client.clone()).list_metadata(&labelled).await.map_err(|error| error.to_string())?;
        if left.items.is_empty() { Ok(()) } else { Err(format!("{} have some", left.items.len())) }
    })
    .await
    .unwrap();

    let (sharder, shards) = (sharder.since().unwrap(), shards.since().unwrap());
    assert!(sharder.len() > OBJECTS && shards.len() > OBJECTS, "{} and {}", sharder.len(), shards.len());
    // The probe of policies is refused by the sharder's own policy.
    let is_probe =
        |name: &str, uri: &str| uri.contains("dryRun=All") && (name.is_empty() || name == "ringside-sharder-probe");
    let refused: Vec<_> = sharder
        .iter()
        .chain(&shards)
        .filter(|request| request.code == 403 && !is_probe(&request.name, &request.uri))
        .map(|request| format!("{} {}", request.verb, request.uri))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// The bearer of a token of the sharder's account, beside an administrator.
struct Thief {
    admin: Client,
    client: Client,
    endpoint: Endpoint,
    system: System,
}

impl Thief {
    /// Steals the token while rings of Secrets, ConfigMaps, Deployments and Websites give it the most that a sharder has.
    async fn start() -> Self {
        let system = System::start(Settings::default()).await.unwrap();
        let resources = json!([
            {"resource": "secrets"}, {"resource": "configmaps"}, {"group": "apps", "resource": "deployments"},
            {"group": "web.example.com", "resource": "websites"}]);
        let ring = json!({"metadata": {"name": "stolen"}, "spec": {"resources": resources}});
        system.allow(&serde_json::from_value::<ClusterRing>(ring).unwrap(), &[NAMESPACE]).await.unwrap();
        let plane = system.control_plane();
        let admin = plane.client();
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "ringside-system");
        let request = (PostParams::default(), TokenRequest::default());
        let answer = accounts.create_token_request("ringside-sharder", &request.0, &request.1).await.unwrap();
        let token = answer.status.unwrap().token;
        let kubeconfig = system.dir().join("thief.kubeconfig");
        plane.write_kubeconfig(&kubeconfig, &token, NAMESPACE).unwrap();
        let endpoint = Endpoint::new(plane.address(), &plane.ca_path(), &token).unwrap();
        Self { admin, client: client_of(&kubeconfig).await.unwrap(), endpoint, system }
    }

    /// Creates an object as the administrator; returns the way to it as the thief.
    async fn given<K>(&self, object: Value) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        Api::namespaced(self.admin.clone(), NAMESPACE).create(&PostParams::default(), &object).await.unwrap();
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The FlowSchema that the API server applied to a request.
    async fn flow_schema(&self, ask: &Ask) -> String {
        let answer = self.endpoint.exchange(Http::Two, ask, "rights").await.unwrap();
        let uid = answer.headers.get("x-kubernetes-pf-flowschema-uid").map(|uid| uid.to_str().unwrap().to_owned());
        let all = Api::<FlowSchema>::all(self.admin.clone()).list(&Default::default()).await.unwrap();
        all.into_iter().find(|one| one.metadata.uid == uid).and_then(|one| one.metadata.name).unwrap_or_default()
    }
}

async fn merge<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<(), String>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| error.to_string())
}

/// Sets, changes and takes off the ring's labels, and nothing beside them.
async fn is_labelled<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let keys = RingLabels::of(&"stolen".parse().unwrap());
    for labels in [
        json!({&keys.shard: "a", &keys.drain: "b"}),
        json!({&keys.shard: "c"}),
        json!({&keys.shard: null, &keys.drain: null}),
    ] {
        merge(api, name, &json!({"metadata": {"labels": labels}})).await.unwrap();
    }
    let beside = json!({"metadata": {"labels": {&keys.shard: "a", "app": "stolen"}}});
    assert!(is_guarded(&merge(api, name, &beside).await), "{name}");
}

/// Whether that was refused by the guard, by one of its sentences.
fn is_guarded(outcome: &Result<(), String>) -> bool {
    outcome.as_ref().is_err_and(|text| text.contains("ringside-sharder-guard") && text.contains("the sharder "))
}

/// Whether RBAC refused that.
fn is_forbidden<T>(outcome: Result<T, kube::Error>) -> bool {
    outcome.is_err_and(
        |error| matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains("cannot")),
    )
}

async fn stolen_sharder_token_changes_labels_of_rings_alone() {
    let thief = Thief::start().await;
    let meta = |name: &str| json!({"name": name, "labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["example.com/kept"]});
    let secret = json!({"metadata": meta("secret"), "stringData": {"password": "right"}});
    let secrets: Api<Secret> = thief.given(secret).await;
    // Another one each time: what changes nothing passes.
    let attempts = AtomicUsize::new(0);
    let stolen = || json!({"stringData": {"password": format!("wrong {}", attempts.fetch_add(1, Ordering::Relaxed))}});
    // An API server looks for new policies once a second.
    eventually("the guard stands", DEADLINE, || async {
        let taken = stolen();
        let outcome = merge(&secrets, "secret", &taken).await;
        if is_guarded(&outcome) { Ok(()) } else { Err(format!("{outcome:?}")) }
    })
    .await
    .unwrap();

    objects(&thief, &meta).await;
    is_labelled(&secrets, "secret").await;
    leases(&thief).await;
    webhooks(&thief).await;
    names(&thief).await;
    priorities(&thief).await;

    // Without the guard the Secret is the thief's: these refusals were its own.
    let guards: Api<ValidatingAdmissionPolicyBinding> = Api::all(thief.admin.clone());
    guards.delete("ringside-sharder-guard", &DeleteParams::default()).await.unwrap();
    let wrong = stolen();
    eventually("the guard is gone", DEADLINE, || merge(&secrets, "secret", &wrong)).await.unwrap();
    thief.system.check().unwrap();
}

/// Honest writes pass, and dishonest ones do not, whatever the object.
async fn objects(thief: &Thief, meta: &impl Fn(&str) -> Value) {
    let large: Api<ConfigMap> =
        thief.given(json!({"metadata": meta("large"), "data": {"x": "x".repeat(1_000_000)}})).await;
    is_labelled(&large, "large").await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let deployments: Api<Deployment> = thief.given(json!({"metadata": meta("web"), "spec": spec})).await;
    is_labelled(&deployments, "web").await;
    let websites: Api<Website> =
        thief.given(json!({"metadata": meta("site"), "spec": {"content": "x", "workMillis": 1}})).await;
    is_labelled(&websites, "site").await;
    let bare: Api<ConfigMap> = thief.given(json!({"metadata": {"name": "bare"}})).await;
    is_labelled(&bare, "bare").await;
    for patch in [
        json!({"data": {"x": "y"}}),
        json!({"data": null}),
        json!({"immutable": true}),
        json!({"metadata": {"annotations": {"a": "c"}}}),
        json!({"metadata": {"annotations": null}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"labels": {"app": null}}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "bare", "uid": "1"}]}}),
    ] {
        let outcome = merge(&large, "large", &patch).await;
        assert!(is_guarded(&outcome), "{patch}: {outcome:?}");
    }
    assert!(is_guarded(&merge(&deployments, "web", &json!({"spec": {"replicas": 9}})).await));
}

/// Leases: those of shards, and no others.
async fn leases(thief: &Thief) {
    let held = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": name}});
    let leases: Api<Lease> = thief.given(held("election", json!({}))).await;
    thief.given::<Lease>(held("shard", json!({LEASE_RING: "stolen"}))).await;
    let taken = json!({"spec": {"holderIdentity": "thief"}});
    assert!(is_guarded(&merge(&leases, "election", &taken).await));
    assert!(is_guarded(&merge(&leases, "election", &json!({"metadata": {"labels": {LEASE_RING: "stolen"}}})).await));
    let deleted =
        leases.delete("election", &DeleteParams::default()).await.map(drop).map_err(|error| error.to_string());
    assert!(is_guarded(&deleted), "{deleted:?}");
    merge(&leases, "shard", &taken).await.unwrap();
    leases.delete("shard", &DeleteParams::default()).await.unwrap();
    let system: Api<Lease> = Api::namespaced(thief.client.clone(), "kube-system");
    assert!(is_forbidden(system.patch("any", &PatchParams::default(), &Patch::Merge(&taken)).await));
    assert!(is_forbidden(system.delete("any", &DeleteParams::default()).await));
}

/// Webhook configurations: those of rings and of the sharder, and no others.
async fn webhooks(thief: &Thief) {
    let of = |name: &str, labels: Value| -> MutatingWebhookConfiguration {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "webhooks": []})).unwrap()
    };
    let ours = json!({"app.kubernetes.io/managed-by": "ringside-sharder"});
    let admin: Api<MutatingWebhookConfiguration> = Api::all(thief.admin.clone());
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(thief.client.clone());
    let adopted = json!({"metadata": {"labels": ours}});
    // The second has the name that another project gives to its own.
    for name in ["foreign", "sharding-clusterring-50d858e0-example"] {
        let create = (PostParams::default(), of(name, json!({})));
        let made = webhooks.create(&create.0, &create.1).await.map(drop).map_err(|error| error.to_string());
        assert!(is_guarded(&made), "{made:?}");
        admin.create(&create.0, &create.1).await.unwrap();
        assert!(is_guarded(&merge(&webhooks, name, &adopted).await));
        let deleted = webhooks.delete(name, &DeleteParams::default()).await.map(drop);
        assert!(is_guarded(&deleted.map_err(|error| error.to_string())));
    }
    let foreign_name = webhooks.create(&PostParams::default(), &of("another", ours.clone())).await.map(drop);
    assert!(is_guarded(&foreign_name.map_err(|error| error.to_string())));
    let own = "sharding-clusterring-50d858e0-own";
    let applied = Patch::Apply(of(own, ours.clone()));
    webhooks.patch(own, &PatchParams::apply("sharder"), &applied).await.unwrap();
    webhooks.delete(own, &DeleteParams::default()).await.unwrap();
}

/// What RBAC alone refuses.
async fn names(thief: &Thief) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(thief.client.clone());
    let emptied = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let policy = serde_json::from_value(json!({"metadata": {"name": "foreign"}, "spec": {}})).unwrap();
    assert!(is_forbidden(policies.patch("foreign", &PatchParams::default(), &emptied).await));
    assert!(is_forbidden(policies.create(&PostParams::default(), &policy).await));
    let bindings: Api<ClusterRoleBinding> = Api::all(thief.client.clone());
    let binding = json!({"metadata": {"name": "thief"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "cluster-admin"}});
    assert!(is_forbidden(bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await));
    let own: Api<Secret> = Api::namespaced(thief.client.clone(), "ringside-system");
    let another = serde_json::from_value(json!({"metadata": {"name": "another"}})).unwrap();
    assert!(is_forbidden(own.create(&PostParams::default(), &another).await));
}

/// Its Leases and its writes do not wait behind lists.
async fn priorities(thief: &Thief) {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/flow-schemas.yaml");
    manifests::apply(&thief.admin, &manifests::read(&schemas).unwrap()).await.unwrap();
    let lease = Ask::get("/apis/coordination.k8s.io/v1/namespaces/ringside-system/leases/ringside-sharder");
    let write = Ask::new(Method::PATCH, "/api/v1/namespaces/default/secrets/secret?dryRun=All")
        .body("application/merge-patch+json", r#"{"metadata":{"labels":{}}}"#);
    for (ask, schema) in [(lease, "ringside-leases"), (write, "ringside-sharder-writes")] {
        eventually("the FlowSchema applies", DEADLINE, || async {
            let found = thief.flow_schema(&ask).await;
            if found == schema { Ok(()) } else { Err(found) }
        })
        .await
        .unwrap();
    }
}
