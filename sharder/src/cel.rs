//! What the expressions (CEL) of our admission policies have in common.

use ringside_ring::cluster_ring::GroupResource;
use serde_json::Value;

/// Where the API server says which Pod a token is bound to, in what it knows of who asks (CONTROL-PLANE, 5).
pub(crate) const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// Which resource it is, whatever version the request was made in.
pub(crate) const RESOURCE: &str = "request.resource.group + '/' + request.resource.resource";

/// The field manager that a write names; empty where it names none, and for what deletes and connects.
pub(crate) const MANAGER: &str = "request.?options.?fieldManager.orValue('')";

/// Whether an object is there and names one that controls it.
pub(crate) const CONTROLLED: &str =
    "object.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))";

/// Whether an object is there and names one that controls it, which is as this says of `owner`.
pub(crate) fn owned_by(owner: &str) -> String {
    format!(
        "object.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) && ({owner}))"
    )
}

/// As a string of CEL, whose escapes are those of JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Whether a request is for one of these resources; none for none.
pub(crate) fn names_one_of<'a>(names: impl Iterator<Item = &'a GroupResource>) -> Option<String> {
    let names: Vec<_> = names.map(|name| format!("{}/{}", name.group, name.resource)).collect();
    (!names.is_empty()).then(|| format!("{RESOURCE} in {}", Value::from(names)))
}

/// That all of these hold, the cheapest first.
///
/// An API server evaluates each condition of a policy or webhook for each write, whatever the others say. Behind what is false, the
/// rest of one expression is not evaluated.
pub(crate) fn all_of(expressions: impl IntoIterator<Item = String>) -> String {
    let expressions: Vec<_> = expressions.into_iter().map(|one| format!("({one})")).collect();
    expressions.join(" && ")
}
