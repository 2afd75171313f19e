//! The webhook over TLS, and answers to reviews that are odd.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    fixtures::FakeApi,
    snapshot::tests::snapshot,
    webhook::{
        ServingIdentity,
        certificates::{Certificates, obtain, server_names},
        review::tests::{labelled, review_of},
    },
};

fn reviewer(api: &FakeApi, snapshots: Option<Arc<Snapshots>>) -> Reviewer {
    let (sender, snapshots) = watch::channel(snapshots);
    // The last value stays readable.
    drop(sender);
    Reviewer { client: api.client(), snapshots, metrics: Metrics::default() }
}

fn example() -> Option<Arc<Snapshots>> {
    let snapshot = snapshot();
    Some(Arc::new(BTreeMap::from([(snapshot.ring.clone(), Arc::new(snapshot))])))
}

async fn answered(snapshots: Option<Arc<Snapshots>>, ring: &str, body: &[u8]) -> Value {
    let answer = reviewer(&FakeApi::default(), snapshots).answer(ring, body).await;
    serde_json::to_value(answer).unwrap()["response"].clone()
}

fn new_config_map() -> Vec<u8> {
    serde_json::to_vec(&review_of("ConfigMap", None, &labelled(None, None))).unwrap()
}

#[tokio::test]
async fn every_review_is_allowed_and_odd_ones_carry_a_warning() {
    let no_request = br#"{"kind": "AdmissionReview"}"#;
    let no_kind = br#"{"request": {"uid": "review-1", "operation": "CREATE"}}"#;
    let wrong_types = br#"{"request": {"uid": "review-1", "kind": {"kind": "X"}, "resource": {"resource": "xs"},
        "operation": "CREATE", "object": {"metadata": {"labels": ["a"]}}}}"#;
    for (body, uid) in
        [(&b"no json"[..], ""), (no_request, ""), (no_kind, "review-1"), (wrong_types, "review-1"), (b"", "")]
    {
        let response = answered(example(), "example", body).await;
        assert_eq!((&response["allowed"], &response["uid"]), (&json!(true), &json!(uid)));
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with("ringside-sharder: the AdmissionReview can't be read") && warning.len() <= 256);
    }
}

#[tokio::test]
async fn a_ring_that_is_unknown_is_told_and_one_that_is_not_known_yet_is_not() {
    let response = answered(example(), "other", &new_config_map()).await;
    assert_eq!((&response["allowed"], &response["uid"]), (&json!(true), &json!("review-1")));
    let warning = "ringside-sharder: there is no ClusterRing 'other', so the object is not assigned";
    assert_eq!(response["warnings"], json!([warning]));
    let response = answered(None, "example", &new_config_map()).await;
    assert_eq!(response, json!({"uid": "review-1", "allowed": true}));
}

#[tokio::test]
async fn a_child_is_labelled_for_the_shard_that_works_on_its_owner_even_while_it_is_drained() {
    let ring = snapshot();
    let mut child = labelled(None, None);
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true}]);
    let body = serde_json::to_vec(&review_of("Secret", None, &child)).unwrap();
    let mut placed = Vec::new();
    for (shard, drain, uid) in [("a", None, "u"), ("b", Some("m"), "u"), ("gone", None, "u"), ("a", None, "another")] {
        let api = FakeApi::default();
        let mut owner = labelled(Some(shard), drain);
        owner["metadata"]["uid"] = json!(uid);
        api.put("/api/v1/namespaces/default/configmaps/o", owner);
        let answer = reviewer(&api, example()).answer("example", &body).await;
        let response = serde_json::to_value(answer).unwrap()["response"].clone();
        assert_eq!(response["patchType"], "JSONPatch");
        let patch: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        let mut after = child.clone();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        json_patch::patch(&mut after, &patch).unwrap();
        placed.push(after["metadata"]["labels"][&ring.labels.shard].as_str().unwrap().to_owned());
    }
    let key = ringside_ring::PartitionKey::of("", "ConfigMap", "default", "o");
    let otherwise = ring.hash_ring.owner(&key).unwrap().as_str();
    assert_eq!(placed, ["a", "b", otherwise, otherwise]);
}

async fn certificates() -> Certificates {
    let api = FakeApi::default();
    // Creating is a write to a path that is not there yet: the fake answers what the real one would.
    api.intercept(|asked, objects| {
        (asked.method == http::Method::POST).then(|| {
            objects.insert(
                format!("{}/{}", asked.path, asked.body["metadata"]["name"].as_str().unwrap()),
                asked.body.clone(),
            );
            http::StatusCode::CONFLICT
        })
    });
    // The conflict stands for another replica that was faster: its certificates are read and used.
    obtain(&api.client(), "sharding-system", &server_names("sharding-system", None), Timestamp::now()).await.unwrap()
}

fn connector(certificates: &Certificates) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&certificates.ca).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let config =
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn the_webhook_is_served_by_the_certificate_that_the_ca_bundle_vouches_for() {
    let identity = ServingIdentity::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let reviewer = reviewer(&FakeApi::default(), example());
    let server = tokio::spawn(serve(listener, identity.acceptor().unwrap(), reviewer, shutdown.clone()));
    let certificates = certificates().await;
    let name = ServerName::try_from("sharder.sharding-system.svc").unwrap();
    let handshake = async || {
        let stream = TcpStream::connect(address).await.unwrap();
        connector(&certificates).connect(name.clone(), stream).await
    };
    assert!(handshake().await.is_err(), "there is no certificate yet");
    identity.set(&certificates).unwrap();
    let stream = handshake().await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("/webhooks/sharder/clusterring/example")
        .header("host", "sharder.sharding-system.svc")
        .header("content-type", "application/json")
        .body(Body::from(new_config_map()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    // An idle connection does not hold up the shutdown.
    shutdown.trigger();
    tokio::time::timeout(DRAIN_TIMEOUT, server).await.unwrap().unwrap().unwrap();
    connection.await.unwrap().unwrap();
}
