//! What a pod template said before the injection, kept on it as an annotation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{INJECTED, Object, Refusal};

/// The annotation; it is there only where something is to be remembered.
const BEFORE: &str = "ringside.dev/before-injection";

/// What can't be told from the template after the injection.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Before {
    /// Variables as they were, by container and name; null for one that was not there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) env: BTreeMap<String, BTreeMap<String, Value>>,
    /// Mounts of the token's folder that were there by hand, by container, each with its place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) mounts: BTreeMap<String, (usize, Value)>,
    /// Lists and maps that were there, and empty: as they were, by their place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    empty: BTreeMap<String, Value>,
}

impl Before {
    /// The list under a key, made where it is not there.
    pub(super) fn list<'a>(
        &mut self,
        object: &'a mut Object,
        key: &str,
        place: &str,
    ) -> Result<&'a mut Vec<Value>, Refusal> {
        let value = self.filled(object, key, place, || Value::Array(Vec::new()));
        value.as_array_mut().ok_or_else(|| Refusal::Malformed(place.to_owned()))
    }

    pub(super) fn map<'a>(
        &mut self,
        object: &'a mut Object,
        key: &str,
        place: &str,
    ) -> Result<&'a mut Object, Refusal> {
        let value = self.filled(object, key, place, || Value::Object(Object::new()));
        value.as_object_mut().ok_or_else(|| Refusal::Malformed(place.to_owned()))
    }

    fn filled<'a>(
        &mut self,
        object: &'a mut Object,
        key: &str,
        place: &str,
        new: impl FnOnce() -> Value,
    ) -> &'a mut Value {
        if let Some(value) = object.get(key).filter(|value| is_empty(value)) {
            self.empty.insert(place.to_owned(), value.clone());
        }
        let value = object.entry(key).or_insert(Value::Null);
        if value.is_null() {
            *value = new();
        }
        value
    }

    /// Mounts again what stood in the token's folder.
    pub(super) fn mount_again(&self, name: &str, container: &mut Object) {
        let mounts = container.get_mut("volumeMounts").and_then(Value::as_array_mut);
        if let (Some((at, mount)), Some(mounts)) = (self.mounts.get(name), mounts) {
            mounts.insert((*at).min(mounts.len()), mount.clone());
        }
    }

    /// Leaves a list or map that has become empty as it was.
    pub(super) fn tidy(&self, object: &mut Object, key: &str, place: &str) {
        if object.get(key).is_some_and(is_empty) {
            match self.empty.get(place) {
                Some(value) => object.insert(key.to_owned(), value.clone()),
                None => object.remove(key),
            };
        }
    }

    /// Marks the template as injected, and keeps this on it.
    pub(super) fn mark(mut self, template: &mut Object) -> Result<(), Refusal> {
        let metadata = self.map(template, "metadata", "metadata")?;
        let annotations = self.map(metadata, "annotations", "metadata/annotations")?;
        annotations.insert(INJECTED.to_owned(), env!("CARGO_PKG_VERSION").into());
        if !(self.env.is_empty() && self.mounts.is_empty() && self.empty.is_empty()) {
            let text = serde_json::to_string(&self).map_err(|error| Refusal::Malformed(error.to_string()))?;
            annotations.insert(BEFORE.to_owned(), text.into());
        }
        Ok(())
    }

    /// Takes both marks off the template, and returns what was kept there.
    pub(super) fn unmark(template: &mut Object) -> Result<Self, Refusal> {
        let malformed = |what: &str| Refusal::Malformed(what.to_owned());
        let metadata = template.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.ok_or_else(|| malformed("metadata"))?;
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let annotations = annotations.ok_or_else(|| malformed("metadata/annotations"))?;
        annotations.remove(INJECTED);
        let before: Self = match annotations.remove(BEFORE) {
            Some(Value::String(text)) => serde_json::from_str(&text).map_err(|_| malformed(BEFORE))?,
            Some(_) => return Err(malformed(BEFORE)),
            None => Self::default(),
        };
        before.tidy(metadata, "annotations", "metadata/annotations");
        before.tidy(template, "metadata", "metadata");
        Ok(before)
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
