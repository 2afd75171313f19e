//! The permissions that go along with an injection.

use std::collections::BTreeMap;

use anyhow::Context as _;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use ringside_ring::{
    Ring,
    rights::{Shards, rights},
};
use ringside_runtime::explain::explain;
use serde_json::Value;

use super::{WithRbac, documents::Documents};
use crate::cluster::Global;

/// The field manager of what is applied.
pub(super) const FIELD_MANAGER: &str = "ringside";

/// Those for a workload in a file. The ring is read from the file, else from the cluster.
pub(super) async fn of_file(
    global: &Global,
    with: &WithRbac,
    documents: &Documents,
    workload: &Value,
) -> anyhow::Result<Vec<Value>> {
    let namespace = global.namespace.as_deref().unwrap_or("default");
    let ring = match documents.find(with.ring.kind().names().kind, with.ring.name()) {
        Some(ring) => serde_json::from_value(ring).context("the ring in the file can't be read")?,
        None => find_ring(&global.connect().await?.client, with).await?,
    };
    Ok(of(&ring, with, workload, namespace))
}

/// Those for a workload, which is in this namespace if it names none.
pub(super) fn of(ring: &Ring, with: &WithRbac, workload: &Value, namespace: &str) -> Vec<Value> {
    let account = workload.pointer("/spec/template/spec/serviceAccountName").and_then(Value::as_str);
    let shards = Shards {
        namespace: workload["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned(),
        account: Some(account.unwrap_or("default").to_owned()),
    };
    rights(&with.ring, &ring.spec, &with.sharder_namespace, &[shards])
}

/// The ring in the cluster.
pub(super) async fn find_ring(client: &Client, with: &WithRbac) -> anyhow::Result<Ring> {
    let (ring, titled) = (&with.ring, with.ring.titled());
    let found = Api::<Ring>::all_with(client.clone(), &ring.kind()).get_opt(ring.name()).await;
    let found = found.map_err(|error| anyhow::anyhow!("can't read {titled}: {}", explain(&error)))?;
    found.with_context(|| format!("there is no {titled}: write it first (docs: shard-a-controller)"))
}

/// Applies them.
pub(super) async fn apply(client: &Client, objects: &[Value], dry_run: bool) -> anyhow::Result<()> {
    let parameters = PatchParams { dry_run, ..PatchParams::apply(FIELD_MANAGER).force() };
    for object in objects {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), namespace, &resource)
        };
        let failed = |error: kube::Error| anyhow::anyhow!("can't apply {kind} {name}: {}", explain(&error));
        let mut object = object.clone();
        if object.get("subjects").is_some()
            && let Some(stored) = api.get_opt(name).await.map_err(failed)?
        {
            keep_subjects(&mut object, &stored.data);
        }
        api.patch(name, &parameters, &Patch::Apply(&object)).await.map_err(failed)?;
    }
    Ok(())
}

/// Other workloads of a ring have their accounts in the same bindings.
fn keep_subjects(binding: &mut Value, stored: &Value) {
    let Some(subjects) = binding["subjects"].as_array_mut() else { return };
    let stored = stored["subjects"].as_array().into_iter().flatten();
    let is_same = |one: &Value, other: &Value| ["kind", "name", "namespace"].iter().all(|key| one[key] == other[key]);
    for subject in stored {
        if !subjects.iter().any(|own| is_same(own, subject)) {
            subjects.push(subject.clone());
        }
    }
}

/// How many there are of each kind.
pub(super) fn counted(objects: &[Value]) -> String {
    let mut kinds = BTreeMap::new();
    for object in objects {
        *kinds.entry(object["kind"].as_str().unwrap_or_default()).or_insert(0) += 1;
    }
    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("permissions: {}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accounts_of_other_workloads_stay_bound() {
        let of = |names: &[&str]| {
            let subject = |name: &&str| json!({"kind": "ServiceAccount", "name": name, "namespace": "a"});
            json!({"subjects": names.iter().map(subject).collect::<Vec<_>>()})
        };
        let mut binding = of(&["new"]);
        keep_subjects(&mut binding, &of(&["old", "new"]));
        assert_eq!(binding, of(&["new", "old"]));
        keep_subjects(&mut binding, &json!({}));
        assert_eq!(binding, of(&["new", "old"]));
    }
}
