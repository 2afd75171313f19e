//! Frames found are frames written, however the bytes are split; garbage neither panics nor piles up.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use prost::Message;
use serde_json::json;

use super::*;
use crate::wire::{self, AnyObject, RawExtension, VersionOnly, WatchEvent};

#[derive(Clone, Copy, Debug)]
enum Format {
    Json,
    Protobuf,
    WebSocket,
}

impl Format {
    fn frames(self) -> Frames {
        match self {
            Self::Json => Frames::json(),
            Self::Protobuf => Frames::protobuf(),
            Self::WebSocket => Frames::websocket(),
        }
    }

    fn write(self, event_type: &str, version: u64, padding: usize) -> Vec<u8> {
        let text = json!({"metadata": {"name": "x".repeat(padding), "resourceVersion": version.to_string()}});
        let text = format!("{{\"type\":\"{event_type}\",\"object\":{text}}}");
        match self {
            Self::Json => format!("{text}\n").into_bytes(),
            Self::Protobuf => protobuf(event_type, version, padding),
            Self::WebSocket => message(text.as_bytes()),
        }
    }
}

fn protobuf(event_type: &str, version: u64, padding: usize) -> Vec<u8> {
    let object = AnyObject { metadata: Some(VersionOnly { resource_version: Some(version.to_string()) }) };
    // The kind in the envelope stands in for an object of any length.
    let raw = wire::wrap("v1", &"x".repeat(padding), &object);
    let event = WatchEvent { event_type: event_type.into(), object: Some(RawExtension { raw }) }.encode_to_vec();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

fn message(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81];
    match payload.len() {
        short @ 0..126 => frame.push(u8::try_from(short).unwrap()),
        medium @ 126..65_536 => {
            frame.push(126);
            frame.extend(u16::try_from(medium).unwrap().to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

fn found(frames: &mut Frames, bytes: &[u8], pieces: &[usize]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = bytes;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        frames.feed(now, |event| events.push(event));
        rest = later;
    }
    events
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Json), Just(Format::Protobuf), Just(Format::WebSocket)]
}

proptest! {
    #[test]
    fn every_event_is_found_however_the_bytes_are_split(
        format in format(),
        events in proptest::collection::vec(
            (prop_oneof!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"], any::<u64>(), 0..400_usize), 0..12),
        pieces in proptest::collection::vec(1..90_usize, 1..8),
    ) {
        let bytes: Vec<u8> = events.iter().flat_map(|(kind, version, padding)| format.write(kind, *version, *padding)).collect();
        let wanted: Vec<_> = events.iter().map(|(kind, version, _)| Event::of(kind, Some(&version.to_string()))).collect();
        let mut frames = format.frames();
        prop_assert_eq!(found(&mut frames, &bytes, &pieces), wanted);
        prop_assert_eq!(frames.kept(), 0);
    }

    #[test]
    fn garbage_neither_panics_nor_piles_up(
        format in format(),
        bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        pieces in proptest::collection::vec(1..90_usize, 1..8),
    ) {
        let mut frames = format.frames();
        found(&mut frames, &bytes, &pieces);
        prop_assert!(frames.kept() <= bytes.len());
    }
}

#[test]
fn an_event_too_long_to_keep_passes_without_being_kept() {
    for format in [Format::Json, Format::Protobuf, Format::WebSocket] {
        let mut frames = format.frames();
        let bytes = format.write("DELETED", 7, MAX_KEPT + 1);
        let mut kept = 0;
        let mut events = Vec::new();
        for chunk in bytes.chunks(1 << 16) {
            frames.feed(chunk, |event| events.push(event));
            kept = kept.max(frames.kept());
        }
        assert!(kept <= MAX_KEPT, "{format:?}");
        assert_eq!(events, [Event { kind: Kind::Other, resource_version: None }], "{format:?}");
        frames.feed(&format.write("BOOKMARK", 9, 0), |event| events.push(event));
        assert_eq!(events.last().and_then(Event::progress), Some(&"9".parse().unwrap()), "{format:?}");
    }
}

#[test]
fn fields_in_another_order_and_escapes_are_understood() {
    let mut frames = Frames::json();
    let line = br#" { "object": {"metadata":{"resourceVersion":"\u0037"}, "x": [{"type":"ADDED"}]}, "type": "DELETED" }
"#;
    assert_eq!(found(&mut frames, line, &[5]), [Event::of("DELETED", Some("7"))]);
}

#[test]
fn the_event_that_ends_a_watch_stands_between_events_only_and_is_one() {
    for format in [Format::Json, Format::Protobuf, Format::WebSocket] {
        let mut frames = format.frames();
        let event = format.write("ADDED", 1, 10);
        frames.feed(&event[..event.len() - 1], |_| ());
        assert_eq!(frames.expired("list again"), None, "{format:?}");
        frames.feed(&event[event.len() - 1..], |_| ());
        let end = frames.expired("list again").unwrap();
        let mut kinds = Vec::new();
        frames.feed(&end, |event| kinds.push(event.kind));
        assert_eq!(kinds, [Kind::Other], "{format:?}");
        assert!(end.windows(10).any(|part| part == b"list again"));
    }
}

#[test]
fn a_message_in_several_frames_with_a_ping_between_is_one_event() {
    let text = br#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#;
    let (first, second) = text.split_at(30);
    let mut bytes = vec![0x01, 30];
    bytes.extend(first);
    bytes.extend([0x89, 2, b'h', b'i', 0x80, u8::try_from(second.len()).unwrap()]);
    let mut frames = Frames::websocket();
    assert_eq!(found(&mut frames, &bytes[..36], &[7]), []);
    assert_eq!(frames.expired("list again"), None, "the message goes on");
    bytes.extend(second);
    assert_eq!(found(&mut frames, &bytes[36..], &[7]), [Event::of("DELETED", Some("12"))]);
    assert!(frames.expired("list again").is_some());
}

#[test]
fn what_is_not_understood_finds_nothing_any_more() {
    // A masked frame, which no server sends; an honest message behind it is not looked at.
    let mut frames = Frames::websocket();
    let mut bytes = vec![0x81, 0x84, 0, 0, 0, 0, 1, 2, 3, 4];
    bytes.extend(Format::WebSocket.write("DELETED", 7, 0));
    assert_eq!(found(&mut frames, &bytes, &[3]), []);
}

/// A bookmark as kube-apiserver v1.37.0 sent it on a watch of ConfigMaps.
#[test]
fn a_real_protobuf_bookmark_is_read() {
    let head =
        b"\x00\x00\x00\x61\x0a\x08BOOKMARK\x12\x55\x0a\x53k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x38\x0a\x36";
    let metadata = b"\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x03318\x38\x00\x42\x00";
    let annotation = b"\x62\x21\x0a\x19k8s.io/initial-events-end\x12\x04true\x1a\x00\x22\x00";
    let bytes = [&head[..], metadata, annotation].concat();
    assert_eq!(found(&mut Frames::protobuf(), &bytes, &[11]), [Event::of("BOOKMARK", Some("318"))]);
}
