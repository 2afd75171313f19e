//! The labels of the ring are removed from JSON, and nothing else is. The input: a text, and how it is split; also taken for
//! the messages of a WebSocket.

use bytes::Bytes;
use ringside_proxy::labels::{Filter, Keys, websocket::Messages};
use ringside_ring::RingLabels;

use super::frames;

const KEYS: [&str; 2] = ["\"s/k\"", "\"d/k\""];
/// Longer blanks and values than this may stay.
const SHORT: usize = 256;
/// More than an entry that is cut.
const MOST_HELD: usize = 2048;

fn keys() -> Keys {
    Keys::of(&RingLabels { shard: "s/k".to_owned(), drain: "d/k".to_owned() })
}

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    frames::split(input, text);
    frames::split(input, |bytes, pieces| {
        let mut messages = Messages::new(keys());
        frames::cut(bytes, pieces).flat_map(|piece| messages.pass(piece)).collect::<Vec<_>>()
    });
}

/// What passes of a text.
fn text(bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
    let (mut filter, mut passed) = (Filter::new(keys()), Vec::new());
    for piece in frames::cut(bytes, pieces) {
        passed.extend(filter.push(Bytes::copy_from_slice(piece)));
        assert!(filter.held() <= MOST_HELD, "{} bytes are held", filter.held());
    }
    passed.extend(filter.end());
    assert!(frames::is_part(&passed, bytes), "what passed is not what came");
    let has_key = KEYS.iter().any(|key| bytes.windows(key.len()).any(|it| it == key.as_bytes()));
    if !has_key {
        assert_eq!(passed, bytes, "there is no such key");
    }
    if bytes.len() <= SHORT && serde_json::from_slice::<serde_json::Value>(bytes).is_ok() {
        let (before, after) = (tokens(bytes), tokens(&passed));
        assert!(after == without(&before), "{}", String::from_utf8_lossy(&passed));
    }
    passed
}

/// The tokens of what is valid JSON, as they stand.
fn tokens(mut json: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    while let [first, ..] = json.trim_ascii_start() {
        json = json.trim_ascii_start();
        let length = match first {
            b'"' => {
                let mut length = 1;
                while json[length] != b'"' {
                    length += if json[length] == b'\\' { 2 } else { 1 };
                }
                length + 1
            }
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            _ => json.iter().position(|byte| b",]} \n\t\r".contains(byte)).unwrap_or(json.len()),
        };
        let (token, rest) = json.split_at(length);
        tokens.push(token);
        json = rest;
    }
    tokens
}

/// What is left when the entries are removed: each with the comma before it, the first of a map with the one behind it.
fn without<'a>(tokens: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut left: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let is_key = KEYS.iter().any(|key| key.as_bytes() == *token) && tokens.get(at + 1) == Some(&&b":"[..]);
        let is_plain = tokens.get(at + 2).is_some_and(|value| value[0] == b'"' && !value.contains(&b'\\'));
        if !is_key || !is_plain {
            left.push(token);
            at += 1;
            continue;
        }
        at += 3;
        if left.last() == Some(&&b","[..]) {
            left.pop();
        } else if tokens.get(at) == Some(&&b","[..]) {
            at += 1;
        }
    }
    left
}
