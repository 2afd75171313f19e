//! Which ring a pod asks for.

use serde_json::Value;

use super::{DISABLED, LABEL};

/// On a pod with the label, or in a namespace with it: the ring.
pub(crate) const RING: &str = "ringside.dev/ring";
/// On a namespace with the label: the rings of pods that name none, by their service accounts, as `ACCOUNT=RING,…`.
pub(crate) const RINGS: &str = "ringside.dev/rings";

/// The ring that a pod is to join: as it says itself, or as its namespace says of its service account.
pub(crate) fn ring_of(pod: &Value, of_namespace: &str) -> Option<String> {
    let metadata = &pod["metadata"];
    let (label, annotation) = (metadata["labels"][LABEL].as_str(), metadata["annotations"][RING].as_str());
    if label == Some(DISABLED) {
        return None;
    }
    // The value of a label can't name a ControllerRing.
    if let Some(ring) = annotation.or(label) {
        return Some(ring.to_owned());
    }
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    accounts_of(of_namespace).find(|(name, _)| *name == account).map(|(_, ring)| ring.to_owned())
}

/// The service accounts that a namespace names, each with its ring.
pub(crate) fn accounts_of(of_namespace: &str) -> impl Iterator<Item = (&str, &str)> {
    of_namespace.split(',').filter_map(|pair| pair.split_once('=')).map(|(account, ring)| (account.trim(), ring.trim()))
}
