//! The CustomResourceDefinitions of the two kinds of ring.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, ValidationRule,
};
use kube::CustomResourceExt;

use crate::{cluster_ring::ClusterRing, kind::RingKind};

/// Returns the manifest of a kind of ring that stands in `deploy/`.
pub fn definition(kind: RingKind) -> CustomResourceDefinition {
    match kind {
        RingKind::ClusterRing => ClusterRing::crd(),
        RingKind::ControllerRing => controller_ring(ClusterRing::crd()),
    }
}

/// The same with other names. The short name `ring` stays that of the kind of the contract.
fn controller_ring(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let names = RingKind::ControllerRing.names();
    definition.metadata.name = Some(names.definition.to_owned());
    definition.spec.names = CustomResourceDefinitionNames {
        kind: names.kind.to_owned(),
        list_kind: Some(format!("{}List", names.kind)),
        plural: names.plural.to_owned(),
        singular: Some(names.singular.to_owned()),
        short_names: None,
        categories: definition.spec.names.categories,
    };
    let versions = definition.spec.versions.iter_mut();
    for schema in versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
            rule: "!self.metadata.name.startsWith('clusterring-')".to_owned(),
            message: Some("the labels of such a name could be those of a ClusterRing: choose one that does not begin with 'clusterring-'".to_owned()),
            ..ValidationRule::default()
        });
    }
    definition
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;

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
        let crd = definition(RingKind::ClusterRing);
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
    fn both_kinds_have_one_schema() {
        let [older, newer] = RingKind::ALL.map(|kind| definition(kind).spec.versions.remove(0));
        let properties = |of: &CustomResourceDefinitionVersion| {
            of.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap().properties.clone()
        };
        assert_eq!(properties(&older), properties(&newer));
        assert_eq!(older.additional_printer_columns, newer.additional_printer_columns);
        let named = definition(RingKind::ControllerRing);
        assert_eq!(named.metadata.name.as_deref(), Some("controllerrings.sharding.timebertt.dev"));
        assert_eq!((named.spec.names.kind.as_str(), named.spec.names.short_names), ("ControllerRing", None));
    }

    #[test]
    fn the_deployed_manifests_are_up_to_date() {
        for (kind, file, kept) in [
            (
                RingKind::ClusterRing,
                "base/crd/clusterring.yaml",
                include_str!("../../deploy/kustomize/base/crd/clusterring.yaml"),
            ),
            (
                RingKind::ControllerRing,
                "components/controller-rings/controllerring.yaml",
                include_str!("../../deploy/kustomize/components/controller-rings/controllerring.yaml"),
            ),
        ] {
            let fresh = serde_saphyr::to_string(&definition(kind)).unwrap();
            let is_up_to_date =
                kept.split_once('\n').is_some_and(|(comment, kept)| comment.starts_with('#') && kept == fresh);
            assert!(
                is_up_to_date,
                "deploy/kustomize/{file} is out of date; write it again:\n  \
                 cargo run -p ringside-ring --example crd {} > deploy/kustomize/{file}",
                kind.names().singular
            );
        }
    }
}
