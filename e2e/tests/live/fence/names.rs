//! Reads and writes by name.

use http::{Method, StatusCode};
use ringside_e2e::compatibility::client::Ask;
use serde_json::{Value, json};

use super::fixture::{Fixture, MERGE, OTHER, Shard, WEBSITES, touch, website};

/// Forms in which an object of one's own is read: those that show labels, and those that don't.
fn reads(path: &str) -> [Ask; 5] {
    [
        Ask::get(path),
        Ask::get(format!("{path}/status")).accept("application/yaml"),
        Ask::new(Method::HEAD, path),
        Ask::get(path).accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").gzip(),
        Ask::get(format!("{path}?includeObject=None")).accept("application/json;as=Table;g=meta.k8s.io;v=v1"),
    ]
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

    fixture.give_to(&path, shard.name).await;
    all(&shard, fixture, &path, true).await;
    shard.expect(&Ask::new(Method::DELETE, &path), StatusCode::OK).await;
}
