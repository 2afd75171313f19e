//! Attempts over an API server that answers as a test says.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::views::fixtures;

/// Answers patches with `code`, or never without one, and lists with one object of these labels and uid; what a patch that is
/// taken leaves is that, too.
fn attempt(code: Option<StatusCode>, uid: &str, labels: &Value) -> (ByPatch, DrainingObject) {
    let ring = "example".parse().unwrap();
    let (labels_of, shard): (_, ShardName) = (RingLabels::of(&ring), "me".parse().unwrap());
    let both = [(&labels_of.shard, "shard"), (&labels_of.drain, "drain")];
    let there: serde_json::Map<_, _> =
        both.into_iter().filter_map(|(key, label)| Some((key.clone(), labels.get(label)?.clone()))).collect();
    let item = json!({"metadata": {"name": "a", "uid": uid, "labels": there}});
    let stored = Arc::new(item.clone());
    let list = Arc::new(
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [item]}),
    );
    let service = tower::service_fn(move |request: Request<Body>| {
        let (list, stored) = (list.clone(), stored.clone());
        async move {
            let (code, body) = match (request.method(), code) {
                (&Method::PATCH, None) => std::future::pending().await,
                (&Method::PATCH, Some(StatusCode::OK)) => {
                    assert_eq!(request.uri().query(), Some("&fieldManager=ringside-acknowledgement"));
                    (StatusCode::OK, (*stored).clone())
                }
                (&Method::PATCH, Some(code)) => (
                    code,
                    json!({"kind": "Status", "status": "Failure", "message": "spec.x: Invalid", "reason": "Invalid", "code": code.as_u16()}),
                ),
                _ => {
                    assert!(request.uri().query().unwrap().contains("fieldSelector=metadata.name%3Da"));
                    (StatusCode::OK, (*list).clone())
                }
            };
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(Body::from(serde_json::to_vec(&body)?))?)
        }
    });
    let api = ApiResource {
        group: "x.io".into(),
        version: "v1".into(),
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    let by_patch = ByPatch { client: Client::new(service, "default"), api, labels: labels_of, shard };
    let things = ringside_ring::cluster_ring::GroupResource { group: "x.io".into(), resource: "things".into() };
    (by_patch, DrainingObject { uid: "u1".into(), ..fixtures::drained(things, Some("ns"), 10) })
}

#[tokio::test]
async fn a_refusal_of_the_object_as_it_is_is_tried_again() {
    let invalid = Some(StatusCode::UNPROCESSABLE_ENTITY);
    let (by_patch, object) = attempt(invalid, "u1", &json!({"shard": "me", "drain": "m1"}));
    let Attempt::Again(reason) = by_patch.attempt(&object).await else { panic!("the object is drained still") };
    assert!(reason.contains("422") && reason.contains("spec.x: Invalid"), "{reason}");
}

#[tokio::test]
async fn what_is_put_back_in_the_same_write_is_not_let_go_of() {
    let taken = Some(StatusCode::OK);
    let (by_patch, object) = attempt(taken, "u1", &json!({"shard": "me", "drain": "m1"}));
    assert_eq!(by_patch.attempt(&object).await, Attempt::Again(PUT_BACK.to_owned()));
    // Without an owner, and with the next one, where the webhook names it in the same write.
    for labels in [json!({}), json!({"shard": "other"})] {
        let (by_patch, object) = attempt(taken, "u1", &labels);
        assert_eq!(by_patch.attempt(&object).await, Attempt::Done, "{labels}");
    }
}

#[tokio::test]
async fn a_drain_that_is_no_more_is_done() {
    let invalid = Some(StatusCode::UNPROCESSABLE_ENTITY);
    for (uid, labels) in [
        ("u1", json!({"shard": "me", "drain": "m2"})),
        ("u1", json!({"shard": "other", "drain": "m1"})),
        ("u1", json!({"shard": "me", "drain": ""})),
        ("u2", json!({"shard": "me", "drain": "m1"})),
    ] {
        let (by_patch, object) = attempt(invalid, uid, &labels);
        assert_eq!(by_patch.attempt(&object).await, Attempt::Done, "{uid} {labels}");
    }
    let (by_patch, object) = attempt(Some(StatusCode::NOT_FOUND), "u1", &json!({}));
    assert_eq!(by_patch.attempt(&object).await, Attempt::Done);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_ends_the_attempt() {
    let (by_patch, object) = attempt(None, "u1", &json!({}));
    let attempted = timeout(2 * ANSWER, by_patch.attempt(&object)).await.unwrap();
    assert!(matches!(attempted, Attempt::Again(reason) if reason.contains("no answer")));
}
