//! Puts manifests into a cluster as `kubectl apply --server-side` does.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use k8s_openapi::{
    api::rbac::v1::ClusterRole, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{Scope, oneshot},
};
use serde::Deserialize;
use serde_json::json;

use crate::{eventually::eventually, files::failed};

/// The field manager of everything that the harness writes.
const FIELD_MANAGER: &str = "ringside-e2e";

/// A new resource is served within a second or so of its definition.
const ESTABLISHED_DEADLINE: Duration = Duration::from_secs(30);

/// The documents of a YAML file.
pub fn read(path: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let text = fs::read_to_string(path).map_err(failed("read", path))?;
    parse(&text)
}

/// The documents of a folder with a `kustomization.yaml`: those of the files and folders in its `resources`, and of the
/// resources of its `components`. What such a file can say more is for kustomize alone.
pub fn read_folder(folder: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let path = folder.join("kustomization.yaml");
    let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
    let kustomization: Kustomization =
        serde_saphyr::from_str(&text).map_err(|error| anyhow!("parse {}: {error}", path.display()))?;
    let parts = kustomization.resources.iter().chain(&kustomization.components).map(|part| {
        let part = folder.join(part);
        if part.is_dir() { read_folder(&part) } else { read(&part) }
    });
    Ok(parts.collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// What kustomize makes of a folder.
pub fn kustomize(kubectl: &Path, folder: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let output = Command::new(kubectl).arg("kustomize").arg(folder).output().context("start kubectl")?;
    ensure!(output.status.success(), "kubectl kustomize: {}", String::from_utf8_lossy(&output.stderr));
    parse(&String::from_utf8(output.stdout)?)
}

#[derive(Deserialize)]
struct Kustomization {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    components: Vec<String>,
}

/// The documents of a YAML text.
pub fn parse(text: &str) -> anyhow::Result<Vec<DynamicObject>> {
    serde_saphyr::from_multiple(text).map_err(|error| anyhow!("parse the manifest: {error}"))
}

/// Applies the objects in their order.
pub async fn apply(client: &Client, objects: &[DynamicObject]) -> anyhow::Result<()> {
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    for object in objects {
        let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        let what = format!("{kind} {}", object.name_any());
        let refused = |error: kube::Error| anyhow!("apply {what}: {error}");
        let api = api_for(client, object).await?;
        api.patch(&object.name_any(), &parameters, &Patch::Apply(object)).await.map_err(refused)?;
        if kind == "ClusterRole" {
            aggregate_roles(client).await.map_err(refused)?;
        }
    }
    Ok(())
}

/// Gives each ClusterRole that aggregates others their rules, as the controller manager does where it runs.
pub async fn aggregate_roles(client: &Client) -> kube::Result<()> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let all = roles.list(&ListParams::default()).await?.items;
    for role in &all {
        let selectors = role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
        let wanted: Vec<_> = selectors.filter_map(|selector| selector.match_labels.as_ref()).collect();
        let has = |one: &ClusterRole, labels: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| one.labels().get(key) == Some(value))
        };
        let chosen = all.iter().filter(|one| wanted.iter().any(|labels| has(one, labels)));
        let rules: Vec<_> = chosen.flat_map(|one| one.rules.iter().flatten()).collect();
        if wanted.is_empty() || role.rules.iter().flatten().eq(rules.iter().copied()) {
            continue;
        }
        let patch = Patch::Merge(json!({ "rules": rules }));
        roles.patch(&role.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Applies a resource definition and waits until the resource is served.
pub async fn define(client: &Client, definition: &CustomResourceDefinition) -> anyhow::Result<()> {
    apply(client, &[serde_json::from_value(serde_json::to_value(definition)?)?]).await?;
    served(client, &definition.name_any()).await
}

/// Waits until the resource of a definition is served: established, and in what its group lists.
pub async fn served(client: &Client, definition: &str) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually(&format!("{definition} is served"), ESTABLISHED_DEADLINE, || async {
        let found = api.get(definition).await.map_err(|error| error.to_string())?;
        let conditions = found.status.unwrap_or_default().conditions.unwrap_or_default();
        let established =
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
        if !established {
            return Err(format!("{conditions:?}"));
        }
        for version in found.spec.versions.iter().filter(|version| version.served) {
            let version = format!("{}/{}", found.spec.group, version.name);
            let listed = client.list_api_group_resources(&version).await.map_err(|error| error.to_string())?;
            let is_it = listed.resources.iter().any(|resource| resource.name == found.spec.names.plural);
            is_it.then_some(()).ok_or_else(|| format!("{version} does not list it"))?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// Returns the API where an object belongs.
pub async fn api_for(client: &Client, object: &DynamicObject) -> anyhow::Result<Api<DynamicObject>> {
    let types = object.types.clone().unwrap_or_default();
    let kind = GroupVersionKind::try_from(&types).map_err(|error| anyhow!("parse the manifest: {error}"))?;
    let found = oneshot::pinned_kind(client, &kind).await;
    let (resource, capabilities) = found.with_context(|| format!("find {} {}", kind.kind, object.name_any()))?;
    Ok(match (capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn reads_several_documents() {
        let text = "# a comment\nkind: A\napiVersion: v1\nmetadata: {name: a}\n---\nkind: B\napiVersion: v1\nmetadata: {name: b}\nspec: {x: 1}\n";
        let objects = parse(text).unwrap();
        assert_eq!(objects.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(objects[1].data["spec"]["x"], 1);
    }
}
