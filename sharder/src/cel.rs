//! What the expressions (CEL) of our admission policies have in common.

use std::collections::{BTreeMap, BTreeSet};

use ringside_ring::cluster_ring::GroupResource;
use serde_json::{Value, json};

use crate::snapshot::Snapshot;

/// Where the API server says which Pod a token is bound to, in what it knows of who asks (CONTROL-PLANE, 5).
pub(crate) const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// Which resource it is, whatever version the request was made in.
pub(crate) const RESOURCE: &str = "request.resource.group + '/' + request.resource.resource";

/// The field manager that a write names; empty where it names none, and for what deletes and connects.
pub(crate) const MANAGER: &str = "request.?options.?fieldManager.orValue('')";

/// The owner references of an object; empty where there is none.
const OWNERS: &str = "object.?metadata.?ownerReferences.orValue([])";
/// Whether an `owner` controls the object.
const CONTROLS: &str = "owner.?controller.orValue(false)";

/// Whether an object is there and has an owner.
pub(crate) fn is_owned() -> String {
    format!("{OWNERS}.size() > 0")
}

/// Whether an object is there and has an owner that counts (CONTRACT, "owner"): a controller as `controller` says of an `owner`, or
/// without any controller one owner, and no other, of the kinds of the ring.
pub(crate) fn has_owner(snapshot: &Snapshot, controller: &str) -> String {
    let is_controlled = format!("{OWNERS}.exists(owner, {CONTROLS} && ({controller}))");
    let Some(of_ring) = of_kinds(snapshot) else { return is_controlled };
    let has_controller = format!("{OWNERS}.exists(owner, {CONTROLS})");
    format!("({has_controller} ? {is_controlled} : {OWNERS}.filter(owner, {of_ring}).size() == 1)")
}

/// Whether an `owner` is of a kind of the ring; none where no kind is known.
pub(crate) fn of_kinds(snapshot: &Snapshot) -> Option<String> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for resource in snapshot.mains.iter().flat_map(|main| main.controlled.iter().chain([&main.resource])) {
        groups.entry(&resource.id.group).or_default().insert(&resource.kind);
    }
    let of = groups.iter().map(|(group, kinds)| format!("({} && owner.kind in {})", of_group(group), json!(kinds)));
    of.reduce(|some, other| format!("{some} || {other}"))
}

/// Whether an `owner` is of a group. It names a version too, so its group is what that begins with.
pub(crate) fn of_group(group: &str) -> String {
    match group.is_empty() {
        true => "!owner.apiVersion.contains('/')".to_owned(),
        false => format!("owner.apiVersion.startsWith({})", quoted(&format!("{group}/"))),
    }
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
