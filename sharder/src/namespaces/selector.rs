//! Selectors of labels, read by the rules of Kubernetes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;

/// How long a name, or a value, of a label is at most, and the prefix of a key (Kubernetes, "Labels and Selectors").
const MAX_LABEL: usize = 63;
const MAX_PREFIX: usize = 253;

/// Reads the selector, if Kubernetes would take it: its own rules, as a key that no label has, or a list of nothing to
/// exclude, would let every namespace in.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(selector: &LabelSelector) -> Result<Selector, String> {
    for (key, value) in selector.match_labels.iter().flatten() {
        check_key(key)?;
        check_value(value)?;
    }
    for LabelSelectorRequirement { key, operator, values } in selector.match_expressions.iter().flatten() {
        check_key(key)?;
        let values = values.as_deref().unwrap_or_default();
        match (&**operator, values.is_empty()) {
            ("In" | "NotIn", true) => return Err(format!("'{key} {operator}' needs values")),
            ("Exists" | "DoesNotExist", false) => return Err(format!("'{key} {operator}' takes no values")),
            _ => values.iter().try_for_each(|value| check_value(value))?,
        }
    }
    selector.clone().try_into().map_err(|error: kube::core::ParseExpressionError| error.to_string())
}

/// Whether this can be the key of a label, or of an annotation.
pub(crate) fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_dns_label);
    let is_key = is_name(name) && prefix.is_none_or(is_prefix);
    if is_key { Ok(()) } else { Err(format!("'{key}' is no key of a label")) }
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) { Ok(()) } else { Err(format!("'{value}' is no value of a label")) }
}

fn is_name(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    is_made_of(text, |c| c.is_ascii_alphanumeric(), inner) && text.len() <= MAX_LABEL
}

fn is_dns_label(text: &str) -> bool {
    let ends = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    is_made_of(text, ends, |c| ends(c) || c == b'-')
}

/// Whether the first and the last are such as `ends` says, and all others such as `inner` says.
fn is_made_of(text: &str, ends: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|c| inner(*c))
        && [bytes.first(), bytes.last()].into_iter().all(|end| end.is_some_and(|c| ends(*c)))
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;
    use serde_json::json;

    use super::*;

    fn parsed(selector: serde_json::Value) -> Result<Selector, String> {
        parse(&serde_json::from_value(selector).expect("a selector"))
    }

    #[test]
    fn a_selector_that_kubernetes_refuses_selects_no_namespace() {
        let by = |key: &str, operator: &str, values: serde_json::Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, why) in [
            (by("team", "NotIn", json!([])), "'team NotIn' needs values"),
            (by("team", "NotIn", json!(null)), "'team NotIn' needs values"),
            (by("team", "In", json!([])), "'team In' needs values"),
            (by("team", "DoesNotExist", json!(["a"])), "'team DoesNotExist' takes no values"),
            (by("team", "notin", json!(["a"])), "operator"),
            (by("the team", "NotIn", json!(["a"])), "'the team' is no key of a label"),
            (by("Example.com/team", "DoesNotExist", json!(null)), "'Example.com/team' is no key of a label"),
            (by("a/b/c", "DoesNotExist", json!([])), "'a/b/c' is no key of a label"),
            (by("", "DoesNotExist", json!([])), "'' is no key of a label"),
            (by(&"k".repeat(64), "DoesNotExist", json!([])), "is no key of a label"),
            (by("team", "NotIn", json!(["a", "-b"])), "'-b' is no value of a label"),
            (json!({"matchLabels": {"team": "a b"}}), "'a b' is no value of a label"),
        ] {
            let refused = parsed(selector.clone()).expect_err("it is refused");
            assert!(refused.contains(why), "{selector}: {refused}");
        }
    }

    #[test]
    fn what_kubernetes_takes_selects_as_it_does_there() {
        let parsed = parsed(json!({"matchLabels": {"empty": ""}, "matchExpressions": [
            {"key": "example.com/Team_1", "operator": "NotIn", "values": ["a.b", ""]}, {"key": "x", "operator": "Exists"}]}));
        let parsed = parsed.expect("it is taken");
        let matches = |team: &str| {
            let labels = [("empty", ""), ("x", "1"), ("example.com/Team_1", team)];
            parsed.matches(&labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
        };
        assert!(matches("c") && !matches("a.b"));
        assert!(parse(&LabelSelector::default()).expect("it is taken").matches(&[].into()));
    }
}
