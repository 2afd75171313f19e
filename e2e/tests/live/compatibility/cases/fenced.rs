//! What is another shard's, by name: refused as what is not there, or as a write that comes too late, in the API server's
//! own form.

use super::*;

const GONE: &str = "answered with 404: it looks deleted, as in lists and watches";
const MOVED: &str = "refused with 409, as a write that comes too late: it is the other shard's to work on";
/// The forms of a `Status`.
const FORMS: [(&str, &str); 3] = [("JSON", JSON), ("protobuf", PROTOBUF), ("YAML", "application/yaml")];
/// No object is as old.
const STALE: &str = r#"{"metadata":{"resourceVersion":"1"}}"#;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = by_form("write of what is another shard's", FORMS, async |probe, form| {
        let path = format!("{MAPS}/other-1");
        conflict(&probe, &path, Ask::new(Method::PATCH, &path).body(MERGE, r#"{"data":{"a":"b"}}"#), form).await
    })
    .collect();
    cases.push(case("write of what another shard's controls", "create", async |probe| {
        let namespace = format!("fenced-{}", probe.mark);
        probe.fixture.namespace(&namespace).await?;
        let collection = Kind::Deployment.collection(&namespace);
        let made = Kind::Deployment.object(&probe.fixture.plain.labels());
        probe.fixture.anew(&collection, &made).await?;
        let path = format!("{collection}/thing");
        let mut child = Kind::ReplicaSet.object(&[].into());
        child["metadata"]["ownerReferences"] = json!([owner(&probe, &path).await?]);
        let ask = Ask::new(Method::POST, Kind::ReplicaSet.collection(&namespace)).body(JSON, child.to_string());
        conflict(&probe, &path, ask, JSON).await
    }));
    // What leads into a pod.
    cases.push(case("get of a subresource of what is another shard's", "log", async |probe| {
        absent(&probe, &format!("{}/log", others_pod(&probe).await?), "thing", JSON).await?;
        probe.nothing_arrived().map(|()| Outcome::Changed(GONE))
    }));
    cases.push(case("session in a pod that is another shard's", "exec", async |probe| {
        let path = others_pod(&probe).await?;
        let ask = Ask::new(Method::POST, format!("{path}/exec?command=true&stdout=true"));
        conflict(&probe, &path, ask, JSON).await
    }));
    cases
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

/// A write that the proxy refuses as the API server does a write of the object at this path that comes too late.
async fn conflict(probe: &Probe, path: &str, ask: Ask, form: &str) -> Result<Outcome> {
    let late = Ask::new(Method::PATCH, path).body(MERGE, STALE).accept(form);
    let direct = probe.past(&late).await?.with(StatusCode::CONFLICT)?;
    let proxied = probe.unforwarded(&ask.accept(form)).await?;
    same_refusal(&direct, &proxied, "Conflict").map(|()| Outcome::Changed(MOVED))
}

/// What is another shard's, with this in its name, is answered as what is not there. Both names have the same length, so that
/// the answers have.
pub(super) async fn absent(probe: &Probe, path: &str, name: &str, form: &str) -> Result<Outcome> {
    let there = Ask::get(path).accept(form);
    ensure!(probe.past(&there).await?.status.is_success(), "there is nothing to see");
    let nobodys = Ask::get(path.replace(&format!("/{name}"), "/nobod")).accept(form);
    let mut direct = probe.past(&nobodys).await?.with(StatusCode::NOT_FOUND)?;
    // Of protobuf no text is compared. A status is JSON where metadata is asked for, whatever form that has.
    if !status::is_protobuf(&direct) {
        direct.body = direct.text().replace("nobod", name).into();
    }
    let proxied = probe.proxied(&there).await?;
    same_refusal(&direct, &proxied, "NotFound").map(|()| Outcome::Changed(GONE))
}
