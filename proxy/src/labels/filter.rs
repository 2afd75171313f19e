//! Removes label entries with one of two keys from JSON, in chunks as they come.
//!
//! An entry goes with the comma and the blanks before it; the first of a map with the comma after it. A map that is empty
//! then stays, so that a JSON patch that adds one label has a map to add to. Other bytes stay as they are: a value that is
//! no plain string, a key within a string (its quotes are escaped there), or an entry with long blanks.

use std::{mem::take, ops::Range, sync::Arc};

use bytes::Bytes;
use memchr::memmem::Finder;
use ringside_ring::RingLabels;

/// The longest run of blanks in an entry that is removed.
const MAX_BLANKS: usize = 256;
/// The longest value of an entry that is removed: a label's has 63 characters.
const MAX_VALUE: usize = 256;

/// The keys of the entries to remove. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys(Arc<[Finder<'static>; 2]>);

impl Keys {
    /// Returns the keys of a ring's labels.
    pub fn of(labels: &RingLabels) -> Self {
        Self(Arc::new([&labels.shard, &labels.drain].map(|key| Finder::new(&format!("\"{key}\"")).into_owned())))
    }

    /// Returns where the keys end that stand in the JSON, quotes and all, by where they begin.
    fn find(&self, json: &[u8]) -> Vec<(usize, usize)> {
        let ends = |key| move |at| (at, at + Finder::needle(key).len());
        let mut found: Vec<_> = self.0.iter().flat_map(|key| key.find_iter(json).map(ends(key))).collect();
        found.sort_unstable();
        found
    }

    /// Returns where a key begins that the JSON ends within.
    fn find_cut(&self, json: &[u8]) -> Option<usize> {
        let longest = self.0.iter().map(|key| key.needle().len()).max()?;
        let tail = json.len().saturating_sub(longest - 1);
        let at = tail + json[tail..].iter().rposition(|byte| *byte == b'"')?;
        self.0.iter().any(|key| key.needle().starts_with(&json[at..])).then_some(at)
    }
}

/// The filter of one stream of JSON.
#[derive(Debug)]
pub struct Filter {
    keys: Keys,
    /// The end of what came, which may belong to an entry.
    held: Vec<u8>,
    /// The last byte that passed.
    last: u8,
}

/// Why no entry can be removed.
enum Stop {
    /// Another byte stands here than in an entry.
    Other,
    /// The blanks, or the value, are too long.
    TooLong,
    /// More has to come.
    Open,
}

impl Filter {
    /// Creates the filter for a stream from its beginning.
    pub fn new(keys: Keys) -> Self {
        Self { keys, held: Vec::new(), last: 0 }
    }

    /// Returns what passes of the next chunk, with what was held back before it.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let json = if self.held.is_empty() { chunk } else { [&take(&mut self.held)[..], &chunk].concat().into() };
        let (mut kept, mut from, mut open): (Vec<Range<usize>>, usize, Option<usize>) = (Vec::new(), 0, None);
        for (at, end) in self.keys.find(&json) {
            // It may be the value of an entry that is removed.
            let start = if at < from { None } else { self.start(&json, from, at) };
            let Some((start, is_first)) = start else { continue };
            match entry_end(&json, end, is_first) {
                Ok(end) => {
                    self.pass(&json[from..start]);
                    kept.push(from..start);
                    from = end;
                }
                Err(Stop::Open) => {
                    open = Some(start);
                    break;
                }
                Err(Stop::Other | Stop::TooLong) => {}
            }
        }
        let cut = || from + self.keys.find_cut(&json[from..]).unwrap_or(json.len() - from);
        let hold = open.or_else(|| self.start(&json, from, cut()).map(|(start, _)| start)).unwrap_or(json.len());
        self.held.extend_from_slice(&json[hold..]);
        self.pass(&json[from..hold]);
        if kept.is_empty() {
            return json.slice(..hold);
        }
        kept.push(from..hold);
        let mut passed = Vec::with_capacity(json.len());
        kept.into_iter().for_each(|range| passed.extend_from_slice(&json[range]));
        passed.into()
    }

    /// Returns what is held back when the stream ends. The next chunk begins another stream.
    pub fn end(&mut self) -> Bytes {
        self.last = 0;
        take(&mut self.held).into()
    }

    /// Returns how many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// Returns where an entry would begin whose key begins at `at`, and whether it is the first of its map. What is before
    /// `from` has passed, or is removed.
    fn start(&self, json: &[u8], from: usize, at: usize) -> Option<(usize, bool)> {
        let blanks = json[from..at].iter().rev().take_while(|byte| is_blank(**byte)).count();
        let begin = at - blanks;
        match json[from..begin].last().copied() {
            _ if blanks > MAX_BLANKS => None,
            Some(b',') => Some((begin - 1, false)),
            before => (before.unwrap_or(self.last) == b'{').then_some((begin, true)),
        }
    }
}

/// Returns where an entry ends whose key ends at `at`.
fn entry_end(json: &[u8], at: usize, is_first: bool) -> Result<usize, Stop> {
    let value = behind(json, behind(json, at, b':')?, b'"')?;
    let rest = &json[value..];
    let end = match rest.iter().take(MAX_VALUE + 1).position(|byte| matches!(byte, b'"' | b'\\')) {
        Some(length) if rest[length] == b'"' => value + length + 1,
        Some(_) => return Err(Stop::Other),
        None if rest.len() <= MAX_VALUE => return Err(Stop::Open),
        None => return Err(Stop::TooLong),
    };
    match behind(json, end, b',') {
        _ if !is_first => Ok(end),
        // It is the only one of its map.
        Err(Stop::Other) => Ok(end),
        comma => comma,
    }
}

/// Returns where a byte ends that stands behind blanks, if any.
fn behind(json: &[u8], at: usize, wanted: u8) -> Result<usize, Stop> {
    let blanks = json[at..].iter().take_while(|byte| is_blank(**byte)).count();
    match json.get(at + blanks) {
        _ if blanks > MAX_BLANKS => Err(Stop::TooLong),
        Some(byte) if *byte == wanted => Ok(at + blanks + 1),
        Some(_) => Err(Stop::Other),
        None => Err(Stop::Open),
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn keys() -> Keys {
        Keys::of(&RingLabels { shard: "s/k".into(), drain: "d/k".into() })
    }

    /// What passes of the text in chunks of this length.
    fn passed(text: &str, chunk: usize) -> String {
        let mut filter = Filter::new(keys());
        let mut passed = Vec::new();
        text.as_bytes().chunks(chunk).for_each(|it| passed.extend(filter.push(Bytes::copy_from_slice(it))));
        passed.extend(filter.end());
        String::from_utf8(passed).unwrap()
    }

    #[test]
    fn entries_go_with_one_comma_wherever_they_stand() {
        let pretty = "{\n  \"labels\": {\n    \"a\": \"b\",\n    \"s/k\": \"x\"\n  }\n}";
        let long = " ".repeat(MAX_BLANKS + 1);
        let far = format!(r#"{{"s/k":"x"{long},"a":"b"}}"#);
        let long_value = format!(r#"{{"s/k":"{long}"}}"#);
        for (text, left) in [
            (r#"{"s/k":"x","a":"b"}"#, r#"{"a":"b"}"#),
            (r#"{"a":"b","s/k":"x","c":"d"}"#, r#"{"a":"b","c":"d"}"#),
            (r#"{"a":"b","d/k":"x"}"#, r#"{"a":"b"}"#),
            (r#"{"d/k":"y","s/k":"x"}"#, "{}"),
            (r#"{"d/k":"y","s/k":"x","a":"b"}"#, r#"{"a":"b"}"#),
            (r#"{"a":"b","d/k":"y","s/k":"x"}"#, r#"{"a":"b"}"#),
            (pretty, "{\n  \"labels\": {\n    \"a\": \"b\"\n  }\n}"),
            ("{\n  \"s/k\" : \"x\" ,\n  \"a\": \"b\"\n}", "{\n  \"a\": \"b\"\n}"),
            // What is no such entry.
            (r#"{"f:s/k":{},"s/k":{},"s/k2":"x"}"#, r#"{"f:s/k":{},"s/k":{},"s/k2":"x"}"#),
            (r#"["a","s/k","b"]"#, r#"["a","s/k","b"]"#),
            (r#"{"a":"{\"s/k\":\"x\"}","b":"s/k"}"#, r#"{"a":"{\"s/k\":\"x\"}","b":"s/k"}"#),
            (r#"{"s/k":"a\"b","a":"b"}"#, r#"{"s/k":"a\"b","a":"b"}"#),
            (&far, &far),
            (&long_value, &long_value),
        ] {
            for chunk in 1..=text.len() {
                assert_eq!(passed(text, chunk), left, "{text} in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn what_has_no_entry_passes_without_a_copy_and_at_once() {
        let event = Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"labels\":{\"a\":\"b\"}}}}\n");
        let passed = Filter::new(keys()).push(event.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (event.as_ptr(), event.len()));
        let with = Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"labels\":{\"s/k\":\"b\"}}}}\n");
        assert!(Filter::new(keys()).push(with).ends_with(b"{\"labels\":{}}}}\n"));
    }

    fn without(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                // A value with an escape is no label's.
                let is_plain = |text: &str| !text.contains(['"', '\\']);
                let gone =
                    |key: &str, value: &Value| ["s/k", "d/k"].contains(&key) && value.as_str().is_some_and(is_plain);
                let left = map.iter().filter(|(key, value)| !gone(key, value));
                Value::Object(left.map(|(key, value)| (key.clone(), without(value))).collect())
            }
            Value::Array(values) => values.iter().map(without).collect(),
            other => other.clone(),
        }
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![Just("s/k".to_owned()), Just("d/k".to_owned()), Just("\"s/k\"".to_owned()), "[a-d/k\\\\\",:{]{0,4}"]
    }

    fn object() -> impl Strategy<Value = Value> {
        let text = prop_oneof![Just("s/k".to_owned()), Just(r#"{"s/k":"x"}"#.to_owned()), "[a-z ]{0,4}"];
        let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(|it| json!(it)), text.prop_map(Value::String)];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let map = prop::collection::vec((key(), inner.clone()), 0..5);
            let map = map.prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>()));
            prop_oneof![map, prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
        })
    }

    proptest! {
        /// As a parser removes them, however the text is cut, and however it is written.
        #[test]
        fn what_passes_is_the_same_without_the_entries(object in object(), chunk in 1_usize..40, pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
            let whole = passed(&text, usize::MAX);
            prop_assert_eq!(&passed(&text, chunk), &whole);
            prop_assert_eq!(serde_json::from_str::<Value>(&whole).unwrap(), without(&object));
            prop_assert_eq!(whole == text, without(&object) == object);
        }

        /// Also of what is no JSON the same passes, however it is cut.
        #[test]
        fn chunks_change_nothing(text in r#"(["{},: sk/x\\]|"s/k"|"d/k":"x"){0,30}"#, chunk in 1_usize..9) {
            prop_assert_eq!(passed(&text, chunk), passed(&text, usize::MAX));
        }
    }
}
