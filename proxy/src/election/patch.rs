//! Patches of an election's lock.

use http::{HeaderMap, header};
use json_patch::PatchOperation;
use serde_json::Value;

use super::{
    LockRefusal,
    object::{Kind, LockName, Object},
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

/// Whether a patch of any kind that changes the election's record says who is to hold it.
pub(super) fn names_holder(kind: Kind, body: &[u8]) -> bool {
    const HOLDER: &str = "/spec/holderIdentity";
    if kind == Kind::ConfigMap {
        // The record is one text.
        return true;
    }
    let above = |path: &Value| path.as_str().is_some_and(|it| HOLDER.starts_with(it));
    match serde_json::from_slice::<Value>(body) {
        Ok(fields @ Value::Object(_)) => fields.pointer(HOLDER).is_some(),
        Ok(Value::Array(operations)) => {
            operations.iter().any(|operation| operation["op"] != "test" && above(&operation["path"]))
        }
        // An apply in YAML.
        _ => true,
    }
}

const APPLY: &str = "application/apply-patch+yaml";

/// Whether it is a server-side apply.
pub(super) fn is_apply(headers: &HeaderMap) -> bool {
    media_type(headers) == APPLY
}

fn media_type(headers: &HeaderMap) -> &str {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim()
}

fn bad(error: impl std::fmt::Display) -> LockRefusal {
    LockRefusal::Body(error.to_string())
}

/// The lock as an apply makes it, where there is none.
pub(super) fn applied(name: &LockName, body: &[u8]) -> Result<Object, LockRefusal> {
    let applied = serde_json::from_slice(body).map_err(bad)?;
    let mut object = name.kind.read(applied).map_err(bad)?;
    object.metadata_mut().name = Some(name.name.clone());
    Ok(object)
}

/// The lock as a patch makes it.
pub(super) fn apply(base: &Object, headers: &HeaderMap, body: &[u8]) -> Result<Object, LockRefusal> {
    let mut object = serde_json::to_value(base).map_err(bad)?;
    match media_type(headers) {
        // A lock has no lists that a strategic merge would treat otherwise, and an apply of the whole record
        // (as JSON, which is YAML) changes what a merge changes.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" | APPLY => {
            let patch: Value = serde_json::from_slice(body).map_err(bad)?;
            json_patch::merge(&mut object, &patch);
        }
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(bad)?;
            // With each of these a document can double, or grow deep. Electors name what they write.
            if patch.0.iter().any(|one| matches!(one, PatchOperation::Copy(_) | PatchOperation::Move(_))) {
                return Err(bad("a lock is not changed by 'copy' or 'move' here"));
            }
            json_patch::patch(&mut object, &patch).map_err(bad)?;
        }
        other => return Err(LockRefusal::PatchType(other.to_owned())),
    }
    base.kind().read(object).map_err(bad)
}
