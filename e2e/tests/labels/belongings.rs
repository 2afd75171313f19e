//! What is made for a ring in the cluster comes back when somebody changes or deletes it, and goes with the ring.

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
};
use ringside_e2e::{
    eventually::eventually,
    system::{Settings, System},
};
use ringside_ring::{RingName, labels::webhook_configuration_name};
use serde_json::json;

use crate::ground::DEADLINE;

/// The kinds of what is made for a ring, each in its singular.
pub(crate) const KINDS: [&str; 3] =
    ["MutatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

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

/// The parts that say what it does.
async fn content(api: &Api<DynamicObject>, ring: &RingName) -> Result<serde_json::Value, String> {
    let name = webhook_configuration_name(ring);
    Ok(api.get(&name).await.map_err(|error| error.to_string())?.data)
}

#[tokio::test]
async fn what_belongs_to_a_ring_is_restored() {
    let mut system = System::start(Settings::default()).await.unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    let (client, name) = (system.control_plane().client(), webhook_configuration_name(&ring));
    for kind in KINDS {
        let api = api(&client, kind);
        let before = eventually(kind, DEADLINE, || content(&api, &ring)).await.unwrap();
        let restored = async |what: &str| {
            let same = async || {
                if content(&api, &ring).await? == before { Ok(()) } else { Err(format!("{kind} is another one")) }
            };
            eventually(what, DEADLINE, same).await.unwrap();
        };
        let edit = match kind {
            "MutatingWebhookConfiguration" => {
                json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}])
            }
            "MutatingAdmissionPolicy" => json!([{"op": "replace", "path": "/spec/failurePolicy", "value": "Fail"}]),
            _ => {
                json!([{"op": "add", "path": "/spec/matchResources", "value": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}])
            }
        };
        let edit = Patch::<()>::Json(serde_json::from_value(edit).unwrap());
        api.patch(&name, &PatchParams::default(), &edit).await.unwrap();
        assert_ne!(content(&api, &ring).await.unwrap(), before);
        restored("it is as it was before somebody changed it").await;
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        restored("it is there again").await;
    }
}
