//! The controller's election through the whole stack.

use super::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

fn record(name: &str, version: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"{version}"}},"spec":{{"holderIdentity":"a","leaseDurationSeconds":15,
        "acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z","leaseTransitions":0}}}}"#
    )
}

fn write(method: &str, uri: &str, body: impl Into<Bytes>) -> Request<Body> {
    ask(method, uri).map(|_| full(body.into()))
}

#[tokio::test]
async fn the_first_write_of_an_election_is_kept_from_the_api_server_and_so_is_all_that_follows() {
    let lab = Lab::new(|_| {
        let mut missing = ok();
        *missing.status_mut() = StatusCode::NOT_FOUND;
        missing
    });
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(lab.seen.lock().len(), 1, "the controller sees whether there is an old leader");
    let created = lab.send(write("POST", LEASES, record("lock", ""))).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    let created: serde_json::Value = serde_json::from_str(&text(created).await).unwrap();
    assert_eq!((&created["apiVersion"], &created["kind"]), (&"coordination.k8s.io/v1".into(), &"Lease".into()));
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::OK);
    let stale = lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", "77"))).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(
        lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", version))).await.status(),
        StatusCode::OK
    );
    assert_eq!(lab.seen.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_the_shard_lease_the_controller_loses_its_lead() {
    let lab = Lab::new(|_| ok());
    lab.send(write("POST", LEASES, record("lock", ""))).await;
    lab.shared.gate.close();
    let renewal = lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", ""))).await;
    assert_eq!(renewal.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn other_leases_reach_the_api_server_with_their_bodies_and_long_ones_are_refused() {
    let lab = Lab::new(|_| ok());
    lab.send(write(
        "PUT",
        &format!("{LEASES}/node"),
        r#"{"metadata":{"name":"node"},"spec":{"holderIdentity":"node"}}"#,
    ))
    .await;
    let methods: Vec<_> = lab.seen.lock().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, [Method::PUT]);
    let long = lab.send(write("PUT", &format!("{LEASES}/node"), vec![b' '; 300 << 10])).await;
    assert_eq!(long.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_patch_that_takes_a_free_lease_makes_it_a_lock() {
    let lab = Lab::new(|_| {
        json(full(r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lock"},"spec":{}}"#))
    });
    let patch = r#"{"spec":{"holderIdentity":"a","acquireTime":"2026-01-01T00:00:00.000000Z","leaseTransitions":1}}"#;
    let mut request = write("PATCH", &format!("{LEASES}/lock"), patch);
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    assert!(text(lab.send(request).await).await.contains(r#""holderIdentity":"a""#));
    let methods: Vec<_> = lab.seen.lock().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, [Method::GET], "the real Lease was read, and not written");
}
