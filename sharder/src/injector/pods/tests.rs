#![allow(clippy::unwrap_used)]

use http::StatusCode;
use serde_json::Value;

use super::*;
use crate::{fixtures::FakeApi, leases::tests::held_by, namespaces, snapshot::tests::snapshot};

fn pod(metadata: &Value) -> ObjectMeta {
    serde_json::from_value(metadata.clone()).unwrap()
}

#[test]
fn pod_lacks_proxy_where_it_asks_and_was_not_injected() {
    let snapshot = snapshot();
    let asks = json!({LABEL: "example"});
    for (metadata, account, lacks) in [
        (json!({"labels": asks}), "", true),
        (json!({"labels": asks, "annotations": {INJECTED: "0.1.0"}}), "", false),
        (json!({"labels": {LABEL: "another"}}), "operator", false),
        (json!({"labels": {LABEL: DISABLED}}), "operator", false),
        (json!({"labels": asks, "annotations": {"ringside.dev/ring": "controllerring/example"}}), "", false),
        (json!({}), "operator", true),
        (json!({}), "another", false),
    ] {
        assert_eq!(
            lacks_proxy(&pod(&metadata), account, "another=other,operator=example", &snapshot),
            lacks,
            "{metadata}"
        );
    }
}

/// One asks by itself, and one has the account that its namespace names.
#[tokio::test(start_paused = true)]
async fn pods_without_proxy_are_found_and_a_namespace_that_can_not_be_read_is_named() {
    let api = FakeApi::default();
    for (name, labels) in [("asks", json!({LABEL: "example"})), ("of-account", json!({}))] {
        api.put(
            &format!("/api/v1/namespaces/operators/pods/{name}"),
            json!({"metadata": {"name": name, "labels": labels}}),
        );
    }
    api.intercept(|asked, _| asked.path.contains("/namespaces/default/").then_some(StatusCode::FORBIDDEN));
    let asking = json!({"labels": {LABEL: ENABLED}, "annotations": {RINGS: "operator=example"}});
    let namespaces = namespaces::tests::with("operators", asking);
    let (found, mut told) = watch::channel(None);
    let (client, leases) = (api.client(), held_by(&["a"]));
    let (_snapshots, snapshots) = watch::channel(Arc::new(snapshot()));
    tokio::select! {
        never = look(&client, (&leases, &namespaces), &snapshots, &found) => match never {},
        told = told.changed() => told.unwrap(),
    }
    let found = told.borrow().clone().unwrap();
    assert_eq!(found.pods.iter().collect::<Vec<_>>(), ["operators/asks", "operators/of-account"]);
    assert!(found.unread.iter().all(|why| why.starts_with("default: ")) && found.unread.len() == 1, "{found:?}");
}
