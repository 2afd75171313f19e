//! What is asked, and how the answers are read.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use serde_json::json;

use super::*;
use crate::{
    request::selector::Selector,
    views::{Fields, fixtures},
};

/// The answer with this status, and objects of these uids; and the question.
async fn ask(status: StatusCode, uids: &[&str]) -> (Shown, String) {
    let asked: Arc<Mutex<String>> = Arc::default();
    let items: Vec<_> = uids.iter().map(|uid| json!({"metadata": {"name": "a", "uid": uid}})).collect();
    let list =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items});
    let refused =
        json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": status.as_u16(), "message": "x"});
    let (answer, seen) = (if status.is_success() { list } else { refused }, asked.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        *seen.lock() = request.uri().to_string();
        let body = Body::from(answer.to_string().into_bytes());
        async move { Ok::<_, tower::BoxError>(Response::builder().status(status).body(body)?) }
    });
    let things = GroupResource { group: "x.io".into(), resource: "things".into() };
    let api = ApiResource {
        group: "x.io".into(),
        version: "v1".into(),
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    let object = DrainingObject { uid: "u1".into(), ..fixtures::drained(things.clone(), Some("ns"), 100) };
    let scope = Scope {
        version: "v1beta1".into(),
        labels: Selector::parse("tier in (a,b)").unwrap(),
        fields: Fields::parse("spec.x=1"),
        ..fixtures::scope(things, None)
    };
    let shown = shown(&Client::new(service, "default"), &api, &scope, &object).await;
    let question = asked.lock().clone();
    (shown, question)
}

#[tokio::test]
async fn the_question_is_what_the_watch_showed_right_before_the_drain() {
    let (shown, question) = ask(StatusCode::OK, &[]).await;
    assert!(matches!(shown, Shown::No));
    for part in [
        "/apis/x.io/v1beta1/namespaces/ns/things?",
        "fieldSelector=spec.x%3D1%2Cmetadata.name%3Da",
        "labelSelector=tier+in+%28a%2Cb%29",
        "resourceVersion=99&",
        "resourceVersionMatch=Exact",
    ] {
        assert!(format!("{question}&").contains(part), "{part}: {question}");
    }
}

#[tokio::test]
async fn an_answer_is_about_this_object_alone() {
    assert!(matches!(ask(StatusCode::OK, &["u1"]).await.0, Shown::Yes));
    assert!(matches!(ask(StatusCode::OK, &["u2"]).await.0, Shown::No), "another one had that name");
    assert!(matches!(ask(StatusCode::GONE, &[]).await.0, Shown::Compacted));
    assert!(matches!(ask(StatusCode::FORBIDDEN, &[]).await.0, Shown::Unanswered(_)));
}
