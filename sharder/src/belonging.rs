//! The labels by which the sharder knows what it made.

use std::collections::BTreeMap;

/// The label of what the sharder writes for rings (CONTRACT, "Assignment", of the webhook's configuration). The project that
/// the contract comes from sets it too.
pub(crate) const BELONGING: (&str, &str) = ("app.kubernetes.io/name", "controller-sharding");
/// And the one that is ours alone: what has it not is neither changed nor deleted.
pub(crate) const MANAGED: (&str, &str) = ("app.kubernetes.io/managed-by", "ringside-sharder");

/// The labels of what the sharder keeps.
pub(crate) fn belonging_labels() -> BTreeMap<String, String> {
    [BELONGING, MANAGED].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
