//! Who else writes a workload, and takes off what was added to it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// What takes a change off that Helm did not make.
const HELM_UPGRADE: &str = "the next `helm upgrade`";

/// A tool that manages a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The tool, and by what name it has the workload.
    pub by: String,
    /// What it does with the change.
    then: &'static str,
}

impl Managed {
    /// The tool that manages this object, if one says so on it.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let mark = |key: &str| {
            [&metadata.labels, &metadata.annotations].into_iter().flatten().find_map(|marks| marks.get(key))
        };
        let reconcile = "its next reconcile";
        let managed = |by: String, then| Some(Self { by, then });
        if let Some(release) = mark("meta.helm.sh/release-name") {
            let namespace = mark("meta.helm.sh/release-namespace").map_or("", String::as_str);
            return managed(format!("Helm release \"{release}\" (namespace {namespace})"), HELM_UPGRADE);
        }
        if let Some(owner) = mark("olm.owner") {
            return managed(format!("OLM, as part of {owner}"), reconcile);
        }
        let argo = mark("argocd.argoproj.io/tracking-id").or_else(|| mark("argocd.argoproj.io/instance"));
        if let Some(application) = argo.and_then(|id| id.split(':').next()) {
            return managed(format!("Argo CD application \"{application}\""), "its next sync");
        }
        if let Some(name) = mark("kustomize.toolkit.fluxcd.io/name") {
            return managed(format!("Flux Kustomization \"{name}\""), reconcile);
        }
        if let Some(name) = mark("helm.toolkit.fluxcd.io/name") {
            return managed(format!("Flux HelmRelease \"{name}\""), reconcile);
        }
        // OLM owns Deployments, and does not always control them.
        let writes = |owner: &&OwnerReference| owner.controller == Some(true) || owner.kind == "ClusterServiceVersion";
        if let Some(owner) = metadata.owner_references.iter().flatten().find(writes) {
            return managed(format!("{} \"{}\"", owner.kind, owner.name), reconcile);
        }
        None
    }

    /// The same, or what only hints at a tool: rendered by Helm, it may have been applied by another.
    #[must_use]
    pub fn hinted(metadata: &ObjectMeta) -> Option<Self> {
        let by = metadata.labels.as_ref().and_then(|labels| labels.get("app.kubernetes.io/managed-by"));
        let helm = || Self { by: "Helm".to_owned(), then: HELM_UPGRADE };
        Self::of(metadata).or_else(|| by.filter(|by| *by == "Helm").map(|_| helm()))
    }

    /// What its user is told.
    #[must_use]
    pub fn warning(&self) -> String {
        let Self { by, then } = self;
        format!(
            "managed by {by}: {then} undoes this. Use the injector (docs: shard-a-controller#helm-olm-argo-cd), or --force"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn managed(metadata: Value) -> Option<Managed> {
        Managed::of(&serde_json::from_value(metadata).unwrap())
    }

    #[test]
    fn each_tool_is_known_by_its_mark() {
        for (metadata, told) in [
            (
                json!({"annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "default"}}),
                "Helm release \"web\" (namespace default): the next `helm upgrade` undoes",
            ),
            (json!({"labels": {"olm.owner": "kafka.v1"}}), "OLM, as part of kafka.v1: its next reconcile"),
            (
                json!({"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:a/b"}}),
                "Argo CD application \"shop\": its next sync",
            ),
            (json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}), "Flux Kustomization \"apps\""),
            (json!({"labels": {"helm.toolkit.fluxcd.io/name": "web"}}), "Flux HelmRelease \"web\""),
            (
                json!({"ownerReferences": [{"kind": "A", "name": "a"}, {"kind": "Operator", "name": "o", "controller": true}]}),
                "managed by Operator \"o\"",
            ),
            (
                json!({"ownerReferences": [{"kind": "ClusterServiceVersion", "name": "kafka.v1"}]}),
                "ClusterServiceVersion \"kafka.v1\": its next reconcile",
            ),
        ] {
            let warning = managed(metadata).unwrap().warning();
            assert!(warning.contains(told) && warning.contains("--force"), "{warning}");
        }
        for free in [
            json!({}),
            json!({"ownerReferences": [{"kind": "A", "name": "a"}]}),
            json!({"labels": {"a": "b", "app.kubernetes.io/managed-by": "me"}}),
        ] {
            assert_eq!(managed(free), None);
        }
    }

    #[test]
    fn what_helm_has_rendered_may_have_been_applied_by_another() {
        let rendered: ObjectMeta =
            serde_json::from_value(json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}})).unwrap();
        assert_eq!(Managed::of(&rendered), None);
        assert_eq!(Managed::hinted(&rendered).unwrap().by, "Helm");
    }
}
