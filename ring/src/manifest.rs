//! The CustomResourceDefinition of `ClusterRing`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::cluster_ring::ClusterRing;

/// Returns the manifest that stands in `deploy/`.
pub fn clusterring_crd() -> CustomResourceDefinition {
    ClusterRing::crd()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::cluster_ring::*;

    /// The example of the implementation chapter of the thesis, to the letter.
    const EXAMPLE: &str = r#"{
        "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
        "metadata": {"name": "example", "generation": 1},
        "spec": {
            "resources": [{"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]}],
            "namespaceSelector": {"matchLabels": {"role": "project"}}
        },
        "status": {
            "observedGeneration": 1, "shards": 3, "availableShards": 3,
            "conditions": [{"lastTransitionTime": "2024-01-16T08:09:02Z", "message": "ClusterRing was successfully reconciled",
                "observedGeneration": 1, "reason": "ReconciliationSucceeded", "status": "True", "type": "Ready"}]
        }
    }"#;

    #[test]
    fn the_published_example_passes_unchanged() {
        let given: serde_json::Value = serde_json::from_str(EXAMPLE).unwrap();
        let ring: ClusterRing = serde_json::from_value(given.clone()).unwrap();
        assert_eq!(ring.spec.resources[0].controlled_resources[0].resource, "secrets");
        assert_eq!(serde_json::to_value(ring).unwrap(), given);
    }

    #[test]
    fn the_manifest_is_that_of_the_contract() {
        let crd = clusterring_crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("clusterrings.sharding.timebertt.dev"));
        assert_eq!(crd.spec.scope, "Cluster");
        let version = &crd.spec.versions[0];
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let columns = |wide: bool| -> Vec<_> {
            let columns = version.additional_printer_columns.iter().flatten();
            let these = columns.filter(|column| column.priority.is_some_and(|priority| priority > 0) == wide);
            these.map(|column| column.name.as_str()).collect()
        };
        assert_eq!(columns(false), ["Ready", "Shards", "Objects", "Unassigned", "Draining", "Age"]);
        assert_eq!(columns(true), ["Available", "Lone"]);
        let names = &crd.spec.names;
        assert_eq!(
            (&names.short_names, &names.categories),
            (&Some(vec!["ring".into()]), &Some(vec!["ringside".into()]))
        );
    }

    #[test]
    fn the_deployed_manifest_is_up_to_date() {
        let kept = include_str!("../../deploy/kustomize/base/crd/clusterring.yaml");
        let fresh = serde_saphyr::to_string(&clusterring_crd()).unwrap();
        let is_up_to_date =
            kept.split_once('\n').is_some_and(|(comment, kept)| comment.starts_with('#') && kept == fresh);
        assert!(
            is_up_to_date,
            "deploy/kustomize/base/crd/clusterring.yaml is out of date; write it anew:\n  \
             cargo run -p ringside-ring --example crd > deploy/kustomize/base/crd/clusterring.yaml"
        );
    }
}
