//! What others add to a webhook configuration of ours, such as a platform that keeps its own objects from all webhooks. It only
//! narrows what the webhook is asked about, so it stays.

use kube::core::DynamicObject;
use serde_json::{Value, json};

/// The annotation that names what a configuration says itself: what else it says is others'. What it said once, and does no
/// longer, is so told from that.
const OWN: &str = "ringside.dev/own-conditions";
/// Lists of our webhook whose elements all have to hold, and the key that tells one from another.
const LISTS: [(&str, &str); 3] = [
    ("/webhooks/0/namespaceSelector/matchExpressions", "key"),
    ("/webhooks/0/objectSelector/matchExpressions", "key"),
    ("/webhooks/0/matchConditions", "name"),
];

/// The label by which AKS leaves a webhook configuration alone. Otherwise it adds exclusions.
const OFF_LIMITS_TO_AKS: (&str, &str) = ("admissions.enforcer/disabled", "true");

/// The same configuration, with a note of what it says itself, and off limits to AKS.
pub(crate) fn noted(mut configuration: DynamicObject) -> DynamicObject {
    let own = json!(names(&configuration).collect::<Vec<_>>()).to_string();
    configuration.metadata.annotations.get_or_insert_default().insert(OWN.to_owned(), own);
    let (key, value) = OFF_LIMITS_TO_AKS;
    configuration.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    configuration
}

/// What others have added to what is stored.
pub(crate) fn added(stored: &DynamicObject) -> Vec<&str> {
    names(stored).filter(|name| is_foreign(stored, name)).collect()
}

/// Keeps that in what is wanted, and the authority that is trusted where that is others' to set.
pub(crate) fn keep_foreign(stored: &DynamicObject, wanted: &mut DynamicObject) {
    if stored.data.pointer("/webhooks/0/name") != wanted.data.pointer("/webhooks/0/name") {
        return;
    }
    if let Some(bundle) = stored.data.pointer("/webhooks/0/clientConfig/caBundle")
        && let Some(client_config) = wanted.data.pointer_mut("/webhooks/0/clientConfig").and_then(Value::as_object_mut)
    {
        client_config.entry("caBundle").or_insert_with(|| bundle.clone());
    }
    for (list, key) in LISTS {
        let own: Vec<_> = elements(wanted, list).cloned().collect();
        let is_foreign = |one: &Value| {
            one[key].as_str().is_some_and(|name| is_foreign(stored, name)) && own.iter().all(|own| own[key] != one[key])
        };
        // In the order that they have.
        let there: Vec<_> =
            elements(stored, list).filter(|one| own.contains(one) || is_foreign(one)).cloned().collect();
        let missing = own.iter().filter(|own| !there.contains(own));
        let all: Vec<_> = there.iter().chain(missing).cloned().collect();
        if let (false, Some((parent, field))) = (all.is_empty(), list.rsplit_once('/'))
            && let Some(parent) = wanted.data.pointer_mut(parent)
        {
            parent[field] = all.into();
        }
    }
}

/// The names of all conditions.
fn names(configuration: &DynamicObject) -> impl Iterator<Item = &str> {
    LISTS.into_iter().flat_map(|(list, key)| elements(configuration, list).filter_map(move |one| one[key].as_str()))
}

fn elements<'a>(configuration: &'a DynamicObject, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    configuration.data.pointer(list).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a configuration does not note this name as its own. One without a note has nothing of others'.
fn is_foreign(stored: &DynamicObject, name: &str) -> bool {
    let own = stored.metadata.annotations.as_ref().and_then(|all| all.get(OWN));
    own.and_then(|own| serde_json::from_str::<Vec<String>>(own).ok())
        .is_some_and(|own| !own.iter().any(|own| own == name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn configuration(keys: &[&str], conditions: &[&str]) -> DynamicObject {
        let keys: Vec<_> = keys.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
        let conditions: Vec<_> = conditions.iter().map(|name| json!({"name": name, "expression": "true"})).collect();
        let webhook = json!({"name": "w", "clientConfig": {}, "namespaceSelector": {"matchExpressions": keys},
            "matchConditions": conditions});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "webhooks": [webhook]})).unwrap()
    }

    #[test]
    fn what_others_add_stays_and_what_was_ours_goes() {
        let mut stored = noted(configuration(&["ours", "ours-once"], &["ours"]));
        let webhook = &mut stored.data["webhooks"][0];
        let keys = webhook["namespaceSelector"]["matchExpressions"].as_array_mut().unwrap();
        keys.insert(0, json!({"key": "theirs", "operator": "DoesNotExist"}));
        keys[1]["operator"] = json!("In");
        webhook["matchConditions"].as_array_mut().unwrap().push(json!({"name": "theirs-too", "expression": "false"}));
        webhook["clientConfig"]["caBundle"] = json!("injected");
        assert_eq!(added(&stored), ["theirs", "theirs-too"]);
        let mut wanted = noted(configuration(&["ours"], &["ours"]));
        keep_foreign(&stored, &mut wanted);
        let webhook = &wanted.data["webhooks"][0];
        let keys = json!([{"key": "theirs", "operator": "DoesNotExist"}, {"key": "ours", "operator": "Exists"}]);
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"], keys);
        assert_eq!(webhook["matchConditions"][1]["name"], "theirs-too");
        assert_eq!(webhook["clientConfig"]["caBundle"], "injected");
        assert_eq!(webhook.get("objectSelector"), None);
    }

    #[test]
    fn without_a_note_nothing_is_others() {
        let stored = configuration(&["ours", "of-a-version-before"], &[]);
        let mut wanted = noted(configuration(&["ours"], &[]));
        let before = wanted.clone();
        keep_foreign(&stored, &mut wanted);
        assert_eq!((added(&stored).len(), wanted), (0, before));
    }
}
