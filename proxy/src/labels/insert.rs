//! Puts a label into an object in JSON that has no label of this key. Every other byte stays as it is.

use std::ops::Range;

use serde::de::{DeserializeOwned, IgnoredAny};

/// Returns the object with the label; `None` where it has one of this key, or can't be read for sure.
pub(crate) fn with_label(object: &[u8], key: &str, value: &str) -> Option<Vec<u8>> {
    let entry = format!("\"{key}\":\"{value}\"");
    let metadata = only(members(object)?, "metadata")??;
    let in_metadata = members(&object[metadata.clone()])?;
    let has_others = !in_metadata.is_empty();
    let (place, text) = match only(in_metadata, "labels")? {
        None => {
            let at = metadata.start + behind(&object[metadata], 0, b'{')?;
            (at..at, format!("\"labels\":{{{entry}}}{}", if has_others { "," } else { "" }))
        }
        Some(labels) => {
            let labels = metadata.start + labels.start..metadata.start + labels.end;
            let text = &object[labels.clone()];
            if text.trim_ascii() == b"null" {
                (labels, format!("{{{entry}}}"))
            } else {
                let entries = members(text)?;
                let others = if entries.is_empty() { "" } else { "," };
                if entries.iter().any(|(name, _)| name == key) {
                    return None;
                }
                let at = labels.start + behind(text, 0, b'{')?;
                (at..at, format!("{entry}{others}"))
            }
        }
    };
    Some([&object[..place.start], text.as_bytes(), &object[place.end..]].concat())
}

/// Returns the member of this name, if there is one; `None` where there are several.
fn only(members: Vec<(String, Range<usize>)>, name: &str) -> Option<Option<Range<usize>>> {
    let mut found = members.into_iter().filter(|(it, _)| it == name).map(|(_, value)| value);
    let first = found.next();
    found.next().is_none().then_some(first)
}

/// Returns the names of an object's members, and where their values are.
fn members(json: &[u8]) -> Option<Vec<(String, Range<usize>)>> {
    let mut members = Vec::new();
    let mut at = behind(json, 0, b'{')?;
    if behind(json, at, b'}').is_some() {
        return Some(members);
    }
    loop {
        let (name, length) = value::<String>(&json[at..])?;
        at = behind(json, at + length, b':')?;
        let (IgnoredAny, length) = value(&json[at..])?;
        members.push((name, at..at + length));
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
            (r#"{"metadata": { "labels" : null }}"#, r#"{"metadata": { "labels" :{"k":"me"} }}"#),
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
