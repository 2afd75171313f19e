//! Reads and writes by name.

use http::{Method, StatusCode};
use ringside_e2e::compatibility::client::Ask;
use serde_json::{Value, json};

use super::fixture::{Fixture, MAPS, MERGE, OTHER, Shard, WEBSITES, touch, website};

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Every form in which an object of one's own is read.
fn reads(path: &str) -> Vec<Ask> {
    let mut reads = vec![Ask::get(path), Ask::get(format!("{path}/status")), Ask::new(Method::HEAD, path)];
    reads.extend([PARTIAL, TABLE, "application/yaml", "application/json"].map(|form| Ask::get(path).accept(form)));
    reads.push(Ask::get(format!("{path}?includeObject=None")).accept(TABLE));
    reads.push(Ask::get(format!("{path}?includeObject=Object")).accept(TABLE));
    reads.push(Ask::get(path).header("accept-encoding", "gzip"));
    reads
}

/// Every way to write an object that is there, but for its deletion. `current` has its resourceVersion, which a late
/// writer of a full object has as well.
fn writes(path: &str, current: &Value) -> Vec<Ask> {
    let put = |path: &str| Ask::new(Method::PUT, path).body("application/json", current.to_string());
    let patch = |path: &str, form: &str, body: Value| Ask::new(Method::PATCH, path).body(form, body.to_string());
    let status = format!("{path}/status");
    let mut applied = website(current["metadata"]["name"].as_str().unwrap());
    applied["spec"]["workMillis"] = json!(1);
    vec![
        touch(path),
        patch(path, "application/json-patch+json", json!([{"op": "add", "path": "/spec/content", "value": "b"}])),
        patch(&format!("{path}?fieldManager=fence&force=true"), "application/apply-patch+yaml", applied),
        patch(&status, MERGE, json!({"status": {"reconciledBy": "me"}})),
        patch(path, MERGE, json!({"metadata": {"finalizers": []}})),
        put(&status),
        put(path),
    ]
}

/// Whether all reads and writes are answered so.
async fn all(shard: &Shard, fixture: &Fixture, path: &str, ours: bool) {
    for read in reads(path) {
        let answer = shard.send(&read).await;
        let expected = if ours { StatusCode::OK } else { StatusCode::NOT_FOUND };
        assert_eq!(answer.status, expected, "{} {:?}: {}", read.target, read.headers, answer.text());
    }
    let count = writes(path, &json!({"metadata": {"name": "x"}})).len();
    for number in 0..count {
        let current = fixture.admin(&Ask::get(path)).await;
        let write = &writes(path, &current)[number];
        if ours {
            shard.expect(write, StatusCode::OK).await;
        } else {
            shard.refuses(write, StatusCode::CONFLICT).await;
            let after = fixture.admin(&Ask::get(path)).await;
            assert_eq!(after["metadata"]["resourceVersion"], current["metadata"]["resourceVersion"], "it landed");
        }
    }
}

pub(crate) async fn handed_over(fixture: &Fixture) {
    let shard = fixture.shard("names").await;
    let path = format!("{WEBSITES}/moves");
    fixture.website("moves", shard.name).await;
    all(&shard, fixture, &path, true).await;

    fixture.drain(&path).await;
    shard.refuses(&Ask::get(&path), StatusCode::NOT_FOUND).await;
    fixture.until_let_go(&path).await;
    all(&shard, fixture, &path, false).await;
    fixture.give_to(&path, OTHER).await;
    all(&shard, fixture, &path, false).await;
    shard.refuses(&Ask::new(Method::DELETE, &path), StatusCode::CONFLICT).await;

    // An Event about it is no write to it.
    let uid = fixture.admin(&Ask::get(&path)).await["metadata"]["uid"].clone();
    for (collection, event) in events(&uid) {
        let create = Ask::new(Method::POST, collection).body("application/json", event.to_string());
        shard.expect(&create, StatusCode::CREATED).await;
    }

    fixture.give_to(&path, shard.name).await;
    all(&shard, fixture, &path, true).await;
    shard.expect(&Ask::new(Method::DELETE, &path), StatusCode::OK).await;

    // Built-in objects come in protobuf as well.
    let map = json!({"metadata": {"name": "of-other"}});
    fixture.create(MAPS, map, OTHER).await;
    let path = format!("{MAPS}/of-other");
    let forms = [PROTOBUF, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"];
    for form in forms {
        fixture.give_to(&path, shard.name).await;
        shard.expect(&Ask::get(&path).accept(form), StatusCode::OK).await;
        fixture.give_to(&path, OTHER).await;
        shard.refuses(&Ask::get(&path).accept(form), StatusCode::NOT_FOUND).await;
    }
}

fn events(uid: &Value) -> [(&'static str, Value); 2] {
    let object = json!({"apiVersion": "web.example.com/v1", "kind": "Website", "name": "moves", "namespace": "default",
        "uid": uid});
    let named = |name: &str| json!({"name": name, "namespace": "default"});
    [
        (
            "/api/v1/namespaces/default/events",
            json!({"metadata": named("moves.1"), "involvedObject": object, "reason": "x", "message": "x", "type": "Normal"}),
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            json!({"metadata": named("moves.2"), "regarding": object, "reason": "x", "note": "x", "type": "Normal",
                "action": "x", "reportingController": "x", "reportingInstance": "x",
                "eventTime": "2026-01-01T00:00:00.000000Z"}),
        ),
    ]
}

pub(crate) async fn subresources(fixture: &Fixture) {
    let shard = fixture.shard("subresources").await;
    let container = json!({"name": "c", "image": "x"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    let deployment = json!({"metadata": {"name": "scaled"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    fixture.create(deployments, deployment, shard.name).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "evicted"}, "spec": {"containers": [container],
        "serviceAccountName": "controller", "automountServiceAccountToken": false}});
    fixture.create(pods, pod, shard.name).await;
    let (scaled, evicted) = (format!("{deployments}/scaled"), format!("{pods}/evicted"));
    let scale = json!({"spec": {"replicas": 0}});
    let json = "application/json";
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "evicted"},
        "target": {"kind": "Node", "name": "nowhere"}});
    let requests = [
        Ask::new(Method::PATCH, format!("{scaled}/scale")).body(MERGE, scale.to_string()),
        Ask::new(Method::POST, format!("{evicted}/exec?command=true")),
        Ask::get(format!("{evicted}/portforward")),
        Ask::new(Method::POST, format!("{evicted}/binding")).body(json, binding.to_string()),
        Ask::new(Method::POST, format!("{evicted}/eviction")).body(json, eviction.to_string()),
    ];
    let reads = [format!("{scaled}/scale"), format!("{evicted}/log"), format!("{evicted}/status")];
    // Known to be ours by a write; moved by force, behind the proxy's back.
    for path in [&scaled, &evicted] {
        shard.expect(&touch(path), StatusCode::OK).await;
        fixture.give_to(path, OTHER).await;
    }
    for request in &requests {
        shard.refuses(request, StatusCode::CONFLICT).await;
    }
    for read in &reads {
        shard.refuses(&Ask::get(read), StatusCode::NOT_FOUND).await;
    }
    for path in [&scaled, &evicted] {
        fixture.give_to(path, shard.name).await;
    }
    for request in reads.iter().map(Ask::get).chain(requests) {
        // What there is without a node, the API server answers itself.
        let answer = shard.send(&request).await;
        assert!(!answer.text().contains("ringside-proxy: "), "{}: {}", request.target, answer.text());
    }
}

pub(crate) async fn impersonated(fixture: &Fixture) {
    let shard = fixture.shard("impersonated").await;
    let path = format!("{WEBSITES}/impersonated");
    fixture.website("impersonated", shard.name).await;
    let write =
        || touch(&path).header("impersonate-user", "system:admin").header("impersonate-group", "system:masters");
    shard.expect(&write(), StatusCode::OK).await;
    // Behind the proxy's back.
    fixture.give_to(&path, OTHER).await;
    shard.refuses(&write(), StatusCode::CONFLICT).await;
}

pub(crate) async fn read_by_all(fixture: &Fixture) {
    let shard = fixture.shard("referenced").await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "referenced"}, "spec": {"ports": [{"port": 80}]}});
    fixture.create(services, service, OTHER).await;
    let path = format!("{services}/referenced");
    shard.expect(&Ask::get(&path), StatusCode::OK).await;
    shard.refuses(&touch(&path), StatusCode::CONFLICT).await;
}
