//! What the expressions (CEL) of our admission policies have in common.

use serde_json::Value;

/// The field manager that a write names; empty where it names none, and for what deletes and connects.
pub(crate) const MANAGER: &str = "request.?options.?fieldManager.orValue('')";

/// Whether an object is there and names one that controls it.
pub(crate) const CONTROLLED: &str =
    "object.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))";

/// As a string of CEL, whose escapes are those of JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
