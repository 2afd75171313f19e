//! Puts a label into an object in JSON that has no label of this key. Every other byte stays as it is.

use serde::de::{DeserializeOwned, IgnoredAny};

/// Returns the object with the label; `None` where it has one of this key, or can't be read for sure.
pub(crate) fn with_label(object: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let label = format!("\"{key}\":\"{value}\"");
    let metadata = only(members(object, 0)?, "metadata")??;
    match only(members(object, metadata)?, "labels")? {
        Some(labels) => with_member(object, labels, key, &label),
        None => with_member(object, metadata, "labels", &format!("\"labels\":{{{label}}}")),
    }
}

/// Returns the text with a member more in the map that begins at `at`; `None` where it has one of this name.
fn with_member(json: &[u8], at: usize, name: &str, member: &str) -> Option<Vec<u8>> {
    let (others, begin) = (members(json, at)?, behind(json, at, b'{')?);
    let comma: &[u8] = if others.is_empty() { b"" } else { b"," };
    let is_new = others.iter().all(|(it, _)| it != name);
    is_new.then(|| [&json[..begin], member.as_bytes(), comma, &json[begin..]].concat())
}

/// Returns where the member of this name is, if there is one; `None` where there are several.
fn only(members: Vec<(String, usize)>, name: &str) -> Option<Option<usize>> {
    let mut found = members.into_iter().filter(|(it, _)| it == name).map(|(_, value)| value);
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

    #[test]
    fn a_label_that_lacks_is_put_in_and_nothing_else_changes() {
        for (object, with) in [
            (
                r#"{"metadata":{"name":"a","labels":{"b":"c"}},"n":1e400}"#,
                r#"{"metadata":{"name":"a","labels":{"k":"me","b":"c"}},"n":1e400}"#,
            ),
            (r#"{"metadata": { "labels" : { } }}"#, r#"{"metadata": { "labels" : {"k":"me" } }}"#),
            (r#"{"metadata":{"labels":{}}}"#, r#"{"metadata":{"labels":{"k":"me"}}}"#),
            (
                r#"{"a":[{"labels":{}}],"metadata":{"name":"a"}} "#,
                r#"{"a":[{"labels":{}}],"metadata":{"labels":{"k":"me"},"name":"a"}} "#,
            ),
            (r#"{"metadata":{ }}"#, r#"{"metadata":{"labels":{"k":"me"} }}"#),
        ] {
            let got = with_label(object.as_bytes(), "k", "me").unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), with);
        }
    }

    #[test]
    fn what_has_it_or_is_not_read_for_sure_stays() {
        for object in [
            r#"{"metadata":{"labels":{"k":"other"}}}"#,
            r#"{"metadata":{"labels":{"\u006b":""}}}"#,
            r#"{"metadata":{"labels":{}},"metadata":{"labels":{}}}"#,
            r#"{"metadata":{"labels":{},"labels":null}}"#,
            r#"{"metadata":{"labels":"x"}}"#,
            r#"{"metadata":{"labels":null}}"#,
            r#"{"metadata":"x"}"#,
            r#"{"kind":"x"}"#,
            r#"[{"metadata":{}}]"#,
            r#"{"metadata":{"labels":{}}"#,
            "",
        ] {
            assert_eq!(with_label(object.as_bytes(), "k", "me"), None, "{object}");
        }
    }
}
