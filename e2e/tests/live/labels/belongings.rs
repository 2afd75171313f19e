//! What is made for a ring in the cluster comes back when somebody changes or deletes it, and goes with the ring.

use std::time::{Duration, Instant};

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::{
    eventually::{eventually, in_time},
    website::{Website, WebsiteSpec},
};
use serde_json::{Value, json};

use crate::labels::fixture::{DEADLINE, Fixture};
use crate::planes::Keeps;

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

/// Those of the API server's fence, for a ring that asks for it.
pub(crate) const FENCE: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// What is promised, beside what is left to somebody who does such things again and again: nine in ten keep to it on a machine
/// that does much else.
const PROMISED: Duration = Duration::from_secs(2);
/// None takes longer.
const BOUND: Duration = Duration::from_secs(20);
/// What is left to somebody who changes it again at once: nothing at first, then more each time.
const TRUCES: [Duration; 4] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// The parts that say what it does.
fn content(object: &DynamicObject) -> Value {
    let mut content = object.data.clone();
    content.as_object_mut().unwrap().remove("status");
    content
}

/// A change of what is the sharder's, and one that only adds to it, as a JSON patch each.
fn edits(kind: &str) -> [Value; 2] {
    let never = json!({"name": "never", "expression": "false"});
    let some = json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
    match kind {
        "MutatingWebhookConfiguration" => {
            let another = json!({"name": "another.example.com", "clientConfig": {"url": "https://127.0.0.1:9/"},
                "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 1});
            [
                json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]),
                json!([{"op": "add", "path": "/webhooks/-", "value": another}]),
            ]
        }
        "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy" => [
            json!([{"op": "replace", "path": "/spec/matchConditions/0/expression", "value": "false"}]),
            json!([{"op": "add", "path": "/spec/matchConditions/-", "value": never}]),
        ],
        "ValidatingAdmissionPolicyBinding" => [
            json!([{"op": "replace", "path": "/spec/validationActions", "value": ["Warn"]}]),
            json!([{"op": "add", "path": "/spec/matchResources", "value": some}]),
        ],
        _ => [
            json!([{"op": "add", "path": "/spec/matchResources", "value": {"matchPolicy": "Exact"}}]),
            json!([{"op": "add", "path": "/spec/matchResources", "value": some}]),
        ],
    }
}

/// Whatever is done to it is undone, and what has its owner keeps it meanwhile.
pub(crate) async fn what_belongs_to_a_ring_is_restored_within_seconds() {
    let fixture = Fixture::fenced("labels-restored").await;
    let (client, name) = (fixture.client(), fixture.ring.made_for());
    let mut took = Vec::new();
    for kind in KINDS.into_iter().chain(FENCE) {
        let (api, mut truces) = (api(&client, kind), TRUCES.into_iter());
        let there = || async { api.get(&name).await.map_err(|error| error.to_string()) };
        let before = content(&eventually(kind, DEADLINE, there).await.unwrap());
        let mut restored = async |what: &str, version: Option<String>| {
            let start = Instant::now();
            let same = async || {
                let now = api.get(&name).await.map_err(|error| error.to_string())?;
                let another = now.resource_version() != version && now.metadata.deletion_timestamp.is_none();
                if another && content(&now) == before { Ok(now) } else { Err(format!("{kind}: {now:?}")) }
            };
            let now = eventually(what, BOUND, same).await.unwrap();
            eprintln!("{kind}, {what}: as it was after {:?}", start.elapsed());
            took.push(start.elapsed().saturating_sub(truces.next().unwrap()));
            now
        };
        for (what, edit) in ["changed", "added to"].into_iter().zip(edits(kind)) {
            let edit = Patch::<()>::Json(serde_json::from_value(edit).unwrap());
            let edited = api.patch(&name, &PatchParams::default(), &edit).await.unwrap();
            assert_ne!(content(&edited), before, "{kind}");
            restored(what, edited.resource_version()).await;
        }
        let labels = json!({"metadata": {"labels": {"app.kubernetes.io/name": "mine", "of": "others"}}});
        let labelled = api.patch(&name, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
        let labels = restored("labelled", labelled.resource_version()).await.metadata.labels.unwrap();
        assert_eq!(labels["app.kubernetes.io/name"], "controller-sharding");
        assert_eq!(labels["of"], "others", "what does no harm stays");
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        restored("deleted", labelled.resource_version()).await;
    }
    took.sort();
    in_time("nine in ten are restored", took[took.len() * 9 / 10], PROMISED);
    let log = std::fs::read_to_string(fixture.system.sharders().next().unwrap().process().log()).unwrap();
    let said: Vec<_> = log.lines().filter(|line| line.contains("another client changed an object of a ring")).collect();
    for kind in KINDS.into_iter().chain(FENCE) {
        assert!(said.iter().any(|line| line.contains(&format!("kind=\"{kind}\""))), "{kind}: {said:#?}");
    }
    fixture.assert_nobody_lost_anything();
}

/// What is created while nothing of it is there has one owner a moment later, and keeps it. Where the ring asks for the API
/// server's fence, that has to be in place again first.
pub(crate) async fn what_is_created_while_what_belongs_to_the_ring_is_gone_has_an_owner_a_moment_later() {
    let fixture = Fixture::on(Keeps::Both, "labels-meanwhile").await;
    let (client, name) = (fixture.client(), fixture.ring.made_for());
    let mut took = Vec::new();
    for round in 0..3 {
        for kind in KINDS {
            let gone = api(&client, kind).delete(&name, &DeleteParams::default()).await;
            if let Err(error) = gone {
                // It is being written again since the round before.
                assert!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{error}");
            }
        }
        for index in 0..20 {
            let site = Website::new(&format!("meanwhile-{round}-{index:02}"), WebsiteSpec::default());
            fixture.websites().create(&PostParams::default(), &site).await.unwrap();
        }
        let start = Instant::now();
        eventually("all have an owner", BOUND, || async {
            let sites = fixture.websites().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let without: Vec<_> =
                sites.iter().filter(|site| fixture.owner(*site).is_none()).map(ResourceExt::name_any).collect();
            if without.is_empty() { Ok(()) } else { Err(format!("{without:?}")) }
        })
        .await
        .unwrap();
        eprintln!("20 objects, created while nothing was there: owned after {:?}", start.elapsed());
        took.push(start.elapsed());
    }
    // Most keep to it on a machine that does much else.
    took.sort();
    in_time("one in two has an owner", took[took.len() / 2], PROMISED);
    fixture.system.until_settled(DEADLINE).await.unwrap();
    fixture.assert_nobody_lost_anything();
}
