//! Puts a label into an object that has none of this key, in JSON and in protobuf. All else stays as it is.
//!
//! An object without a resourceVersion stays as it is, too: its write replaces whatever is there. With the label it would take
//! off a drain that its writer never saw. Without any label policy and webhook put back what was there.

use bytes::Bytes;
use http::HeaderMap;
use serde::de::{DeserializeOwned, IgnoredAny};

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

fn in_json(object: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let label = format!("\"{key}\":\"{value}\"");
    let metadata = only(&members(object, 0)?, "metadata")??;
    let known = members(object, metadata)?;
    let version = only(&known, "resourceVersion")??;
    self::value::<String>(&object[version..]).filter(|(version, _)| is_a_condition(version))?;
    match only(&known, "labels")? {
        Some(labels) => with_member((object, labels), &members(object, labels)?, key, &label),
        None => with_member((object, metadata), &known, "labels", &format!("\"labels\":{{{label}}}")),
    }
}

/// Returns the text with a member more in the map that begins at `at`; `None` where one of the others has its name.
fn with_member((json, at): (&[u8], usize), others: &[(String, usize)], name: &str, member: &str) -> Option<Vec<u8>> {
    let begin = behind(json, at, b'{')?;
    let comma: &[u8] = if others.is_empty() { b"" } else { b"," };
    let is_new = others.iter().all(|(it, _)| it != name);
    is_new.then(|| [&json[..begin], member.as_bytes(), comma, &json[begin..]].concat())
}

/// Returns where the member of this name is, if there is one; `None` where there are several.
fn only(members: &[(String, usize)], name: &str) -> Option<Option<usize>> {
    let mut found = members.iter().filter(|(it, _)| it == name).map(|(_, value)| *value);
    let first = found.next();
    found.next().is_none().then_some(first)
}

/// Returns the names of the members of the map that begins at `at`, and where their values begin.
fn members(json: &[u8], mut at: usize) -> Option<Vec<(String, usize)>> {
    let mut members = Vec::new();
    at = behind(json, at, b'{')?;
    if behind(json, at, b'}').is_some() {
        return Some(members);
    }
    loop {
        let (name, length) = value::<String>(&json[at..])?;
        at = behind(json, at + length, b':')?;
        members.push((name, at));
        let (IgnoredAny, length) = value(&json[at..])?;
        at += length;
        match behind(json, at, b',') {
            Some(next) => at = next,
            None => return behind(json, at, b'}').map(|_| members),
        }
    }
}

/// Returns the value that the JSON begins with, and where it ends.
fn value<T: DeserializeOwned>(json: &[u8]) -> Option<(T, usize)> {
    let mut values = serde_json::Deserializer::from_slice(json).into_iter();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

/// Returns where a byte ends that stands behind blanks, if any.
fn behind(json: &[u8], at: usize, wanted: u8) -> Option<usize> {
    let blanks = json[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    (*json.get(at + blanks)? == wanted).then_some(at + blanks + 1)
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
