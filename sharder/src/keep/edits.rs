//! Edits that come back after each write. They are undone some times, and not for ever: who makes them all the time would keep
//! the API server busy.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::DynamicObject;
use serde_json::Value;

use crate::FIELD_MANAGER;

/// How often the same edit is undone.
const UNDONE: u32 = 2;

/// How an object was edited, as far as that is ours to say.
#[derive(PartialEq)]
pub(super) struct Edit {
    data: Value,
    labels: BTreeMap<String, Option<String>>,
    owners: Option<Vec<OwnerReference>>,
}

impl Edit {
    /// What is stored where this is wanted.
    pub(super) fn of(stored: &DynamicObject, wanted: &DynamicObject) -> Self {
        let mut data = stored.data.clone();
        data.as_object_mut().map(|data| data.remove("status"));
        let label =
            |key: &String| (key.clone(), stored.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned()));
        let labels = wanted.metadata.labels.iter().flat_map(BTreeMap::keys).map(label).collect();
        Self { data, labels, owners: stored.metadata.owner_references.clone() }
    }
}

/// The last edit, and how often it was undone.
#[derive(Default)]
pub(super) struct Edits {
    last: Option<Edit>,
    undone: u32,
}

impl Edits {
    /// Whether it came back too often to be undone once more.
    pub(super) fn has_come_back(&self, edit: &Edit) -> bool {
        self.undone >= UNDONE && self.last.as_ref() == Some(edit)
    }

    pub(super) fn undid(&mut self, edit: Edit) {
        self.undone = if self.last.as_ref() == Some(&edit) { self.undone + 1 } else { 1 };
        self.last = Some(edit);
    }

    /// It was not edited for long: what comes now may be undone once.
    pub(super) fn rested(&mut self) {
        self.undone = self.undone.min(UNDONE - 1);
    }
}

/// Who wrote to the object last beside the sharder, by its field manager.
pub(super) fn editor(metadata: &ObjectMeta) -> String {
    let entries = metadata.managed_fields.iter().flatten();
    let others = entries.filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let last = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    let manager = last.and_then(|entry| entry.manager.clone());
    manager.map_or_else(|| "an unknown field manager".to_owned(), |manager| format!("field manager \"{manager}\""))
}
