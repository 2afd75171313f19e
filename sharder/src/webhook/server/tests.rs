//! The webhook over TLS, and answers to reviews that are odd.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use ringside_ring::{RingKind, lease::ShardState};
use rustls::{
    ClientConfig, RootCertStore, crypto,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::Instant,
};
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

use super::*;
use crate::{
    fixtures::FakeApi,
    leases::tests::{held_by, stored},
    metrics::Metrics,
    namespaces,
    snapshot::{
        Snapshot, Snapshots,
        tests::{ring, snapshot, snapshot_of},
    },
    webhook::{
        Injector, Room, ServingIdentity,
        certificates::tests::served,
        farewell::QUIET,
        review::tests::{labelled, review_of},
    },
};

fn reviewer(api: &FakeApi, snapshots: Option<Arc<Snapshots>>) -> Reviewer {
    let (sender, snapshots) = watch::channel(snapshots);
    // The last value stays readable.
    drop(sender);
    Reviewer {
        client: api.client(),
        leases: held_by(&["a", "b"]),
        snapshots,
        metrics: Metrics::default(),
        room: Room::default(),
        owners: Arc::default(),
        creates: Default::default(),
        injector: None,
    }
}

fn example() -> Option<Arc<Snapshots>> {
    let snapshot = snapshot();
    Some(Arc::new(BTreeMap::from([(snapshot.ring.clone(), Arc::new(snapshot))])))
}

async fn answered(snapshots: Option<Arc<Snapshots>>, ring: &str, body: &[u8]) -> Value {
    let answer = reviewer(&FakeApi::default(), snapshots).answer(RingKind::ClusterRing, ring, body).await;
    serde_json::to_value(answer).unwrap()["response"].clone()
}

fn new_config_map() -> Vec<u8> {
    serde_json::to_vec(&review_of("ConfigMap", None, &labelled(None, None))).unwrap()
}

/// A new ConfigMap's review as the API server writes it: with the uid first.
fn as_sent() -> String {
    let text = String::from_utf8(new_config_map()).unwrap();
    let uid = r#""uid":"review-1","#;
    let text =
        text.replacen(r#","uid":"review-1""#, "", 1).replacen(r#""request":{"#, &format!(r#""request":{{{uid}"#), 1);
    assert_eq!(text.matches(uid).count(), 1);
    text
}

/// What the server answers to a body, whatever it is.
async fn posted(content_type: &str, body: impl Into<axum::body::Body>) -> Value {
    let request = http::Request::post("/webhooks/sharder/clusterring/example")
        .header("content-type", content_type)
        .body(body.into())
        .unwrap();
    let response = router(reviewer(&FakeApi::default(), example())).oneshot(request).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

/// Whether a review is allowed with a warning, and nothing else, by its uid.
fn assert_warned(answer: &Value, uid: &str, about: &str) {
    let response = &answer["response"];
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!("admission.k8s.io/v1"), &json!("AdmissionReview")));
    assert_eq!((&response["allowed"], &response["uid"], response.get("patch")), (&json!(true), &json!(uid), None));
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("ringside-sharder: ") && warning.contains(about) && warning.len() <= 256, "{warning}");
}

#[tokio::test]
async fn review_of_a_pod_that_can_not_be_read_is_left_to_the_failure_policy() {
    let api = FakeApi::default();
    let injector = Injector::new(api.client(), namespaces::tests::known(&[]).0, ("proxy", Default::default()));
    let reviewer = Reviewer { injector: Some(injector), ..reviewer(&api, example()) };
    let broken = futures::stream::iter([Err::<Vec<u8>, _>(io::Error::other("gone"))]);
    let no_pod = as_sent().replacen(r#""object":{"#, r#""m":{"#, 1);
    for body in ["".into(), "no json".into(), no_pod.into(), axum::body::Body::from_stream(broken)] {
        let request = http::Request::post(injector::PATH).body(body).unwrap();
        let response = router(reviewer.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

#[tokio::test]
async fn every_review_is_allowed_and_odd_ones_carry_a_warning() {
    let text = as_sent();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1).into_bytes()
    };
    let no_utf8 = |at: &str| {
        let position = text.find(at).unwrap();
        [&text.as_bytes()[..position], b"\xff\xfe", &text.as_bytes()[position..]].concat()
    };
    let cut = text.as_bytes()[..text.len() - 1].to_vec();
    for (body, uid, about) in [
        (b"".to_vec(), "", "EOF"),
        (b"no json".to_vec(), "", "can't be read"),
        (b"[]".to_vec(), "", "can't be read"),
        (b"null".to_vec(), "", "can't be read"),
        (br#"{"kind": "AdmissionReview"}"#.to_vec(), "", "no request"),
        (br#"{"request": {"uid": "review-1", "operation": "CREATE"}}"#.to_vec(), "review-1", "missing field"),
        (with(r#""metadata":{"#, r#""metadata":{"labels":["a"],"#), "review-1", "can't be read"),
        (with(r#""metadata":{"#, r#""metadata":null,"m":{"#), "review-1", "is missing"),
        (with(r#""metadata":{"#, r#""metadata":[],"m":{"#), "review-1", "expected an object"),
        (with(r#""object":{"#, r#""object":["a"],"m":{"#), "review-1", "expected an object"),
        (with(r#""request":{"#, r#""request":[],"m":{"#), "", "expected an object"),
        (with(r#""uid":"review-1""#, r#""uid":"first","uid":"review-1""#), "review-1", "duplicate"),
        (with("AdmissionReview", "ConversionReview"), "review-1", "of kind 'ConversionReview'"),
        (with("admission.k8s.io/v1", "admission.k8s.io/v2"), "review-1", "version is unknown"),
        (with("CREATE", "DELETE"), "review-1", "not 'DELETE'"),
        (with("CREATE", "CONNECT"), "review-1", "not 'CONNECT'"),
        (with(r#""operation":"CREATE""#, r#""operation":"CREATE","subResource":"scale""#), "review-1", "'scale'"),
        (
            with(r#""resource":"configmaps""#, r#""resource":"pods""#),
            "review-1",
            "'pods' is not a resource of ClusterRing",
        ),
        (no_utf8(r#"CREATE"#), "review-1", "can't be read"),
        (cut, "review-1", "EOF"),
    ] {
        assert_warned(&posted("application/json", body).await, uid, about);
    }
}

#[tokio::test]
async fn what_is_odd_about_a_review_and_no_matter_changes_nothing() {
    let text = as_sent();
    let plain = posted("application/json", text.clone()).await;
    assert_eq!(plain["response"]["patchType"], "JSONPatch");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", ""] {
        assert_eq!(posted(content_type, text.clone()).await, plain, "{content_type}");
    }
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for data in ["\"\\u0000\"", "null", "1e999", &deep] {
        let odd = text.replacen(r#""data":{"k":"v"}"#, &format!(r#""data":{data}"#), 1);
        assert_ne!(odd, text);
        assert_eq!(posted("application/json", odd).await, plain, "{}", &data[..data.len().min(20)]);
    }
    let mut raw = text.replacen("\"k\":\"v\"", "\"k\":\"#\"", 1).into_bytes();
    let position = raw.iter().position(|byte| *byte == b'#').unwrap();
    raw[position] = 0xff;
    assert_eq!(posted("application/json", raw).await, plain, "no UTF-8 where nothing is read");
    let escaped = text.replacen("\"metadata\"", "\"met\\u0061data\"", 1);
    assert_eq!(posted("application/json", escaped).await, plain);
}

#[tokio::test(start_paused = true)]
async fn a_review_that_is_too_large_or_never_arrives_is_allowed_with_its_own_uid() {
    let text = as_sent();
    let large = text.replacen(r#""k":"v""#, &format!(r#""k":"{}""#, "x".repeat(7 << 20)), 1);
    assert_eq!(posted("application/json", large).await["response"]["patchType"], "JSONPatch");
    let too_large = text.replacen(r#""k":"v""#, &format!(r#""k":"{}""#, "x".repeat(9 << 20)), 1);
    assert_warned(&posted("application/json", too_large).await, "review-1", "larger than objects can be");
    let begin =
        futures::stream::iter([Ok::<_, io::Error>(bytes::Bytes::from(text.clone().into_bytes()[..200].to_vec()))]);
    let hangs = axum::body::Body::from_stream(futures::StreamExt::chain(begin, futures::stream::pending()));
    assert_warned(&posted("application/json", hangs).await, "review-1", "too long to arrive");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_ring_that_goes_during_the_call_gets_no_label_of_it() {
    let child = controlled_by(labelled(None, None), "v1", "ConfigMap");
    let owner = with_uid(labelled(Some("a"), None));
    let body = serde_json::to_vec(&review_of("Secret", None, &child)).unwrap();
    let again = Arc::new(BTreeMap::from([{
        let snapshot = Snapshot { uid: "another".into(), ..snapshot() };
        (snapshot.ring.clone(), Arc::new(snapshot))
    }]));
    for (then, labelled) in [(None, false), (Some(Arc::default()), false), (Some(again), false), (example(), true)] {
        let api = FakeApi::default();
        api.put("/api/v1/namespaces/default/configmaps/o", owner.clone());
        let (sender, snapshots) = watch::channel(example());
        api.intercept(move |asked, _| {
            if asked.path.ends_with("/configmaps/o") {
                sender.send_replace(then.clone());
            }
            None
        });
        let reviewer = Reviewer { snapshots, ..reviewer(&api, None) };
        let answer = serde_json::to_value(reviewer.answer(RingKind::ClusterRing, "example", &body).await).unwrap();
        if labelled {
            assert_eq!(answer["response"]["patchType"], "JSONPatch");
        } else {
            assert_warned(&answer, "review-1", "this sharder knows no ClusterRing 'example'");
        }
    }
}

#[tokio::test]
async fn a_ring_that_is_unknown_is_told_and_one_that_is_not_known_yet_is_not() {
    let response = answered(example(), "other", &new_config_map()).await;
    assert_eq!((&response["allowed"], &response["uid"]), (&json!(true), &json!("review-1")));
    let warning = "ringside-sharder: this sharder knows no ClusterRing 'other', so the object is not assigned";
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
    for (shard, drain, uid) in
        [("a", None, "u"), ("b", Some("m"), "u"), ("gone", None, "u"), ("back", None, "u"), ("a", None, "another")]
    {
        let api = FakeApi::default();
        // This replica has not heard of it yet.
        let (path, lease) = stored("back", "back");
        api.put(&path, lease);
        let mut owner = labelled(Some(shard), drain);
        owner["metadata"]["uid"] = json!(uid);
        api.put("/api/v1/namespaces/default/configmaps/o", owner);
        let answer = reviewer(&api, example()).answer(RingKind::ClusterRing, "example", &body).await;
        let response = serde_json::to_value(answer).unwrap()["response"].clone();
        if response["patch"].is_null() {
            placed.push(None);
            continue;
        }
        assert_eq!(response["patchType"], "JSONPatch");
        let patch: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        let mut after = child.clone();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        json_patch::patch(&mut after, &patch).unwrap();
        placed.push(after["metadata"]["labels"][&ring.labels.shard].as_str().map(str::to_owned));
    }
    let key = ringside_ring::PartitionKey::of("", "ConfigMap", "default", "o");
    let otherwise = ring.hash_ring().owner(&key).unwrap().as_str();
    // The last one's owner is none of that namespace.
    let expected = [Some("a"), Some("b"), Some(otherwise), Some("back"), None];
    assert_eq!(placed, expected.map(|shard| shard.map(str::to_owned)));
}

/// The shard that the webhook gives to an object that is created.
async fn labelled_for(api: &FakeApi, snapshot: Snapshot, kind: &str, object: &Value) -> Option<String> {
    let (key, ring) = (snapshot.labels.shard.clone(), snapshot.ring.clone());
    let body = serde_json::to_vec(&review_of(kind, None, object)).unwrap();
    let snapshots = Some(Arc::new(BTreeMap::from([(ring, Arc::new(snapshot))])));
    let answer = reviewer(api, snapshots).answer(RingKind::ClusterRing, "example", &body).await;
    let response = serde_json::to_value(answer).unwrap()["response"].clone();
    response["patch"].as_str()?;
    let patch: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
    let mut after = object.clone();
    json_patch::patch(&mut after, &patch).unwrap();
    Some(after["metadata"]["labels"][&key].as_str().unwrap().to_owned())
}

fn controlled_by(mut object: Value, api_version: &str, kind: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": true}]);
    object
}

fn with_uid(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u");
    object
}

#[tokio::test]
async fn a_grandchild_is_labelled_for_the_shard_that_works_on_the_owner_at_the_top() {
    let api = FakeApi::default();
    let spec = json!({"resources": [{"group": "apps", "resource": "deployments", "controlledResources":
        [{"group": "", "resource": "configmaps"}, {"group": "", "resource": "secrets"}]}]});
    let ring = || snapshot_of(&ring(&spec), &[("a", ShardState::Ready), ("b", ShardState::Ready)]);
    let leaf = controlled_by(labelled(None, None), "v1", "ConfigMap");
    // Its own controller was sent ahead already.
    let middle = controlled_by(with_uid(labelled(Some("b"), None)), "apps/v1", "Deployment");
    api.put("/api/v1/namespaces/default/configmaps/o", middle);
    api.put("/apis/apps/v1/namespaces/default/deployments/o", with_uid(labelled(Some("a"), None)));
    assert_eq!(labelled_for(&api, ring(), "Secret", &leaf).await.as_deref(), Some("a"));
    let free = with_uid(labelled(Some("b"), None));
    api.put("/api/v1/namespaces/default/configmaps/o", free);
    assert_eq!(labelled_for(&api, ring(), "Secret", &leaf).await, None, "nobody of the ring is above it");
}

#[tokio::test(start_paused = true)]
async fn a_child_of_an_owner_between_two_shards_waits_for_the_next() {
    let key = ringside_ring::PartitionKey::of("", "ConfigMap", "default", "o");
    let placed = snapshot().hash_ring().owner(&key).unwrap().to_string();
    let elsewhere = if placed == "a" { "b" } else { "a" };
    for comes in [true, false] {
        let api = FakeApi::default();
        api.put("/api/v1/namespaces/default/configmaps/o", with_uid(labelled(None, None)));
        let mut reads = 0;
        api.intercept(move |asked, objects| {
            reads += 1;
            if comes && reads == 3 {
                objects.insert(asked.path.clone(), with_uid(labelled(Some(elsewhere), None)));
            }
            None
        });
        let child = controlled_by(labelled(None, None), "v1", "ConfigMap");
        let labelled_for = labelled_for(&api, snapshot(), "Secret", &child).await.unwrap();
        assert_eq!(labelled_for, if comes { elsewhere } else { &*placed }, "not for ever, though");
    }
}

fn connector(authority: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(crypto::aws_lc_rs::default_provider().into());
    let config =
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn asked(sender: &mut http1::SendRequest<Body>) -> Response<Incoming> {
    let request = http::Request::post("/webhooks/sharder/clusterring/example")
        .header("host", "ringside-sharder.ringside-system.svc")
        .header("content-type", "application/json")
        .body(Body::from(new_config_map()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test]
async fn the_webhook_is_served_by_the_certificate_that_the_ca_bundle_vouches_for() {
    let identity = ServingIdentity::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let reviewer = reviewer(&FakeApi::default(), example());
    let server = tokio::spawn(serve(listener, identity.acceptor().unwrap(), reviewer, shutdown.clone()));
    let (pair, authority) = served();
    let name = ServerName::try_from("ringside-sharder.ringside-system.svc").unwrap();
    let handshake = async || {
        let stream = TcpStream::connect(address).await?;
        connector(&authority).connect(name.clone(), stream).await
    };
    assert!(handshake().await.is_err(), "there is no certificate yet");
    identity.set(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    let stream = handshake().await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = asked(&mut sender).await;
    assert_eq!(response.headers().get("connection"), None);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    // While a Service may still lead here, the webhook answers: also by a connection that is open, which ends with that.
    shutdown.trigger();
    tokio::time::sleep(QUIET / 2).await;
    handshake().await.unwrap();
    assert_eq!(asked(&mut sender).await.headers()["connection"], "close");
    connection.await.unwrap().unwrap();
    let idle = handshake().await.unwrap();
    // An idle connection does not hold up the shutdown any longer.
    tokio::time::timeout(QUIET + DRAIN_TIMEOUT / 2, server).await.unwrap().unwrap().unwrap();
    drop(idle);
    assert!(handshake().await.is_err(), "nobody listens");
}

#[tokio::test]
async fn idle_connections_make_room_for_others_and_one_that_is_used_stays() {
    let (identity, (pair, authority)) = (ServingIdentity::default(), served());
    identity.set(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let reviewer = reviewer(&FakeApi::default(), example());
    let server = tokio::spawn(serve(listener, identity.acceptor().unwrap(), reviewer, Shutdown::new()));
    let handshake = async || {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("ringside-sharder.ringside-system.svc").unwrap();
        connector(&authority).connect(name, stream).await.unwrap()
    };
    let mut idle = handshake().await;
    let (mut used, connection) = http1::handshake(TokioIo::new(handshake().await)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut others = Vec::new();
    for _ in 0..2 {
        for _ in 0..150 {
            others.push(TcpStream::connect(address).await.unwrap());
        }
        // Those before have been accepted by then.
        drop(handshake().await);
        asked(&mut used).await;
    }
    let closed = tokio::time::timeout(HEADER_TIMEOUT / 4, idle.read(&mut [0])).await.unwrap();
    assert!(closed.is_err() || closed.is_ok_and(|read| read == 0));
    asked(&mut used).await;
    connection.abort();
    server.abort();
}

#[tokio::test]
async fn only_what_was_nobodys_counts_as_assigned() {
    let mut registry = Registry::default();
    let reviewer = Reviewer { metrics: Metrics::register(&mut registry), ..reviewer(&FakeApi::default(), example()) };
    let counted = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.lines()
            .filter(|line| line.starts_with("controller_sharding_assignments_total{") && line.ends_with("} 1"))
            .count()
    };
    let dropped = review_of("ConfigMap", Some(&labelled(Some("a"), None)), &labelled(None, None));
    let answer = reviewer.answer(RingKind::ClusterRing, "example", &serde_json::to_vec(&dropped).unwrap()).await;
    assert_eq!(serde_json::to_value(answer).unwrap()["response"]["patchType"], "JSONPatch");
    assert_eq!(counted(), 0);
    reviewer.answer(RingKind::ClusterRing, "example", &new_config_map()).await;
    assert_eq!(counted(), 1);
}

#[tokio::test(start_paused = true)]
async fn headers_that_do_not_arrive_are_not_waited_for() {
    let (identity, (pair, authority)) = (ServingIdentity::default(), served());
    identity.set(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    let (client, server) = tokio::io::duplex(1 << 16);
    let connections = GracefulShutdown::new();
    let router = router(reviewer(&FakeApi::default(), example()));
    let served = tokio::spawn(connect(server, identity.acceptor().unwrap(), router, connections.watcher()));
    let name = ServerName::try_from("ringside-sharder.ringside-system.svc").unwrap();
    let mut stream = connector(&authority).connect(name, client).await.unwrap();
    stream.write_all(b"POST /webhooks/sharder/clusterring/example HTTP/1.1\r\nhost: ").await.unwrap();
    let start = Instant::now();
    let mut answer = Vec::new();
    // Whether it ends with an answer or an abrupt end is no matter.
    let _ = tokio::time::timeout(2 * HEADER_TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), HEADER_TIMEOUT.as_secs());
    served.await.unwrap();
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(".{0,12}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// Reviews that are as they should be but for one place, which says anything.
fn nearly_a_review() -> impl Strategy<Value = Value> {
    let mut child = labelled(None, None);
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true}]);
    let reviews = vec![
        review_of("ConfigMap", None, &labelled(None, None)),
        review_of("ConfigMap", Some(&labelled(Some("a"), Some("m"))), &labelled(None, None)),
        review_of("Secret", None, &child),
    ];
    let owner = "/request/object/metadata/ownerReferences";
    let places = [
        "",
        "/request",
        "/request/uid",
        "/request/name",
        "/request/namespace",
        "/request/operation",
        "/request/kind",
        "/request/kind/group",
        "/request/resource",
        "/request/object",
        "/request/object/metadata",
        "/request/object/metadata/labels",
        "/request/oldObject",
        "/request/oldObject/metadata/labels",
        owner,
    ];
    let of_owner = ["/0", "/0/name", "/0/apiVersion", "/0/kind"].map(|place| format!("{owner}{place}"));
    let places: Vec<_> = places.map(str::to_owned).into_iter().chain(of_owner).collect();
    (proptest::sample::select(reviews), proptest::sample::select(places), any_json()).prop_map(
        |(mut review, place, json)| {
            if let Some(place) = review.pointer_mut(&place) {
                *place = json;
            }
            review
        },
    )
}

proptest! {
    /// The webhook must never be what stands in the way of a write.
    #[test]
    fn whatever_is_reviewed_is_allowed(review in prop_oneof![any_json(), nearly_a_review()]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let response = runtime.block_on(answered(example(), "example", &serde_json::to_vec(&review).unwrap()));
        prop_assert_eq!(&response["allowed"], &json!(true));
        if let Some(uid) = review["request"]["uid"].as_str() {
            prop_assert_eq!(&response["uid"], &json!(uid));
        }
    }
}
