//! Parts of a pod template.

use serde_json::Value;

use crate::{Object, Refusal};

/// The spec of a pod template.
pub(super) fn spec_of(template: &mut Object) -> Result<&mut Object, Refusal> {
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    spec.ok_or_else(|| Refusal::Malformed("spec of the pod template".to_owned()))
}

/// The containers with their names.
pub(super) fn containers_of(spec: &mut Object) -> Result<Vec<(String, &mut Object)>, Refusal> {
    let malformed = || Refusal::Malformed("containers".to_owned());
    let list = match spec.get_mut("containers") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => list.as_array_mut().ok_or_else(malformed)?,
    };
    let mut named = Vec::with_capacity(list.len());
    for container in list {
        let name = container["name"].as_str().ok_or_else(malformed)?.to_owned();
        named.push((name, container.as_object_mut().ok_or_else(malformed)?));
    }
    Ok(named)
}

/// The entries of a list; none where there is no such list.
pub(super) fn items<'a>(object: &'a Object, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Removes from a list; whether there was such an item.
pub(super) fn remove(object: &mut Object, key: &str, is_ours: impl Fn(&Value) -> bool) -> bool {
    let Some(list) = object.get_mut(key).and_then(Value::as_array_mut) else { return false };
    let length = list.len();
    list.retain(|item| !is_ours(item));
    list.len() < length
}
