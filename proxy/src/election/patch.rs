//! Patches of an election's lock.

use http::{HeaderMap, header};
use serde_json::Value;

use super::{
    LockRefusal,
    object::{Kind, Object},
};

/// Whether a patch of any kind may change the election's record.
pub(super) fn touches_record(kind: Kind, body: &[u8]) -> bool {
    match kind {
        Kind::Lease => touches_spec(body),
        // Whether the annotation is in it was looked at before.
        Kind::ConfigMap => true,
    }
}

fn touches_spec(body: &[u8]) -> bool {
    let in_spec = |pointer: &Value| pointer.as_str().is_some_and(|it| it.is_empty() || it.starts_with("/spec"));
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => fields.contains_key("spec"),
        Ok(Value::Array(operations)) => {
            operations.iter().any(|operation| in_spec(&operation["path"]) || in_spec(&operation["from"]))
        }
        // An apply in YAML, or nothing good: the API server knows.
        _ => true,
    }
}

/// The lock as a patch makes it.
pub(super) fn apply(base: &Object, headers: &HeaderMap, body: &[u8]) -> Result<Object, LockRefusal> {
    let bad = |error: &dyn std::fmt::Display| LockRefusal::Body(error.to_string());
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let mut object = base.json().map_err(|error| bad(&error))?;
    match content_type.split(';').next().unwrap_or_default().trim() {
        // A lock has no lists that a strategic merge would treat otherwise, and an apply of the whole record
        // (as JSON, which is YAML) changes what a merge changes.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" | "application/apply-patch+yaml" => {
            let patch: Value = serde_json::from_slice(body).map_err(|error| bad(&error))?;
            json_patch::merge(&mut object, &patch);
        }
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(|error| bad(&error))?;
            json_patch::patch(&mut object, &patch).map_err(|error| bad(&error))?;
        }
        other => return Err(LockRefusal::PatchType(other.to_owned())),
    }
    base.kind().read(object).map_err(|error| bad(&error))
}
