//! What the proxy's container asks of its node.

use std::{collections::BTreeMap, str::FromStr};

use serde_json::{Map, Value};

/// What is asked where nothing else is chosen. Of memory as much as it may use: a LimitRange may bound how far the two are apart.
const REQUESTS: [(&str, &str); 2] = [("cpu", "50m"), ("memory", "128Mi")];
const LIMITS: [(&str, &str); 1] = [("memory", "128Mi")];

/// Amounts by the names of resources, as `cpu=50m,memory=128Mi`. `none` is no amount, in place of a default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, Option<String>>);

impl FromStr for Amounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |part: &str| format!("'{part}' is no amount of a resource: write them as cpu=50m,memory=128Mi");
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let amount = |part: &str| {
            let (name, amount) = part.split_once('=').ok_or_else(|| fault(part))?;
            let (name, amount) = (name.trim(), amount.trim());
            if name.is_empty() || !(amount == "none" || is_quantity(amount)) {
                return Err(fault(part));
            }
            Ok((name.to_owned(), (amount != "none").then(|| amount.to_owned())))
        };
        parts.map(amount).collect::<Result<_, _>>().map(Self)
    }
}

/// Whether the API server reads it as a quantity: a number with a suffix.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    number.parse::<f64>().is_ok_and(|number| number >= 0.0) && suffixes.contains(&&text[number.len()..])
}

/// Requests and limits of the proxy's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
    /// Whether these are for this pod, and no default.
    are_chosen: bool,
}

impl Default for Resources {
    fn default() -> Self {
        let of = |amounts: &[(&str, &str)]| amounts.iter().map(|(name, it)| ((*name).into(), (*it).into())).collect();
        Self { requests: of(&REQUESTS), limits: of(&LIMITS), are_chosen: false }
    }
}

impl Resources {
    /// The defaults, but for the resources that these name.
    #[must_use]
    pub fn or_default(requests: &Amounts, limits: &Amounts) -> Self {
        Self { are_chosen: false, ..Self::default().chosen(requests, limits) }
    }

    /// With what is chosen for a pod. A resource that one of the two names loses both of its defaults: a request must not be above
    /// its limit.
    #[must_use]
    pub fn chosen(mut self, requests: &Amounts, limits: &Amounts) -> Self {
        let is_named = |name: &String| requests.0.contains_key(name) || limits.0.contains_key(name);
        for (own, named) in [(&mut self.requests, requests), (&mut self.limits, limits)] {
            own.retain(|name, _| !is_named(name));
            own.extend(named.0.iter().filter_map(|(name, amount)| Some((name.clone(), amount.clone()?))));
        }
        self.are_chosen |= !(requests.0.is_empty() && limits.0.is_empty());
        self
    }

    /// The container's `resources`; none in a pod that has some for all of its containers, unless they were chosen.
    pub(super) fn of_container(&self, pod_has_its_own: bool) -> Option<Value> {
        if pod_has_its_own && !self.are_chosen {
            return None;
        }
        let mut resources = Map::new();
        for (key, amounts) in [("requests", &self.requests), ("limits", &self.limits)] {
            if !amounts.is_empty() {
                let amounts = amounts.iter().map(|(name, amount)| (name.clone(), amount.clone().into()));
                resources.insert(key.to_owned(), Value::Object(amounts.collect()));
            }
        }
        Some(resources.into())
    }

    /// What it asks, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let list = |amounts: &BTreeMap<String, String>| {
            let amounts: Vec<_> = amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
            if amounts.is_empty() { "nothing".to_owned() } else { amounts.join(", ") }
        };
        format!("requests {}; limits {}", list(&self.requests), list(&self.limits))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn amounts(text: &str) -> Amounts {
        text.parse().unwrap()
    }

    #[test]
    fn memory_is_requested_as_far_as_it_is_limited() {
        let made = Resources::default().of_container(false).unwrap();
        assert_eq!(made["requests"]["memory"], made["limits"]["memory"], "no ratio of a LimitRange forbids that");
        assert_eq!(made["limits"].get("cpu"), None);
    }

    #[test]
    fn named_resource_loses_both_defaults_and_others_keep_theirs() {
        for (requests, limits, expected) in [
            ("", "", json!({"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}})),
            ("", "memory=64Mi", json!({"requests": {"cpu": "50m"}, "limits": {"memory": "64Mi"}})),
            (
                "cpu=100m",
                "cpu=1",
                json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}),
            ),
            ("memory=none, cpu=none", "", json!({})),
            ("", "ephemeral-storage=1Gi,cpu=none,memory=none", json!({"limits": {"ephemeral-storage": "1Gi"}})),
        ] {
            let made = Resources::default().chosen(&amounts(requests), &amounts(limits));
            assert_eq!(made.of_container(false).unwrap(), expected, "{requests} {limits}");
        }
    }

    #[test]
    fn pod_with_resources_of_its_own_gets_none_unless_they_are_chosen() {
        let defaults = Resources::or_default(&amounts("memory=64Mi"), &amounts("memory=64Mi"));
        assert_eq!(defaults.of_container(true), None);
        assert_eq!(defaults.of_container(false).unwrap()["limits"], json!({"memory": "64Mi"}));
        let chosen = defaults.chosen(&amounts("memory=32Mi"), &Amounts::default());
        assert_eq!(chosen.of_container(true).unwrap()["requests"], json!({"cpu": "50m", "memory": "32Mi"}));
    }

    #[test]
    fn amounts_are_quantities() {
        for good in ["cpu=50m", "cpu=0.5, memory=1Gi", "memory=1.5Gi", "memory=128974848", "cpu=none", ""] {
            assert!(good.parse::<Amounts>().is_ok(), "{good}");
        }
        for bad in ["cpu", "=1", "cpu=", "cpu=-1", "cpu=1x", "memory=1mi", "memory=Mi", "cpu=1,memory", "cpu=inf"] {
            assert!(bad.parse::<Amounts>().unwrap_err().contains("cpu=50m,memory=128Mi"), "{bad}");
        }
    }
}
