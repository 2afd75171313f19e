//! What is made for a ring in the cluster comes back when a user changes or deletes it, and goes with the ring.

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    live::Ability,
    website::{Website, WebsiteSpec},
};
use serde_json::{Value, json};

use crate::labels::fixture::{DEADLINE, Fixture};
use crate::planes::Keeps;

const KINDS: [&str; 3] = ["MutatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// The kinds of what is made for a ring on this API server, each in its singular.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    let known = if Ability::LabelPolicies.is_there() { KINDS.len() } else { 1 };
    KINDS.into_iter().take(known)
}

pub(crate) fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let plural = match kind.strip_suffix("Policy") {
        Some(stem) => format!("{}policies", stem.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural,
    };
    Api::all_with(client.clone(), &resource)
}

/// Those of the API server's fence, for a ring that asks for it.
pub(crate) const FENCE: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// The parts that say what it does.
fn content(object: &DynamicObject) -> Value {
    let mut content = object.data.clone();
    content.as_object_mut().unwrap().remove("status");
    content
}

/// What a user changes and adds, as a JSON patch. Server-side apply would leave there what was added.
fn edit(kind: &str) -> Value {
    let another = json!({"name": "another.example.com", "clientConfig": {"url": "https://127.0.0.1:9/"},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 1});
    match kind {
        "MutatingWebhookConfiguration" => json!([
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
            {"op": "add", "path": "/webhooks/-", "value": another},
        ]),
        "MutatingAdmissionPolicy" => json!([
            {"op": "replace", "path": "/spec/matchConditions/0/expression", "value": "false"},
            {"op": "add", "path": "/spec/matchConditions/-", "value": {"name": "never", "expression": "false"}},
        ]),
        _ => json!([{"op": "add", "path": "/spec/matchResources", "value":
            {"matchPolicy": "Exact", "namespaceSelector": {"matchLabels": {"a": "b"}}}}]),
    }
}

/// Waits for a later version than this one that says what it should.
async fn until_restored(
    api: &Api<DynamicObject>,
    name: &str,
    wanted: &Value,
    version: Option<String>,
) -> DynamicObject {
    eventually("it is as it was", DEADLINE, || async {
        let now = api.get(name).await.map_err(|error| error.to_string())?;
        let another = now.resource_version() != version && now.metadata.deletion_timestamp.is_none();
        if another && content(&now) == *wanted { Ok(now) } else { Err(format!("{now:?}")) }
    })
    .await
    .unwrap()
}

/// Whatever is done to it is undone; what has its owner keeps it meanwhile, and what is created meanwhile gets one.
pub(crate) async fn what_belongs_to_a_ring_is_restored_and_what_is_created_meanwhile_has_an_owner() {
    let fixture = Fixture::on(Keeps::Both, "labels-restored").await;
    let (client, name) = (fixture.client(), fixture.ring.made_for());
    let mut wanted = Vec::new();
    for kind in kinds() {
        let api = api(&client, kind);
        let there = || async { api.get(&name).await.map_err(|error| error.to_string()) };
        let before = content(&eventually(kind, DEADLINE, there).await.unwrap());
        let edit = Patch::<()>::Json(serde_json::from_value(edit(kind)).unwrap());
        let edited = api.patch(&name, &PatchParams::default(), &edit).await.unwrap();
        assert_ne!(content(&edited), before, "{kind}");
        until_restored(&api, &name, &before, edited.resource_version()).await;
        let labels = json!({"metadata": {"labels": {"app.kubernetes.io/name": "mine", "of": "others"}}});
        let labelled = api.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
        let restored = until_restored(&api, &name, &before, labelled.resource_version()).await;
        assert_eq!(restored.labels()["app.kubernetes.io/name"], "controller-sharding");
        assert_eq!(restored.labels()["of"], "others", "what does no harm stays");
        wanted.push((kind, before, restored.resource_version()));
    }
    for (kind, ..) in &wanted {
        api(&client, kind).delete(&name, &DeleteParams::default()).await.unwrap();
    }
    for index in 0..20 {
        let site = Website::new(&format!("meanwhile-{index}"), WebsiteSpec::default());
        fixture.websites().create(&PostParams::default(), &site).await.unwrap();
    }
    eventually("all have an owner", DEADLINE, || async {
        let sites = fixture.websites().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let without: Vec<_> =
            sites.iter().filter(|site| fixture.owner(*site).is_none()).map(ResourceExt::name_any).collect();
        if without.is_empty() { Ok(()) } else { Err(format!("{without:?}")) }
    })
    .await
    .unwrap();
    for (kind, before, version) in wanted {
        until_restored(&api(&client, kind), &name, &before, version).await;
    }
    let log = std::fs::read_to_string(fixture.system.sharders().next().unwrap().process().log()).unwrap();
    let said: Vec<_> =
        log.lines().filter(|line| line.contains("another client changed an object that the sharder keeps")).collect();
    for kind in kinds() {
        assert!(said.iter().any(|line| line.contains(&format!("kind=\"{kind}\""))), "{kind}: {said:#?}");
    }
    fixture.assert_nobody_lost_anything();
}
