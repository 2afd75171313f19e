//! What is written on the ring, and what is not.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::views::{DrainingObject, fixtures};

fn report(line: &str, name: &str, reason: Reason) -> Report {
    let things = ringside_ring::cluster_ring::GroupResource { group: "x.io".into(), resource: "things".into() };
    let oldest = DrainingObject { name: name.into(), uid: name.into(), ..fixtures::drained(things, Some("ns"), 10) };
    Report { reason, line: line.into(), oldest: Arc::new(oldest) }
}

/// Paths and bodies.
type Written = Arc<Mutex<Vec<(String, Value)>>>;

/// Keeps what is written, and answers writes with this status, which may change.
fn teller(status: StatusCode) -> (EventRecorder, Written, Arc<Mutex<StatusCode>>) {
    let (written, answers) = (Written::default(), Arc::new(Mutex::new(status)));
    let (seen, status) = (written.clone(), answers.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (seen, status) = (seen.clone(), *status.lock());
        async move {
            let path = request.uri().path().to_owned();
            let (status, answer) = if request.method() == Method::GET {
                let ring = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "example", "uid": "u1"}});
                (StatusCode::OK, ring)
            } else {
                let event: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
                seen.lock().push((path, event.clone()));
                let refused = json!({"kind": "Status", "status": "Failure", "reason": "No", "code": status.as_u16(), "message": "no"});
                (status, if status.is_success() { event } else { refused })
            };
            Ok::<_, tower::BoxError>(Response::builder().status(status).body(Body::from(serde_json::to_vec(&answer)?))?)
        }
    });
    let client = Client::new(service, "ns");
    (EventRecorder::new(client, "example".parse().unwrap(), &"me".parse().unwrap()), written, answers)
}

fn notes(written: &Written) -> Vec<String> {
    written.lock().drain(..).map(|(_, event)| event["note"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_drain_past_its_deadline_is_an_event_on_the_ring() {
    let (mut teller, written, _) = teller(StatusCode::CREATED);
    teller.tell(vec![report(&"x".repeat(2000), "a", Reason::Held), report("another", "b", Reason::Refused)]).await;
    let written = written.lock();
    let [(path, event), (_, other)] = &written[..] else { panic!("{written:?}") };
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
    let regarding = &event["regarding"];
    assert_eq!(
        (&regarding["kind"], &regarding["name"], &regarding["uid"]),
        (&json!("ClusterRing"), &json!("example"), &json!("u1"))
    );
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("DrainsHeld")));
    assert_eq!((&event["reportingController"], &event["reportingInstance"]), (&json!("ringside-proxy"), &json!("me")));
    assert_eq!(event["note"].as_str().unwrap().len(), MAX_NOTE);
    assert_eq!((&other["note"], &other["related"]["name"]), (&json!("another"), &json!("b")));
    assert_eq!(
        other["reason"],
        json!("DrainsRefused"),
        "an Event of the same reason would show the first note for ever"
    );
}

#[tokio::test]
async fn who_may_not_write_events_goes_on() {
    let (mut teller, written, _) = teller(StatusCode::FORBIDDEN);
    teller.tell(vec![report("one", "a", Reason::Held)]).await;
    teller.tell(vec![report("two", "b", Reason::Held)]).await;
    assert_eq!(notes(&written), ["one", "two"], "it may be allowed by now");
}

#[tokio::test]
async fn what_the_api_server_did_not_take_is_told_later_in_its_order() {
    let (mut teller, written, answers) = teller(StatusCode::SERVICE_UNAVAILABLE);
    teller.tell(vec![report("one", "a", Reason::Held), report("two", "b", Reason::Refused)]).await;
    assert_eq!(notes(&written), ["one"], "the second would fare no better");
    teller.tell(Vec::new()).await;
    assert_eq!(notes(&written), ["one"]);
    *answers.lock() = StatusCode::CREATED;
    teller.tell(vec![report("three", "c", Reason::Held)]).await;
    assert_eq!(notes(&written), ["one", "two", "three"]);
    teller.tell(Vec::new()).await;
    assert!(notes(&written).is_empty(), "each once");
}

#[tokio::test]
async fn only_the_latest_wait_and_only_where_it_helps() {
    let (mut teller, written, answers) = teller(StatusCode::SERVICE_UNAVAILABLE);
    // One that it will never take is no reason to wait.
    *answers.lock() = StatusCode::UNPROCESSABLE_ENTITY;
    teller.tell(vec![report("odd", "a", Reason::Held)]).await;
    *answers.lock() = StatusCode::SERVICE_UNAVAILABLE;
    for index in 0..WAITING + 2 {
        teller.tell(vec![report(&index.to_string(), "a", Reason::Held)]).await;
    }
    notes(&written);
    *answers.lock() = StatusCode::CREATED;
    teller.tell(Vec::new()).await;
    let told = notes(&written);
    assert_eq!((told.len(), &*told[0]), (WAITING, "2"));
}
