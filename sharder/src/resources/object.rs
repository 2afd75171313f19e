//! What is read of an object.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, core::DynamicObject};
use ringside_ring::placed_by::MAX_VALUE_LENGTH;
use serde::{Deserialize, Deserializer};

/// An object of whatever resource, reduced to what the sharder decides by: requests for it ask for its metadata alone, and
/// most of that is what others wrote down about it.
///
/// `managedFields` and long annotations are most of what a list of metadata is, and are not kept while the rest of a page is
/// decoded: what a page takes would else stay with the process for good (`bench/`, `sharder`). Objects can be placed by a short one.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Object {
    /// Its identity, version, labels, short annotations and owners; everything else is left empty.
    #[serde(default, deserialize_with = "decided_by")]
    pub(crate) metadata: ObjectMeta,
}

fn decided_by<'de, D: Deserializer<'de>>(decoder: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DecidedBy {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let DecidedBy { name, namespace, uid, resource_version, labels, annotations, owner_references } =
        DecidedBy::deserialize(decoder)?;
    let short = annotations.map(|annotations| {
        annotations.into_iter().filter(|(_, value)| value.len() <= MAX_VALUE_LENGTH).collect::<BTreeMap<_, _>>()
    });
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        labels,
        annotations: short.filter(|short| !short.is_empty()),
        owner_references,
        ..ObjectMeta::default()
    })
}

impl Resource for Object {
    type DynamicType = <DynamicObject as Resource>::DynamicType;
    type Scope = <DynamicObject as Resource>::Scope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(api: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::kind(api)
    }

    fn group(api: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::group(api)
    }

    fn version(api: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::version(api)
    }

    fn plural(api: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::plural(api)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_wrote_down_about_an_object_is_not_kept() {
        let kept = json!({
            "name": "o", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
            "annotations": {"example.com/tenant": "red"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "v", "controller": true}],
        });
        let mut whole = kept.clone();
        let applied = "x".repeat(MAX_VALUE_LENGTH + 1);
        whole["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied.into();
        whole["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]);
        whole["finalizers"] = json!(["example.com/finalizer"]);
        let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": whole});
        let object: Object = serde_json::from_value(object).unwrap();
        assert_eq!(serde_json::to_value(object.meta()).unwrap(), kept);
        assert!(Object::metadata_api(), "the whole object would be asked for");
    }

    #[test]
    fn nulls_and_a_lack_of_metadata_are_nothing() {
        let of = |object| serde_json::from_value::<Object>(object).unwrap().metadata;
        assert_eq!(of(json!({"metadata": {"annotations": null}})), ObjectMeta::default());
        assert_eq!(of(json!({})), ObjectMeta::default());
        assert_eq!(of(json!({"metadata": {"labels": null, "ownerReferences": null}})), ObjectMeta::default());
    }
}
