//! Puts a label into an object that has none of this key, in JSON and in protobuf. All else stays as it is.
//!
//! An object without a resourceVersion stays as it is, too: its write replaces whatever is there. With the label it would take
//! off a drain that its writer never saw. Without any label policy and webhook put back what was there.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::request::representation::Encoding;

mod protobuf;

/// Returns the body with the label in its object; `None` where it stays as it is, as what can't be read for sure does.
pub fn with_label(headers: &HeaderMap, body: &Bytes, key: &str, value: &str) -> Option<Bytes> {
    match Encoding::of_body(headers)? {
        Encoding::Json => in_json(body, key, value).map(Bytes::from),
        Encoding::Protobuf => protobuf::with_label(body, key, value),
    }
}

/// Whether a write with this resourceVersion fails when the object has changed. An API server takes zero for none.
fn is_a_condition(version: &str) -> bool {
    version.bytes().any(|byte| byte != b'0')
}

/// What is read of an object in JSON. A member of these that comes twice is an error.
#[derive(Deserialize)]
struct JsonObject<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonMetadata<'a> {
    resource_version: String,
    #[serde(borrow, default, deserialize_with = "present")]
    labels: Option<&'a RawValue>,
}

/// Reads a value that is there: `null` is one.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// Reads a map; serde takes a list for one as well.
fn map<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    json.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(json).ok())?
}

fn in_json(object: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let JsonObject { metadata } = map(object)?;
    let JsonMetadata { resource_version, labels } = map(metadata.get().as_bytes())?;
    if !is_a_condition(&resource_version) {
        return None;
    }
    let label = format!("\"{key}\":\"{value}\"");
    let (at, member) = match labels {
        Some(labels) => {
            let others: BTreeMap<String, IgnoredAny> = map(labels.get().as_bytes())?;
            let comma = if others.is_empty() { "" } else { "," };
            (labels, (!others.contains_key(key)).then(|| label + comma)?)
        }
        // Its resourceVersion is there.
        None => (metadata, format!("\"labels\":{{{label}}},")),
    };
    // Both are parts of the object, and begin with a brace.
    let begin = at.get().as_ptr() as usize - object.as_ptr() as usize + 1;
    Some([&object[..begin], member.as_bytes(), &object[begin..]].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const VERSION: &str = r#""resourceVersion":"1""#;

    /// What becomes of an object in JSON, in which `%` stands for its resourceVersion.
    fn labelled(object: &str) -> Option<String> {
        let object = Bytes::from(object.replace('%', VERSION));
        let labelled = with_label(&HeaderMap::new(), &object, "k", "me")?;
        Some(String::from_utf8(labelled.to_vec()).unwrap().replace(VERSION, "%"))
    }

    #[test]
    fn a_label_that_lacks_is_put_in_and_nothing_else_changes() {
        for (object, with) in [
            (
                r#"{"metadata":{"name":"a","labels":{"b":"c"},%},"n":1e400}"#,
                r#"{"metadata":{"name":"a","labels":{"k":"me","b":"c"},%},"n":1e400}"#,
            ),
            (r#"{"metadata": { "labels" : { } ,%}}"#, r#"{"metadata": { "labels" : {"k":"me" } ,%}}"#),
            (r#"{"metadata":{%,"labels":{}}}"#, r#"{"metadata":{%,"labels":{"k":"me"}}}"#),
            (
                r#"{"a":[{"labels":{}}],"metadata":{"name":"a",%}} "#,
                r#"{"a":[{"labels":{}}],"metadata":{"labels":{"k":"me"},"name":"a",%}} "#,
            ),
            (r#"{"metadata":{ %}}"#, r#"{"metadata":{"labels":{"k":"me"}, %}}"#),
        ] {
            assert_eq!(labelled(object).as_deref(), Some(with));
        }
    }

    #[test]
    fn what_has_it_or_is_not_read_for_sure_stays() {
        for object in [
            r#"{"metadata":{%,"labels":{"k":"other"}}}"#,
            r#"{"metadata":{%,"labels":{"\u006b":""}}}"#,
            r#"{"metadata":{%,"labels":{}},"metadata":{%,"labels":{}}}"#,
            r#"{"metadata":{%,"labels":{},"labels":null}}"#,
            r#"{"metadata":{%,"labels":"x"}}"#,
            r#"{"metadata":{%,"labels":null}}"#,
            r#"{"metadata":"x"}"#,
            r#"{"kind":"x"}"#,
            r#"[{"metadata":{%}}]"#,
            r#"{"metadata":{%,"labels":{}}"#,
            "",
        ] {
            assert_eq!(labelled(object), None, "{object}");
        }
    }

    #[test]
    fn what_replaces_any_version_stays() {
        for metadata in [
            r#"{"labels":{}}"#,
            r#"{"resourceVersion":""}"#,
            r#"{"resourceVersion":"0"}"#,
            r#"{"resourceVersion":null}"#,
            r#"{"resourceVersion":1}"#,
            r#"{%,"resourceVersion":"2"}"#,
            r#"{"annotations":{%}}"#,
        ] {
            assert_eq!(labelled(&format!(r#"{{"metadata":{metadata}}}"#)), None, "{metadata}");
        }
    }
}
