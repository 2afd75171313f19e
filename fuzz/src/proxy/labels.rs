//! The labels of the ring are hidden in JSON and in protobuf, and nothing else is, and nothing becomes longer or shorter. The
//! input: bytes, and how they are split; taken for JSON, for protobuf and for the messages of a WebSocket.

use bytes::Bytes;
use ringside_proxy::labels::{Filter, Keys};
use ringside_ring::RingLabels;

use super::frames;

const KEYS: [&str; 2] = ["s/k", "d/k"];
/// Longer blanks and values than this may stay, in bytes.
const SHORT: usize = 256;
/// More bytes than an entry that is cut.
const MAX_HELD: usize = 2048;
/// The tag of the field that stands for a hidden entry in protobuf.
const SKIPPED: [u8; 2] = [0xc2, 0x3e];

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let keys = Keys::of(&RingLabels { shard: KEYS[0].to_owned(), drain: KEYS[1].to_owned() });
    frames::split(input, |bytes, pieces| text(Filter::json(keys.clone()), bytes, pieces));
    frames::split(input, |bytes, pieces| message(Filter::protobuf(keys.clone()), bytes, pieces));
    frames::split(input, |bytes, pieces| passed(Filter::websocket(keys.clone()), bytes, pieces));
}

/// What passes in these pieces: as many bytes as came, and the same ones where no key stands.
fn passed(mut filter: Filter, bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
    let mut passed = Vec::new();
    for piece in frames::cut(bytes, pieces) {
        passed.extend(filter.push(Bytes::copy_from_slice(piece)));
        assert!(filter.held() <= MAX_HELD, "{} bytes are held", filter.held());
    }
    passed.extend(filter.end());
    assert_eq!(passed.len(), bytes.len(), "something became longer or shorter");
    let has_key = KEYS.iter().any(|key| bytes.windows(key.len()).any(|it| it == key.as_bytes()));
    if !has_key {
        assert_eq!(passed, bytes, "there is no such key");
    }
    passed
}

/// What passes of a message: where it changes there is a field that is skipped, and zeros.
fn message(filter: Filter, bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
    let passed = passed(filter, bytes, pieces);
    let mut at = 0;
    while let Some(changed) = (at..bytes.len()).find(|at| passed[*at] != bytes[*at]) {
        let rest = passed[changed..].strip_prefix(&SKIPPED).expect("a field that is skipped");
        let (length, head) = if rest[0] < 0x80 {
            (usize::from(rest[0]), 1)
        } else {
            (usize::from(rest[0] & 0x7f) | usize::from(rest[1]) << 7, 2)
        };
        assert!(rest[head..head + length].iter().all(|byte| *byte == 0), "something of it is left");
        at = changed + SKIPPED.len() + head + length;
    }
    passed
}

/// What passes of a text.
fn text(filter: Filter, bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
    let passed = passed(filter, bytes, pieces);
    let is_blank = |(before, after): (&u8, &u8)| before == after || *after == b' ';
    assert!(bytes.iter().zip(&passed).all(is_blank), "what passed is not what came");
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
        let is_key =
            KEYS.iter().any(|key| *token == format!("\"{key}\"").as_bytes()) && tokens.get(at + 1) == Some(&&b":"[..]);
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
