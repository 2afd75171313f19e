//! Who else writes a workload, and takes off what was added to it.

use serde_json::Value;

/// A tool that manages a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Managed {
    /// The tool, and by what name it has the workload.
    by: String,
    /// What it does with the change.
    then: &'static str,
}

impl Managed {
    /// The tool that manages this object, if one says so on it.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let label = |key: &str| metadata["labels"][key].as_str();
        let annotation = |key: &str| metadata["annotations"][key].as_str();
        let managed = |by: String, then| Some(Self { by, then });
        let reconcile = "its next reconcile";
        if let Some(release) = annotation("meta.helm.sh/release-name") {
            let namespace = annotation("meta.helm.sh/release-namespace").unwrap_or_default();
            return managed(format!("Helm release \"{release}\" (namespace {namespace})"), "the next `helm upgrade`");
        }
        if let Some(owner) = label("olm.owner") {
            return managed(format!("OLM, as part of {owner}"), reconcile);
        }
        let argo = annotation("argocd.argoproj.io/tracking-id").or_else(|| label("argocd.argoproj.io/instance"));
        if let Some(application) = argo.and_then(|id| id.split(':').next()) {
            return managed(format!("Argo CD application \"{application}\""), "its next sync");
        }
        if let Some(name) = label("kustomize.toolkit.fluxcd.io/name") {
            return managed(format!("Flux Kustomization \"{name}\""), reconcile);
        }
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let mut controllers = owners.filter(|owner| owner["controller"] == true);
        let controller = controllers.next()?;
        let part = |key: &str| controller[key].as_str().unwrap_or_default();
        managed(format!("{} \"{}\"", part("kind"), part("name")), reconcile)
    }

    /// What its user is told.
    pub(super) fn warning(&self) -> String {
        let Self { by, then } = self;
        format!(
            "managed by {by}: {then} undoes this. Use the injector (docs: shard-a-controller#helm-olm-argo-cd), or --force"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            (
                json!({"ownerReferences": [{"kind": "A", "name": "a"}, {"kind": "Operator", "name": "o", "controller": true}]}),
                "managed by Operator \"o\"",
            ),
        ] {
            let warning =
                Managed::of(&json!({"metadata": metadata})).map(|managed| managed.warning()).unwrap_or_default();
            assert!(warning.contains(told) && warning.contains("--force"), "{warning}");
        }
        for free in [json!({}), json!({"ownerReferences": [{"kind": "A", "name": "a"}]}), json!({"labels": {"a": "b"}})]
        {
            assert_eq!(Managed::of(&json!({"metadata": free})), None);
        }
    }
}
