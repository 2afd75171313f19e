//! What is hidden in JSON, in protobuf and by WebSocket, however it is cut.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use serde_json::{Map, Value, json};

use super::*;
use crate::wire::{self, RawExtension, WatchEvent};

fn keys() -> Keys {
    Keys::of(&RingLabels { shard: "s/k".into(), drain: "d/k".into() })
}

/// What passes of the bytes in chunks of this length, after which nothing is held back but what `end` returns.
fn passed(mut filter: Filter, bytes: &[u8], chunk: usize) -> Vec<u8> {
    let mut passed = Vec::new();
    bytes.chunks(chunk).for_each(|it| passed.extend(filter.push(Bytes::copy_from_slice(it))));
    passed.extend(filter.end());
    assert_eq!(passed.len(), bytes.len());
    passed
}

fn passed_text(text: &str, chunk: usize) -> String {
    String::from_utf8(passed(Filter::json(keys()), text.as_bytes(), chunk)).unwrap()
}

#[test]
fn json_entry_is_blank_with_one_comma() {
    let pretty = "{\n  \"labels\": {\n    \"a\": \"b\",\n    \"s/k\": \"x\"\n  }\n}";
    let long = " ".repeat(257);
    let far = format!(r#"{{"s/k":"x"{long},"a":"b"}}"#);
    let long_value = format!(r#"{{"s/k":"{long}"}}"#);
    for (text, left) in [
        (r#"{"s/k":"x","a":"b"}"#, r#"{          "a":"b"}"#),
        (r#"{"a":"b","s/k":"x","c":"d"}"#, r#"{"a":"b"          ,"c":"d"}"#),
        (r#"{"a":"b","d/k":"x"}"#, r#"{"a":"b"          }"#),
        (r#"{"d/k":"y","s/k":"x"}"#, "{                   }"),
        (r#"{"d/k":"y","s/k":"x","a":"b"}"#, r#"{                    "a":"b"}"#),
        (r#"{"a":"b","d/k":"y","s/k":"x"}"#, r#"{"a":"b"                    }"#),
        (pretty, "{\n  \"labels\": {\n    \"a\": \"b\"                \n  }\n}"),
        ("{\n  \"s/k\" : \"x\" ,\n  \"a\": \"b\"\n}", "{                \n  \"a\": \"b\"\n}"),
        // What is no such entry.
        (r#"{"f:s/k":{},"s/k":{},"s/k2":"x"}"#, r#"{"f:s/k":{},"s/k":{},"s/k2":"x"}"#),
        (r#"["a","s/k","b"]"#, r#"["a","s/k","b"]"#),
        (r#"{"a":"{\"s/k\":\"x\"}","b":"s/k"}"#, r#"{"a":"{\"s/k\":\"x\"}","b":"s/k"}"#),
        (r#"{"s/k":"a\"b","a":"b"}"#, r#"{"s/k":"a\"b","a":"b"}"#),
        (&far, &far),
        (&long_value, &long_value),
    ] {
        for chunk in 1..=text.len() {
            assert_eq!(passed_text(text, chunk), left, "{text} in chunks of {chunk}");
        }
    }
}

#[test]
fn what_is_whole_passes_at_once_and_without_a_copy() {
    let event = Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"labels\":{\"a\":\"b\"}}}}\n");
    let passed = Filter::json(keys()).push(event.clone());
    assert_eq!((passed.as_ptr(), passed.len()), (event.as_ptr(), event.len()));
    for (mut filter, event) in [
        (Filter::json(keys()), Bytes::from(b"{\"object\":{\"labels\":{\"s/k\":\"b\"}}}\n".to_vec())),
        (Filter::protobuf(keys()), event_of(&thing(&["s/k"]))),
        (Filter::websocket(keys()), message(0x82, &event_of(&thing(&["s/k"]))[4..])),
    ] {
        let (at, length) = (event.as_ptr(), event.len());
        let passed = filter.push(event);
        assert_eq!((passed.as_ptr(), passed.len(), filter.held()), (at, length, 0));
        assert!(!passed.windows(3).any(|it| it == b"s/k"));
    }
}

fn without(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            // A value with an escape is no label's.
            let is_plain = |text: &str| !text.contains(['"', '\\']);
            let gone = |key: &str, value: &Value| ["s/k", "d/k"].contains(&key) && value.as_str().is_some_and(is_plain);
            let left = map.iter().filter(|(key, value)| !gone(key, value));
            Value::Object(left.map(|(key, value)| (key.clone(), without(value))).collect())
        }
        Value::Array(values) => values.iter().map(without).collect(),
        other => other.clone(),
    }
}

/// An object as API servers write it: of its strings, the empty ones too. `data` has a type and a number that other
/// objects have for what is looked at.
#[derive(Clone, PartialEq, Message)]
struct Thing {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(bytes, repeated, tag = "2")]
    data: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "3")]
    template: Option<Box<Thing>>,
    #[prost(sint64, optional, tag = "4")]
    number: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    generation: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    labels: Vec<Entry>,
    #[prost(message, repeated, tag = "12")]
    annotations: Vec<Entry>,
    #[prost(fixed64, optional, tag = "13")]
    fixed: Option<u64>,
    #[prost(fixed32, optional, tag = "14")]
    short: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, optional, tag = "1")]
    key: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Things {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<Thing>,
}

fn entry(key: &str, value: &str) -> Entry {
    Entry { key: Some(key.into()), value: Some(value.into()) }
}

fn thing(labels: &[&str]) -> Thing {
    let labels = labels.iter().map(|key| entry(key, "x")).collect();
    Thing { metadata: Some(Metadata { labels, ..Metadata::default() }), ..Thing::default() }
}

fn event_of(thing: &Thing) -> Bytes {
    let raw = wire::wrap("v1", "Thing", thing);
    let event = WatchEvent { event_type: "ADDED".into(), object: Some(RawExtension { raw }) }.encode_to_vec();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat().into()
}

/// A frame of a WebSocket.
fn message(first: u8, payload: &[u8]) -> Bytes {
    let length = match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short), _) if short < 126 => vec![short],
        (_, Ok(medium)) => [&[126][..], &medium.to_be_bytes()].concat(),
        _ => [&[127][..], &(payload.len() as u64).to_be_bytes()].concat(),
    };
    [&[first], &length[..], payload].concat().into()
}

impl Thing {
    /// The object without the labels of the ring: only its own, not those in its template.
    fn hidden(mut self) -> Self {
        let is_shown = |entry: &Entry| !matches!(entry.key.as_deref(), Some("s/k" | "d/k"));
        self.metadata.iter_mut().for_each(|metadata| metadata.labels.retain(is_shown));
        self
    }
}

fn decoded<T: Message + Default>(enveloped: impl Into<Bytes>) -> T {
    T::decode(wire::unwrap(&enveloped.into()).unwrap().raw).unwrap()
}

/// The objects in events behind their lengths.
fn events(mut bytes: &[u8]) -> Vec<Thing> {
    let mut things = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (event, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let event = WatchEvent::decode(Bytes::copy_from_slice(event)).unwrap();
        things.push(decoded(event.object.unwrap().raw));
        bytes = rest;
    }
    things
}

#[test]
fn protobuf_entry_becomes_a_field_that_is_skipped() {
    let bytes = wire::wrap("v1", "Thing", &thing(&["a", "s/k"]));
    let hidden = passed(Filter::protobuf(keys()), &bytes, usize::MAX);
    let at = bytes.windows(2).position(|it| it == [0x5a, 8]).unwrap();
    assert_eq!(bytes[at..at + 10], *b"\x5a\x08\x0a\x03s/k\x12\x01x");
    assert_eq!(hidden[at..at + 10], *b"\xc2\x3e\x07\0\0\0\0\0\0\0");
    assert_eq!((&hidden[..at], &hidden[at + 10..]), (&bytes[..at], &bytes[at + 10..]));
}

#[test]
fn protobuf_entry_of_any_length_keeps_it() {
    for length in 0..400 {
        let value = "v".repeat(length);
        let metadata = Metadata {
            labels: vec![entry("a", ""), entry("s/k", &value), entry("b", &value)],
            generation: Some(-1),
            ..Metadata::default()
        };
        let thing = Thing { metadata: Some(metadata), ..Thing::default() };
        let bytes = wire::wrap("v1", "Thing", &thing);
        for chunk in [1, 64, usize::MAX] {
            let hidden = passed(Filter::protobuf(keys()), &bytes, chunk);
            assert_eq!(decoded::<Thing>(hidden), thing.clone().hidden(), "{length} in chunks of {chunk}");
        }
    }
}

#[test]
fn protobuf_is_hidden_in_metadata_and_list_items_alone() {
    let inner = thing(&["s/k", "a"]);
    let thing = Thing {
        metadata: Some(Metadata {
            labels: vec![entry("d/k", "x"), entry("s/k", "y")],
            annotations: vec![entry("s/k", "x")],
            ..Metadata::default()
        }),
        // In a list these would be items.
        data: vec![inner.encode_to_vec(), b"\xff".to_vec()],
        template: Some(inner.clone().into()),
        number: Some(-7),
    };
    let list = Things { metadata: Some(Metadata::default()), items: vec![thing.clone(), inner.clone()] };
    let (object, list) = (wire::wrap("v1", "Thing", &thing), wire::wrap("v1", "ThingList", &list));
    for chunk in 1..=list.len() {
        let shown: Thing = decoded(passed(Filter::protobuf(keys()), &object, chunk));
        assert_eq!(shown, thing.clone().hidden());
        let shown: Things = decoded(passed(Filter::protobuf(keys()), &list, chunk));
        assert_eq!(shown.items, [thing.clone().hidden(), inner.clone().hidden()]);
    }
}

#[test]
fn what_is_not_understood_passes() {
    let whole = event_of(&thing(&["s/k"]));
    // A group, a field that is longer than its message, and JSON where an envelope may be.
    let broken = [&[0, 0, 0, 2, 0x0b, 0x0c][..], &whole].concat();
    let too_long = [&[0, 0, 0, 2, 0x12, 0x7f][..], &whole].concat();
    let raw = Bytes::from_static(br#"{"metadata":{"labels":{"s/k":"x"}}}"#);
    let json = WatchEvent { event_type: "ADDED".into(), object: Some(RawExtension { raw }) }.encode_to_vec();
    let json = [&u32::try_from(json.len()).unwrap().to_be_bytes()[..], &json].concat();
    for bytes in [&broken, &too_long, &json] {
        for chunk in [1, 3, usize::MAX] {
            assert_eq!(passed(Filter::protobuf(keys()), bytes, chunk), *bytes);
        }
    }
    // Behind what has no envelope the next event is understood.
    let shown = passed(Filter::protobuf(keys()), &[&json, &whole[..]].concat(), 5);
    assert_eq!(events(&shown[json.len()..]), [thing(&[])]);
}

#[test]
fn websocket_frames_keep_their_lengths() {
    let (short, medium, long) = ("a".repeat(100), "a".repeat(200), "a".repeat(70_000));
    for text in ["", &short, &medium, &long] {
        let event = |labels: &str| format!(r#"{{"labels":{{{labels}}},"x":"{text}"}}"#).into_bytes();
        let (with, without) = (event(r#""s/k":"me","a":"b""#), event(r#"           "a":"b""#));
        let mut object = thing(&["a", "s/k"]);
        object.data = vec![text.as_bytes().to_vec()];
        let ping = message(0x89, b"ping");
        let (text, binary) = (message(0x81, &with), message(0x82, &event_of(&object)[4..]));
        let sent = [&text[..], &ping, &binary, &text, &binary].concat();
        for chunk in [1, 3, 4096, sent.len()] {
            let passed = passed(Filter::websocket(keys()), &sent, chunk);
            let (first, rest) = passed.split_at(text.len());
            assert!(first == message(0x81, &without), "{} in chunks of {chunk}", text.len());
            let (same, rest) = rest.split_at(ping.len());
            let (second, rest) = rest.split_at(binary.len());
            assert!(same == ping && rest == [first, second].concat());
            let head = binary.len() - event_of(&object)[4..].len();
            let shown = WatchEvent::decode(Bytes::copy_from_slice(&second[head..])).unwrap();
            assert_eq!(decoded::<Thing>(shown.object.unwrap().raw), object.clone().hidden());
        }
    }
}

#[test]
fn websocket_frame_that_ends_within_an_entry_is_not_held_back() {
    let (text, close) = (message(0x81, br#"{"a":"b","#), message(0x88, &[0x03, 0xe8]));
    let mut filter = Filter::websocket(keys());
    assert_eq!(filter.push(text.clone()), text);
    assert_eq!(filter.push(close.clone()), close);
    // A message of several frames passes as it is, and what comes after it is understood.
    let frames = [message(0x01, br#"{"l":{"a":"b","#), message(0x80, br#""s/k":"x"}}"#)].concat();
    let sent = [&frames, &message(0x81, br#"{"s/k":"x"}"#)[..]].concat();
    let expected = [&frames, &message(0x81, br"{         }")[..]].concat();
    assert_eq!(passed(Filter::websocket(keys()), &sent, 1), expected);
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![Just("s/k".to_owned()), Just("d/k".to_owned()), Just("\"s/k\"".to_owned()), "[a-d/k\\\\\",:{]{0,4}"]
}

fn json_object() -> impl Strategy<Value = Value> {
    let text = prop_oneof![Just("s/k".to_owned()), Just(r#"{"s/k":"x"}"#.to_owned()), "[a-z ]{0,4}"];
    let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(|it| json!(it)), text.prop_map(Value::String)];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let map = prop::collection::vec((key(), inner.clone()), 0..5);
        let map = map.prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>()));
        prop_oneof![map, prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let value = prop_oneof!["[a-z]{0,4}", "[a-z]{110,140}"];
    let entry = (prop::option::of(key()), prop::option::of(value)).prop_map(|(key, value)| Entry { key, value });
    prop::collection::vec(entry, 0..5)
}

fn metadata() -> impl Strategy<Value = Option<Metadata>> {
    let texts = (prop::option::of("[a-z]{0,40}"), prop::option::of("[0-9]{0,4}"));
    let numbers = (any::<Option<i64>>(), any::<Option<u64>>(), any::<Option<u32>>());
    let all = (texts, numbers, entries(), entries()).prop_map(
        |((name, resource_version), (generation, fixed, short), labels, annotations)| Metadata {
            name,
            resource_version,
            generation,
            labels,
            annotations,
            fixed,
            short,
        },
    );
    prop::option::of(all)
}

fn protobuf_object() -> impl Strategy<Value = Thing> {
    let raw = metadata().prop_map(|metadata| Thing { metadata, ..Thing::default() }.encode_to_vec());
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 0..20), raw];
    let template = metadata().prop_map(|metadata| Some(Thing { metadata, ..Thing::default() }.into()));
    let all = (metadata(), prop::collection::vec(data, 0..3), template, any::<Option<i64>>());
    all.prop_map(|(metadata, data, template, number)| Thing { metadata, data, template, number })
}

proptest! {
    /// As a parser removes them, however the text is cut, and however it is written.
    #[test]
    fn json_that_passes_is_the_same_without_the_entries(object in json_object(), chunk in 1_usize..40, pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let whole = passed_text(&text, usize::MAX);
        prop_assert_eq!(&passed_text(&text, chunk), &whole);
        prop_assert_eq!(serde_json::from_str::<Value>(&whole).unwrap(), without(&object));
        prop_assert_eq!(whole == text, without(&object) == object);
    }

    /// Also of what is no JSON the same passes, however it is cut.
    #[test]
    fn chunks_of_json_change_nothing(text in r#"(["{},: sk/x\\]|"s/k"|"d/k":"x"){0,30}"#, chunk in 1_usize..9) {
        prop_assert_eq!(passed_text(&text, chunk), passed_text(&text, usize::MAX));
    }

    /// As a decoder removes them, in objects, lists and watches.
    #[test]
    fn protobuf_that_passes_is_the_same_without_the_entries(
        things in prop::collection::vec(protobuf_object(), 1..4),
        metadata in metadata(),
        chunk in 1_usize..40,
    ) {
        let hidden: Vec<_> = things.iter().cloned().map(Thing::hidden).collect();
        let pass = |bytes: &Bytes| passed(Filter::protobuf(keys()), bytes, chunk);
        let object = wire::wrap("v1", "Thing", &things[0]);
        prop_assert_eq!(&decoded::<Thing>(pass(&object)), &hidden[0]);
        let list = Things { metadata, items: things.clone() };
        let shown: Things = decoded(pass(&wire::wrap("v1", "ThingList", &list)));
        prop_assert_eq!(&shown.items, &hidden);
        let watch = Bytes::from(things.iter().map(event_of).collect::<Vec<_>>().concat());
        prop_assert_eq!(&events(&pass(&watch)), &hidden);
    }

    /// Also of what is no protobuf the same passes, however it is cut.
    #[test]
    fn chunks_of_protobuf_change_nothing(
        garbage in prop::collection::vec(any::<u8>(), 0..40),
        at in any::<prop::sample::Index>(),
        framing in 0..3,
        chunk in 1_usize..9,
    ) {
        let event = event_of(&thing(&["s/k", "a"]));
        let whole = match framing {
            0 => event,
            1 => wire::wrap("v1", "Thing", &thing(&["s/k", "a"])),
            _ => message(0x82, &event[4..]),
        };
        let at = at.index(whole.len());
        let bytes = [&whole[..at], &garbage, &whole[at..], &whole].concat();
        let filter = || if framing == 2 { Filter::websocket(keys()) } else { Filter::protobuf(keys()) };
        prop_assert_eq!(passed(filter(), &bytes, chunk), passed(filter(), &bytes, usize::MAX));
    }
}
