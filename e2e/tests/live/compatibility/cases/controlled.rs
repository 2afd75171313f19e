//! Writes whose body the proxy reads before it sends it on: of what an object of the ring controls, and of Leases and
//! ConfigMaps in the shard's namespace, which might begin an election.

use std::slice;

use super::{
    writes::{both, both_to},
    *,
};

pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A form of a write: its name, the method, what stands behind the path, the type and the body.
type Form = (&'static str, Method, &'static str, &'static str, fn(&Value) -> String);

/// Each names the owner, which is the shard's.
const CONTROLLED: [Form; 4] = [
    ("update", Method::PUT, "", JSON, |owner| replica_set(owner).to_string()),
    ("create, that exists", Method::POST, "..", JSON, |owner| replica_set(owner).to_string()),
    ("merge patch", Method::PATCH, "", MERGE, |owner| json!({"metadata": {"ownerReferences": [owner]}}).to_string()),
    // JSON is YAML, and the API server reads this as that.
    ("server-side apply", Method::PATCH, "?fieldManager=me&force=true", APPLY, |owner| replica_set(owner).to_string()),
];

/// Of a Lease that elects no leader: its holder is alive, and nothing else.
const LEASE: [Form; 2] = [
    ("update", Method::PUT, "", JSON, |lease| {
        let mut lease = lease.clone();
        lease["metadata"]["resourceVersion"] = CURRENT.into();
        lease.to_string()
    }),
    ("merge patch", Method::PATCH, "", MERGE, |_| json!({"metadata": {"labels": {"a": "b"}}}).to_string()),
];

pub(crate) fn cases() -> Vec<Case> {
    let behaviour = "write of a controlled resource";
    let forms = CONTROLLED.map(|form| (form.0, form));
    let mut cases: Vec<_> = by_form(behaviour, forms, async |probe, form| {
        let (namespace, owner) = deployment(&probe).await?;
        both(&probe, &namespace, &write(&form, &owner)).await
    })
    .collect();
    let of_lease = "write of a Lease that is no election's, in the shard's namespace";
    cases.extend(by_form(of_lease, LEASE.map(|form| (form.0, form)), async |probe, form| {
        let lease = beat(&format!("lease-{}", probe.mark));
        both_to(&probe, LEASES, slice::from_ref(&lease), &write(&form, &lease)).await
    }));
    cases.push(case(of_lease, "merge patch of its spec", tried));
    let of_map = "write of a ConfigMap that is no election's, in the shard's namespace";
    cases.push(case(of_map, "update", async |probe| {
        // It has settings, and nothing of an election.
        let mut map = Kind::ConfigMap.object(&probe.shard.labels());
        map["metadata"]["name"] = format!("settings-{}", probe.mark).into();
        let update = write(&("", Method::PUT, "", JSON, Value::to_string), &map);
        both_to(&probe, CONFIG_MAPS, slice::from_ref(&map), &update).await
    }));
    cases
}

/// The write in this form. Each finds the object, so that one can't make it.
fn write((form, method, target, content_type, body): &Form, of: &Value) -> Write {
    let write = writes::write("", form, Kind::ReplicaSet, method.clone(), target, content_type, &body(of));
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

fn beat(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    })
}

/// Of a Lease that may also be an election's: the patch alone does not tell. It arrives as it is, and before that as a
/// dry run.
async fn tried(probe: Probe) -> Result<Outcome> {
    let lease = beat(&format!("lease-{}", probe.mark));
    let ask = Ask::new(Method::PATCH, format!("{LEASES}/lease-{}", probe.mark));
    let ask = ask.body(MERGE, json!({"spec": {"renewTime": "2026-01-01T00:00:40.000000Z"}}).to_string());
    probe.fixture.anew(LEASES, &lease).await?;
    let direct = probe.past(&ask).await?.done()?;
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
