//! By what the objects of a resource are placed: each by its name, or all with one value together.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::partition::PartitionKey;

/// What says where the objects of a resource belong.
///
/// An object without the value is placed by its name. A value is one in the whole ring: objects of other resources that are
/// placed by the same, and objects of other namespaces, are with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlacedBy {
    /// Each by its own name.
    #[default]
    Name,
    /// All of one namespace together.
    Namespace,
    /// All with one value of this label together.
    Label(String),
    /// All with one value of this annotation together. One of more than 253 bytes counts as none.
    Annotation(String),
    /// The ring says something else, for people: nothing is placed by that.
    Unusable(String),
}

/// The longest value of an annotation that objects are placed by, in bytes: a longer one counts as none.
pub const MAX_VALUE_LENGTH: usize = 253;

impl PlacedBy {
    /// The key of an object: `usual` where it is placed by its name. `namespace` is empty for a cluster-scoped one.
    pub fn key(
        &self,
        usual: PartitionKey,
        namespace: &str,
        labels: Option<&BTreeMap<String, String>>,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> PartitionKey {
        let value = |map: Option<&BTreeMap<String, String>>, key: &str| map?.get(key).cloned();
        let shared = match self {
            Self::Name | Self::Unusable(_) => None,
            Self::Namespace => (!namespace.is_empty()).then(|| PartitionKey::shared("namespace", "", namespace)),
            Self::Label(key) => value(labels, key).map(|value| PartitionKey::shared("label", key, &value)),
            Self::Annotation(key) => {
                let value = value(annotations, key).filter(|value| value.len() <= MAX_VALUE_LENGTH);
                value.map(|value| PartitionKey::shared("annotation", key, &value))
            }
        };
        shared.unwrap_or(usual)
    }

    /// Whether a change of an object's labels or annotations may change where it belongs.
    pub const fn may_change(&self) -> bool {
        matches!(self, Self::Label(_) | Self::Annotation(_))
    }
}

impl fmt::Display for PlacedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("name"),
            Self::Namespace => f.write_str("namespace"),
            Self::Unusable(said) => f.write_str(said),
            Self::Label(key) => write!(f, "label {key}"),
            Self::Annotation(key) => write!(f, "annotation {key}"),
        }
    }
}

impl Serialize for PlacedBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name => serializer.serialize_none(),
            Self::Unusable(said) => serializer.serialize_str(said),
            Self::Namespace => serializer.serialize_str("Namespace"),
            Self::Label(key) => BTreeMap::from([("label", key)]).serialize(serializer),
            Self::Annotation(key) => BTreeMap::from([("annotation", key)]).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PlacedBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = Value::deserialize(deserializer)?;
        if said.is_null() {
            return Ok(Self::Name);
        }
        if said == "Namespace" {
            return Ok(Self::Namespace);
        }
        let one = said.as_object().filter(|map| map.len() == 1).and_then(|map| map.iter().next());
        // What can't be read here must not hide the whole ring.
        Ok(match one.and_then(|(by, key)| Some((by.as_str(), key.as_str().filter(|key| !key.is_empty())?))) {
            Some(("label", key)) => Self::Label(key.to_owned()),
            Some(("annotation", key)) => Self::Annotation(key.to_owned()),
            _ => Self::Unusable(said.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn map(key: &str, value: &str) -> BTreeMap<String, String> {
        [(key.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn what_it_is_read_from_it_is_written_as() {
        for (said, read) in [
            (json!(null), PlacedBy::Name),
            (json!("Namespace"), PlacedBy::Namespace),
            (json!({"label": "team"}), PlacedBy::Label("team".into())),
            (json!({"annotation": "a.example/tenant"}), PlacedBy::Annotation("a.example/tenant".into())),
        ] {
            assert_eq!(serde_json::from_value::<PlacedBy>(said.clone()).unwrap(), read);
            assert_eq!(serde_json::to_value(&read).unwrap(), said);
        }
        for wrong in [
            json!("namespace"),
            json!({}),
            json!({"label": ""}),
            json!({"label": 1}),
            json!({"name": "x"}),
            json!({"label": "a", "annotation": "b"}),
        ] {
            assert_eq!(
                serde_json::from_value::<PlacedBy>(wrong.clone()).unwrap(),
                PlacedBy::Unusable(wrong.to_string())
            );
        }
    }

    #[test]
    fn objects_with_one_value_have_one_key_and_those_without_their_own() {
        let usual = |name: &str| PartitionKey::of("", "ConfigMap", "a", name);
        let by_label = PlacedBy::Label("team".into());
        let red = by_label.key(usual("x"), "a", Some(&map("team", "red")), None);
        assert_eq!(red, by_label.key(usual("y"), "b", Some(&map("team", "red")), None));
        assert_eq!(red.as_str(), "label/team/red");
        assert_ne!(red, by_label.key(usual("y"), "b", Some(&map("team", "blue")), None));
        assert_eq!(by_label.key(usual("x"), "a", Some(&map("other", "red")), None), usual("x"));
        let by_annotation = PlacedBy::Annotation("team".into());
        assert_ne!(by_annotation.key(usual("x"), "a", None, Some(&map("team", "red"))), red, "not the label");
        let long = "x".repeat(MAX_VALUE_LENGTH + 1);
        assert_eq!(by_annotation.key(usual("x"), "a", None, Some(&map("team", &long))), usual("x"));
        let by_namespace = PlacedBy::Namespace;
        assert_eq!(by_namespace.key(usual("x"), "a", None, None), by_namespace.key(usual("y"), "a", None, None));
        assert_eq!(by_namespace.key(usual("x"), "", None, None), usual("x"), "it is in no namespace");
    }
}
