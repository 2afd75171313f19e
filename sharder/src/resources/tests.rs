//! A resource whose versions come, go and fail.

#![allow(clippy::unwrap_used)]

use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::FakeApi;

/// `things.x.io` in these versions, the preferred one first. Those that `fails` names can't be listed.
fn serve(api: &FakeApi, versions: &[&str], fails: &'static str) {
    let version = |version: &&str| json!({"groupVersion": format!("x.io/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(version).collect();
    api.put("/apis", json!({"groups": [{"name": "x.io", "versions": all, "preferredVersion": all[0]}]}));
    for version in versions {
        let things = json!({"name": "things", "singularName": "", "kind": "Thing", "namespaced": true,
            "verbs": ["get", "list", "watch", "patch"]});
        api.put(
            &format!("/apis/x.io/{version}"),
            json!({"groupVersion": format!("x.io/{version}"), "resources": [things]}),
        );
    }
    let fails = format!("/apis/x.io/{fails}/things");
    api.intercept(move |asked, _| (asked.path == fails).then_some(StatusCode::INTERNAL_SERVER_ERROR));
}

/// What is known of `things.x.io` after this look.
async fn look(api: &FakeApi, known: &Catalog) -> Catalog {
    let things = GroupResource { group: "x.io".into(), resource: "things".into() };
    look_up(&api.client(), &[things].into(), known).await
}

fn things(catalog: &Catalog) -> Arc<Resource> {
    catalog.values().next().unwrap().clone().unwrap()
}

#[tokio::test]
async fn new_version_that_fails_is_told_and_not_asked_for() {
    let api = FakeApi::default();
    serve(&api, &["v1"], "");
    let before = look(&api, &Catalog::new()).await;
    serve(&api, &["v2", "v1"], "v2");
    let after = look(&api, &before).await;
    assert!(before == after && Arc::ptr_eq(&things(&before), &things(&after)), "the index goes on");
    let (resource, client) = (things(&after), api.client());
    assert_eq!(resource.api().api_version, "x.io/v1");
    for _ in 0..2 {
        resource.try_versions(&client).await;
    }
    let told: Vec<_> = resource.version_faults().collect();
    assert_eq!(told.len(), 1);
    for part in ["'things.x.io'", "as 'v2'", "asks for 'v1'", "answered 500", "conversion webhook"] {
        assert!(told[0].contains(part), "{told:?}");
    }
    serve(&api, &["v2", "v1"], "none");
    assert!(resource.try_versions(&client).await && resource.version_faults().next().is_none());
}

#[tokio::test]
async fn version_that_fails_later_is_left_at_its_first_request() {
    let api = FakeApi::default();
    serve(&api, &["v2", "v1"], "v2");
    let resource = things(&look(&api, &Catalog::new()).await);
    let reference = OwnerReference { name: "o".into(), ..OwnerReference::default() };
    api.intercept(|asked, _| asked.path.contains("/v2/").then_some(StatusCode::INTERNAL_SERVER_ERROR));
    let client = api.client();
    let read = async || crate::owners::read(&client, &resource, &reference, Some("default")).await;
    assert!(read().await.is_err());
    assert!(read().await.unwrap().is_none(), "v1 answers");
    assert_eq!(resource.api().version, "v1");
}

#[tokio::test]
async fn version_that_is_served_no_more_is_left() {
    let api = FakeApi::default();
    serve(&api, &["v1"], "");
    let before = look(&api, &Catalog::new()).await;
    serve(&api, &["v2"], "");
    let after = look(&api, &before).await;
    assert_eq!((things(&before).api().version, before == after), ("v2".to_owned(), true));
}
