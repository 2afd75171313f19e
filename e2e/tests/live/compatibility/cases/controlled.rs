//! Writes whose body the proxy reads before it sends it on: of what an object of the ring controls, and of Leases and
//! ConfigMaps in the shard's namespace, which might begin an election.

use std::slice;

use super::{
    writes::{both, both_to, unchanged},
    *,
};

const YAML: &str = "application/yaml";
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A form of a write: its name, the method, what stands behind the path, the type and the body.
type Form = (&'static str, Method, &'static str, &'static str, fn(&Value) -> String);

/// Each names the owner, which is the shard's.
const CONTROLLED: [Form; 7] = [
    ("update", Method::PUT, "", JSON, |owner| replica_set(owner).to_string()),
    ("update, YAML", Method::PUT, "", YAML, in_yaml),
    ("merge patch", Method::PATCH, "", MERGE, |owner| adopting(owner).to_string()),
    ("JSON patch", Method::PATCH, "", JSON_PATCH, |owner| {
        json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner]}]).to_string()
    }),
    ("strategic merge patch", Method::PATCH, "", STRATEGIC, |owner| adopting(owner).to_string()),
    ("server-side apply", Method::PATCH, "?fieldManager=me&force=true", APPLY, in_yaml),
    ("create, that exists", Method::POST, "..", JSON, |owner| replica_set(owner).to_string()),
];

/// Of a Lease that nobody leads by: who holds it is alive, and nothing else.
const LEASE: [Form; 5] = [
    ("update", Method::PUT, "", JSON, |lease| {
        let mut lease = lease.clone();
        lease["metadata"]["resourceVersion"] = CURRENT.into();
        lease.to_string()
    }),
    ("update, YAML", Method::PUT, "", YAML, |lease| {
        format!(
            "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: {}, resourceVersion: '{CURRENT}'}}\nspec: {{holderIdentity: them}}\n",
            lease["metadata"]["name"]
        )
    }),
    ("merge patch", Method::PATCH, "", MERGE, |_| json!({"metadata": {"labels": {"a": "b"}}}).to_string()),
    ("server-side apply", Method::PATCH, "?fieldManager=me&force=true", APPLY, |lease| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": lease["metadata"]["name"], "labels": {"a": "b"}},
        })
        .to_string()
    }),
    ("create, that exists", Method::POST, "..", JSON, |lease| lease.to_string()),
];

/// Of such a Lease what may also be an election's: by the patch alone nobody can tell.
const TRIED: [Form; 3] = [
    ("merge patch of its spec", Method::PATCH, "", MERGE, |_| {
        json!({"spec": {"renewTime": "2026-01-01T00:00:40.000000Z"}}).to_string()
    }),
    ("JSON patch of its spec", Method::PATCH, "", JSON_PATCH, |_| {
        json!([{"op": "replace", "path": "/spec/renewTime", "value": "2026-01-01T00:00:40.000000Z"}]).to_string()
    }),
    ("server-side apply, YAML", Method::PATCH, "?fieldManager=me&force=true", APPLY, |lease| {
        format!(
            "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: {}, labels: {{a: b}}}}\n",
            lease["metadata"]["name"]
        )
    }),
];

/// Of a ConfigMap that nobody leads by: it has settings, and nothing of an election.
const CONFIG_MAP: [Form; 5] = [
    ("update", Method::PUT, "", JSON, |map| map.to_string()),
    ("update, YAML", Method::PUT, "", YAML, |map| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\ndata: {{text: new}}\n", map["metadata"])
    }),
    ("merge patch", Method::PATCH, "", MERGE, |_| json!({"metadata": {"labels": {"a": "b"}}}).to_string()),
    ("server-side apply", Method::PATCH, "?fieldManager=me&force=true", APPLY, |map| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": map["metadata"], "data": {"text": "new"}})
            .to_string()
    }),
    ("create, that exists", Method::POST, "..", JSON, |map| map.to_string()),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let behaviour = "write of a controlled resource";
    for form in CONTROLLED {
        cases.push(case(behaviour, form.0, async move |probe| {
            let (namespace, owner) = deployment(&probe).await?;
            both(&probe, &namespace, &write(behaviour, &form, &owner)).await
        }));
    }
    cases.push(case(behaviour, "update, protobuf", async move |probe| {
        let (namespace, owner) = deployment(&probe).await?;
        let collection = Kind::ReplicaSet.collection(&namespace);
        let mut child = Kind::ReplicaSet.object(&probe.shard.labels());
        child["metadata"]["ownerReferences"] = json!([owner]);
        probe.fixture.anew(&collection, &child).await?;
        unchanged(&probe, &format!("{collection}/thing")).await
    }));
    let behaviour = "write of a Lease that is no election's, in the shard's namespace";
    bystanders(&mut cases, behaviour, LEASES, &LEASE, |probe| beat(&format!("lease-{}", probe.mark)));
    for form in &TRIED {
        cases.push(case(behaviour, form.0, async move |probe| tried(&probe, form).await));
    }
    let behaviour = "write of a ConfigMap that is no election's, in the shard's namespace";
    bystanders(&mut cases, behaviour, CONFIG_MAPS, &CONFIG_MAP, |probe| {
        let mut map = Kind::ConfigMap.object(&probe.shard.labels());
        map["metadata"]["name"] = format!("settings-{}", probe.mark).into();
        map
    });
    cases
}

/// The write in this form. Each finds the object, so that one can't make it.
fn write(behaviour: &'static str, form: &Form, of: &Value) -> Write {
    let (form, method, target, content_type, body) = form;
    let write = writes::write(behaviour, form, Kind::ReplicaSet, method.clone(), target, content_type, &body(of));
    if *method == Method::POST { write.refused(StatusCode::CONFLICT) } else { write }
}

/// A reference to a Deployment of the shard in a namespace of the case's own.
async fn deployment(probe: &Probe) -> Result<(String, Value)> {
    let namespace = format!("controlled-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = Kind::Deployment.collection(&namespace);
    probe.fixture.anew(&collection, &Kind::Deployment.object(&probe.shard.labels())).await?;
    Ok((namespace, owner(probe, &format!("{collection}/thing")).await?))
}

fn replica_set(owner: &Value) -> Value {
    let mut object = Kind::ReplicaSet.object(&[].into());
    object["metadata"]["ownerReferences"] = json!([owner]);
    object["spec"]["replicas"] = 2.into();
    object
}

fn adopting(owner: &Value) -> Value {
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn in_yaml(owner: &Value) -> String {
    format!(
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata:\n  name: thing\n  labels: {{app: thing}}\n  ownerReferences:\n  \
         - apiVersion: apps/v1\n    kind: Deployment\n    name: thing\n    uid: {}\n    controller: true\nspec:\n  replicas: \
         2\n  selector: {{matchLabels: {{app: thing}}}}\n  template:\n    metadata: {{labels: {{app: thing}}}}\n    spec: \
         {{containers: [{{name: a, image: \"a:1\"}}, {{name: b, image: \"b:1\"}}]}}\n",
        owner["uid"]
    )
}

pub(super) fn beat(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    })
}

/// What might be an election's lock, and is none: each form of a write, and one in protobuf.
fn bystanders(
    cases: &mut Vec<Case>,
    behaviour: &'static str,
    collection: &'static str,
    forms: &'static [Form],
    object: fn(&Probe) -> Value,
) {
    for form in forms {
        cases.push(case(behaviour, form.0, async move |probe| {
            let object = object(&probe);
            both_to(&probe, collection, slice::from_ref(&object), &write(behaviour, form, &object)).await
        }));
    }
    cases.push(case(behaviour, "update, protobuf", async move |probe| {
        let object = object(&probe);
        probe.fixture.anew(collection, &object).await?;
        unchanged(&probe, &format!("{collection}/{}", object["metadata"]["name"].as_str().context("a name")?)).await
    }));
}

/// It arrives as it is, and before that as a dry run.
async fn tried(probe: &Probe, form: &Form) -> Result<Outcome> {
    let lease = beat(&format!("lease-{}", probe.mark));
    let ask = write("", form, &lease).ask(LEASES, &format!("lease-{}", probe.mark), "");
    probe.fixture.anew(LEASES, &lease).await?;
    let direct = probe.past(&ask).await?;
    Expected::Done.check(&direct)?;
    probe.fixture.anew(LEASES, &lease).await?;
    probe.take();
    let (proxied, arrived) = (probe.proxied(&ask).await?, probe.take());
    let [trial, real] = &arrived[..] else { anyhow::bail!("{arrived:#?}") };
    ensure!(trial.target.contains("dryRun=All") && trial.body == ask.body, "{trial:#?}");
    changes::note_query(part::DRY_RUN);
    probe.check_arrival(&ask, real, AS_SENT)?;
    answers(&direct, &proxied, OF_A_WRITE)?;
    Ok(Outcome::Changed(
        "the same, and tried in a dry run before: only the API server can say whether an election comes of it",
    ))
}
