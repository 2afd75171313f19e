//! What is another shard's, by name: refused as what is not there, or as a write that comes too late, in the API server's
//! own form.

use anyhow::{Context as _, Result, ensure};
use http::{Method, StatusCode};
use ringside_e2e::compatibility::Outcome;
use serde_json::json;

use super::writes::{APPLY, JSON, Kind, MERGE};
use crate::compatibility::{
    client::{Answer, Ask},
    compare::{Probe, own_answer},
    fixture::{Fixture, NAMESPACE},
    status,
    stream::PROTOBUF,
    table::{Case, case},
};

const GONE: &str = "answered with 404: it looks deleted, as in lists and watches";
const MOVED: &str = "refused with 409, as a write that comes too late: it is the other shard's to work on";
/// The forms of a `Status`.
const FORMS: [(&str, &str); 3] = [("JSON", JSON), ("protobuf", PROTOBUF), ("YAML", "application/yaml")];
/// No object is as old.
const STALE: &str = r#"{"metadata":{"resourceVersion":"1"}}"#;

/// A write of what stands at a path.
type Write = (&'static str, fn(&str) -> Ask);

const WRITES: [Write; 3] = [
    ("update", |path| {
        let (_, name) = path.rsplit_once('/').unwrap_or_default();
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "1"}});
        Ask::new(Method::PUT, path).body(JSON, object.to_string())
    }),
    ("merge patch", |path| Ask::new(Method::PATCH, path).body(MERGE, STALE)),
    ("delete", |path| Ask::new(Method::DELETE, path)),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, media_type) in FORMS {
        for (write, ask) in WRITES {
            cases.push(case(
                "write of what is another shard's",
                &format!("{write}, {form}"),
                move |fixture, mark| async move {
                    let path = "/api/v1/namespaces/fixed/configmaps/other-1";
                    conflict(&Probe::new(&fixture, &mark), path, &ask(path).accept(media_type), media_type).await
                },
            ));
        }
        cases.push(case(
            "write of a subresource of what is another shard's",
            &format!("scale, {form}"),
            move |fixture, mark| async move {
                let probe = Probe::new(&fixture, &mark);
                let path = others(&fixture, &mark).await?;
                let ask = Ask::new(Method::PATCH, format!("{path}/scale")).body(MERGE, r#"{"spec":{"replicas":2}}"#);
                conflict(&probe, &path, &ask.accept(media_type), media_type).await
            },
        ));
        cases.push(case(
            "write of what another shard's controls",
            &format!("create, {form}"),
            move |fixture, mark| async move {
                let (probe, path) = (Probe::new(&fixture, &mark), others(&fixture, &mark).await?);
                let child = child(&fixture, &path).await?;
                let ask = Ask::new(Method::POST, Kind::ReplicaSet.collection(&namespace(&mark))).body(JSON, child);
                conflict(&probe, &path, &ask.accept(media_type), media_type).await
            },
        ));
        cases.push(case(
            "get of a subresource of what is another shard's",
            &format!("scale, {form}"),
            move |fixture, mark| async move {
                let (probe, path) = (Probe::new(&fixture, &mark), others(&fixture, &mark).await?);
                absent(&probe, &format!("{path}/scale"), media_type).await
            },
        ));
    }
    cases.extend(of_pods());
    cases.push(case("write of what another shard's controls", "server-side apply", |fixture, mark| async move {
        let (probe, path) = (Probe::new(&fixture, &mark), others(&fixture, &mark).await?);
        let target = format!("{}/thing?fieldManager=me", Kind::ReplicaSet.collection(&namespace(&mark)));
        let ask = Ask::new(Method::PATCH, target).body(APPLY, child(&fixture, &path).await?);
        conflict(&probe, &path, &ask, JSON).await
    }));
    cases
}

/// What leads into a pod.
fn of_pods() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.push(case("get of a subresource of what is another shard's", "log", |fixture, mark| async move {
        let (probe, path) = (Probe::new(&fixture, &mark), others_pod(&fixture, &mark).await?);
        absent(&probe, &format!("{path}/log"), JSON).await
    }));
    for (form, subresource) in [
        ("exec", "exec?command=true&stdout=true"),
        ("attach", "attach?stdout=true"),
        ("port-forward", "portforward?ports=80"),
    ] {
        cases.push(case("session in a pod that is another shard's", form, move |fixture, mark| async move {
            let (probe, path) = (Probe::new(&fixture, &mark), others_pod(&fixture, &mark).await?);
            conflict(&probe, &path, &Ask::new(Method::POST, format!("{path}/{subresource}")), JSON).await
        }));
    }
    cases
}

fn namespace(mark: &str) -> String {
    format!("fenced-{mark}")
}

/// The path of a Deployment of the other shard, in a namespace of the case's own.
async fn others(fixture: &Fixture, mark: &str) -> Result<String> {
    fixture.namespace(&namespace(mark)).await?;
    let collection = Kind::Deployment.collection(&namespace(mark));
    fixture.anew(&collection, &Kind::Deployment.object(&fixture.plain.labels())).await?;
    Ok(format!("{collection}/thing"))
}

/// The path of a pod of the other shard, which no node runs.
async fn others_pod(fixture: &Fixture, mark: &str) -> Result<String> {
    let (collection, name) = (format!("/api/v1/namespaces/{NAMESPACE}/pods"), format!("thing-{mark}"));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": fixture.plain.labels()},
        "spec": {"serviceAccountName": "controller", "containers": [{"name": "a", "image": "a:1"}]},
    });
    fixture.anew(&collection, &pod).await?;
    Ok(format!("{collection}/{name}"))
}

/// What this Deployment would control, in a form that is JSON and YAML.
async fn child(fixture: &Fixture, path: &str) -> Result<String> {
    let made = fixture.admin(&Ask::get(path)).await?;
    let uid = made["metadata"]["uid"].as_str().context("a uid")?;
    let mut child = Kind::ReplicaSet.object(&[].into());
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "thing", "uid": uid, "controller": true}]);
    Ok(child.to_string())
}

/// A write that the proxy refuses as the API server does a write of the object at this path that comes too late.
async fn conflict(probe: &Probe<'_>, path: &str, ask: &Ask, media_type: &str) -> Result<Outcome> {
    let late = Ask::new(Method::PATCH, path).body(MERGE, STALE).accept(media_type);
    let direct = probe.past(&late).await?;
    let (proxied, arrived) = probe.exchanged(ask).await?;
    ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
    refused_alike(&direct, &proxied, StatusCode::CONFLICT, MOVED)
}

/// What is another shard's has a name of the same length as what is not there, so that protobuf has the same lengths.
async fn absent(probe: &Probe<'_>, path: &str, media_type: &str) -> Result<Outcome> {
    let there = Ask::get(path).accept(media_type);
    ensure!(probe.past(&there).await?.status != StatusCode::NOT_FOUND, "there is nothing to see");
    let mut direct = probe.past(&Ask::get(path.replace("/thing", "/nobod")).accept(media_type)).await?;
    direct.body = replaced(&direct.body, b"nobod", b"thing").into();
    let (proxied, arrived) = probe.exchanged(&there).await?;
    ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
    refused_alike(&direct, &proxied, StatusCode::NOT_FOUND, GONE)
}

fn replaced(bytes: &[u8], from: &[u8; 5], to: &[u8; 5]) -> Vec<u8> {
    let mut replaced = bytes.to_vec();
    for at in 0..bytes.len().saturating_sub(from.len() - 1) {
        if bytes[at..].starts_with(from) {
            replaced[at..at + from.len()].copy_from_slice(to);
        }
    }
    replaced
}

/// The same in every word but those of the message, and in the same form.
fn refused_alike(direct: &Answer, proxied: &Answer, status: StatusCode, why: &'static str) -> Result<Outcome> {
    ensure!(direct.status == status, "without the proxy {}: {}", direct.status, direct.text());
    ensure!(proxied.status == status, "with it {}: {}", proxied.status, proxied.text());
    own_answer(direct, proxied)?;
    let (one, other) = (status::read(direct)?, status::read(proxied)?);
    ensure!(one == other, "{one} became {other}");
    Ok(Outcome::Changed(why))
}
