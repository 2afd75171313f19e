//! What is another shard's, by name: refused as what is not there, or as a write that comes too late, in the API server's
//! own form.

use super::*;

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
            let behaviour = "write of what is another shard's";
            cases.push(case(behaviour, &format!("{write}, {form}"), async move |probe| {
                let path = format!("{MAPS}/other-1");
                conflict(&probe, &path, &ask(&path).accept(media_type), media_type).await
            }));
        }
        let scale = format!("scale, {form}");
        cases.push(case("write of a subresource of what is another shard's", &scale, async move |probe| {
            let path = others(&probe).await?;
            let ask = Ask::new(Method::PATCH, format!("{path}/scale")).body(MERGE, r#"{"spec":{"replicas":2}}"#);
            conflict(&probe, &path, &ask.accept(media_type), media_type).await
        }));
        cases.push(case("write of what another shard's controls", &format!("create, {form}"), async move |probe| {
            let path = others(&probe).await?;
            let collection = Kind::ReplicaSet.collection(&namespace(&probe));
            let ask = Ask::new(Method::POST, collection).body(JSON, child(&probe, &path).await?);
            conflict(&probe, &path, &ask.accept(media_type), media_type).await
        }));
        cases.push(case("get of a subresource of what is another shard's", &scale, async move |probe| {
            absent(&probe, &format!("{}/scale", others(&probe).await?), "thing", media_type).await?;
            probe.nothing_arrived().map(|()| Outcome::Changed(GONE))
        }));
    }
    // What leads into a pod.
    cases.push(case("get of a subresource of what is another shard's", "log", async |probe| {
        absent(&probe, &format!("{}/log", others_pod(&probe).await?), "thing", JSON).await?;
        probe.nothing_arrived().map(|()| Outcome::Changed(GONE))
    }));
    for (form, subresource) in [
        ("exec", "exec?command=true&stdout=true"),
        ("attach", "attach?stdout=true"),
        ("port-forward", "portforward?ports=80"),
    ] {
        cases.push(case("session in a pod that is another shard's", form, async move |probe| {
            let path = others_pod(&probe).await?;
            conflict(&probe, &path, &Ask::new(Method::POST, format!("{path}/{subresource}")), JSON).await
        }));
    }
    cases.push(case("write of what another shard's controls", "server-side apply", async |probe| {
        let path = others(&probe).await?;
        let target = format!("{}/thing?fieldManager=me", Kind::ReplicaSet.collection(&namespace(&probe)));
        let ask = Ask::new(Method::PATCH, target).body(APPLY, child(&probe, &path).await?);
        conflict(&probe, &path, &ask, JSON).await
    }));
    cases
}

fn namespace(probe: &Probe) -> String {
    format!("fenced-{}", probe.mark)
}

/// The path of a Deployment of the other shard, in a namespace of the case's own.
async fn others(probe: &Probe) -> Result<String> {
    probe.fixture.namespace(&namespace(probe)).await?;
    let collection = Kind::Deployment.collection(&namespace(probe));
    probe.fixture.anew(&collection, &Kind::Deployment.object(&probe.fixture.plain.labels())).await?;
    Ok(format!("{collection}/thing"))
}

/// The path of a pod of the other shard, which no node runs.
async fn others_pod(probe: &Probe) -> Result<String> {
    let (collection, name) = (format!("/api/v1/namespaces/{NAMESPACE}/pods"), format!("thing-{}", probe.mark));
    let pod = json!({
        "metadata": {"name": name, "labels": probe.fixture.plain.labels()},
        "spec": {"serviceAccountName": "controller", "containers": [{"name": "a", "image": "a:1"}]},
    });
    probe.fixture.anew(&collection, &pod).await?;
    Ok(format!("{collection}/{name}"))
}

/// What this Deployment would control, in a form that is JSON and YAML.
async fn child(probe: &Probe, path: &str) -> Result<String> {
    let mut child = Kind::ReplicaSet.object(&[].into());
    child["metadata"]["ownerReferences"] = json!([owner(probe, path).await?]);
    Ok(child.to_string())
}

/// A write that the proxy refuses as the API server does a write of the object at this path that comes too late.
async fn conflict(probe: &Probe, path: &str, ask: &Ask, media_type: &str) -> Result<Outcome> {
    let late = Ask::new(Method::PATCH, path).body(MERGE, STALE).accept(media_type);
    let (direct, proxied) = (probe.past(&late).await?, probe.unforwarded(ask).await?);
    ensure!(direct.status == StatusCode::CONFLICT, "without the proxy {}: {}", direct.status, direct.text());
    same_refusal(&direct, &proxied).map(|()| Outcome::Changed(MOVED))
}

/// What is another shard's, with this in its name, is answered as what is not there. Both names have the same length, so that
/// protobuf has the same lengths.
pub(super) async fn absent(probe: &Probe, path: &str, name: &str, media_type: &str) -> Result<Outcome> {
    let there = Ask::get(path).accept(media_type);
    ensure!(probe.past(&there).await?.status.is_success(), "there is nothing to see");
    let nobodys = path.replace(&format!("/{name}"), "/nobod");
    let mut direct = probe.past(&Ask::get(nobodys).accept(media_type)).await?;
    direct.body = replaced(&direct.body, b"nobod", name.as_bytes()).into();
    let proxied = probe.proxied(&there).await?;
    ensure!(direct.status == StatusCode::NOT_FOUND, "without the proxy {}: {}", direct.status, direct.text());
    same_refusal(&direct, &proxied).map(|()| Outcome::Changed(GONE))
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = bytes.to_vec();
    for at in 0..bytes.len() {
        if bytes[at..].starts_with(from) {
            replaced[at..at + from.len()].copy_from_slice(to);
        }
    }
    replaced
}
