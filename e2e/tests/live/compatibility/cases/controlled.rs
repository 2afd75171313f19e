//! Writes whose body the proxy reads before it sends it on: of what an object of the ring controls, and of Leases and
//! ConfigMaps in the shard's namespace, which might begin an election.

use anyhow::{Context as _, Result, ensure};
use http::{Method, StatusCode};
use ringside_e2e::compatibility::Outcome;
use serde_json::{Value, json};

use super::{
    refusals::LEASES,
    writes::{self, APPLY, CURRENT, JSON, JSON_PATCH, Kind, MERGE, STRATEGIC, Write, both, unchanged},
};
use crate::compatibility::{
    changes::{self, part},
    client::Ask,
    compare::{Expected, OF_A_WRITE, Probe, Rewritten, answers},
    fixture::Fixture,
    table::{Case, case},
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
        cases.push(case(behaviour, form.0, move |fixture, mark| async move {
            let probe = Probe::new(&fixture, &mark);
            let (namespace, owner) = owner(&fixture, &probe).await?;
            let expected = expected(&form);
            let (_, method, target, content_type, body) = form;
            let write = writes::write(behaviour, form.0, Kind::ReplicaSet, method, target, content_type, &body(&owner));
            let write = Write { expected, ..write };
            both(&fixture, &probe, &namespace, &write).await
        }));
    }
    cases.push(case(behaviour, "update, protobuf", |fixture, mark| async move {
        let probe = Probe::new(&fixture, &mark);
        let (namespace, owner) = owner(&fixture, &probe).await?;
        let collection = Kind::ReplicaSet.collection(&namespace);
        let mut child = Kind::ReplicaSet.object(&probe.shard.labels());
        child["metadata"]["ownerReferences"] = json!([owner]);
        fixture.anew(&collection, &child).await?;
        unchanged(&probe, &format!("{collection}/thing")).await
    }));
    let behaviour = "write of a Lease that is no election's, in the shard's namespace";
    bystanders(&mut cases, behaviour, LEASES, &LEASE, |probe| beat(&format!("lease-{}", probe.mark)));
    for form in &TRIED {
        cases.push(case(behaviour, form.0, move |fixture, mark| async move {
            let probe = Probe::new(&fixture, &mark);
            tried(&fixture, &probe, form).await
        }));
    }
    let behaviour = "write of a ConfigMap that is no election's, in the shard's namespace";
    bystanders(&mut cases, behaviour, CONFIG_MAPS, &CONFIG_MAP, |probe| {
        let mut map = Kind::ConfigMap.object(&probe.shard.labels());
        map["metadata"]["name"] = format!("settings-{}", probe.mark).into();
        map
    });
    cases
}

/// Each finds the object, so that one can't make it.
fn expected(form: &Form) -> Expected {
    if form.1 == Method::POST { Expected::Status(StatusCode::CONFLICT) } else { Expected::Done }
}

/// A reference to a Deployment of the shard in a namespace of the case's own.
async fn owner(fixture: &Fixture, probe: &Probe<'_>) -> Result<(String, Value)> {
    let namespace = format!("controlled-{}", probe.mark);
    fixture.namespace(&namespace).await?;
    let collection = Kind::Deployment.collection(&namespace);
    fixture.anew(&collection, &Kind::Deployment.object(&probe.shard.labels())).await?;
    let made = fixture.admin(&Ask::get(format!("{collection}/thing"))).await?;
    let uid = made["metadata"]["uid"].as_str().context("a uid")?;
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "thing", "uid": uid, "controller": true});
    Ok((namespace, owner))
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
    object: fn(&Probe<'_>) -> Value,
) {
    for form in forms {
        cases.push(case(behaviour, form.0, move |fixture, mark| async move {
            let probe = Probe::new(&fixture, &mark);
            bystander(&fixture, &probe, (collection, &object(&probe)), form).await
        }));
    }
    cases.push(case(behaviour, "update, protobuf", move |fixture, mark| async move {
        let probe = Probe::new(&fixture, &mark);
        let object = object(&probe);
        fixture.anew(collection, &object).await?;
        unchanged(&probe, &format!("{collection}/{}", object["metadata"]["name"].as_str().context("a name")?)).await
    }));
}

async fn bystander(
    fixture: &Fixture,
    probe: &Probe<'_>,
    (collection, object): (&str, &Value),
    form: &Form,
) -> Result<Outcome> {
    let asks = asks(collection, object, form)?;
    let ask = |version: String| asks(&version);
    let direct = probe.past(&ask(fixture.anew(collection, object).await?)).await?;
    expected(form).check(&direct)?;
    let (proxied, _) = probe.through(&ask(fixture.anew(collection, object).await?), Rewritten::default()).await?;
    answers(&direct, &proxied, OF_A_WRITE)
}

/// How to ask for this form of a write, by the version of the object.
fn asks<'a>(collection: &str, object: &'a Value, form: &'a Form) -> Result<impl Fn(&str) -> Ask + 'a> {
    let (_, method, target, content_type, body) = form;
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let target = match target.strip_prefix("..") {
        Some(query) => format!("{collection}{query}"),
        None => format!("{collection}/{name}{target}"),
    };
    Ok(move |version: &str| {
        Ask::new(method.clone(), &target).body(content_type, body(object).replace(CURRENT, version))
    })
}

/// It arrives as it is, and before that as a dry run.
async fn tried(fixture: &Fixture, probe: &Probe<'_>, form: &Form) -> Result<Outcome> {
    let lease = beat(&format!("lease-{}", probe.mark));
    let ask = asks(LEASES, &lease, form)?("");
    fixture.anew(LEASES, &lease).await?;
    let direct = probe.past(&ask).await?;
    Expected::Done.check(&direct)?;
    fixture.anew(LEASES, &lease).await?;
    probe.shard.relay.take(probe.mark);
    let (proxied, arrived) = probe.exchanged(&ask).await?;
    let [trial, real] = &arrived[..] else { anyhow::bail!("{arrived:#?}") };
    ensure!(trial.target.contains("dryRun=All") && trial.body == ask.body, "{trial:#?}");
    changes::note_query(part::DRY_RUN);
    probe.check_arrival(&ask, real, Rewritten::default())?;
    answers(&direct, &proxied, OF_A_WRITE)?;
    Ok(Outcome::Changed(
        "the same, and tried in a dry run before: only the API server can say whether an election comes of it",
    ))
}
