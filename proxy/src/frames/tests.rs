//! Frames found are frames written, however the bytes are split; garbage neither panics nor piles up.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::wire;

mod written;

use written::{Format, Written, events, found, pieces};

proptest! {
    #[test]
    fn every_event_is_found_however_it_is_written_and_split(
        format in any_format(),
        events in events(),
        pieces in pieces(),
    ) {
        let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes(format)).collect();
        let wanted: Vec<_> = events.iter().map(Written::event).collect();
        let mut frames = format.frames();
        prop_assert_eq!(found(&mut frames, &bytes, &pieces), wanted);
        prop_assert!(!frames.is_opaque() && frames.kept() == 0);
        prop_assert!(frames.expired("").is_some());
    }

    #[test]
    fn an_event_counts_at_its_last_byte_and_not_before(
        format in any_format(),
        events in events(),
        at in any::<proptest::sample::Index>(),
    ) {
        let ends = events.iter().map(|event| event.bytes(format).len());
        let ends: Vec<_> = ends.scan(0, |sum, length| { *sum += length; Some(*sum) }).collect();
        let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes(format)).collect();
        let cut = at.index(bytes.len() + 1);
        let whole = ends.iter().filter(|end| **end <= cut).count();
        prop_assert_eq!(found(&mut format.frames(), &bytes[..cut], &[bytes.len() + 1]).len(), whole);
    }

    #[test]
    fn garbage_neither_panics_nor_piles_up_nor_depends_on_the_split(
        format in any_format(),
        start in events(),
        garbage in proptest::collection::vec(any::<u8>(), 0..300),
        pieces in pieces(),
    ) {
        let mut bytes: Vec<u8> = start.iter().flat_map(|event| event.bytes(format)).collect();
        bytes.extend(garbage);
        let (mut whole, mut split) = (format.frames(), format.frames());
        prop_assert_eq!(found(&mut whole, &bytes, &[bytes.len() + 1]), found(&mut split, &bytes, &pieces));
        prop_assert_eq!(whole.is_opaque(), split.is_opaque());
        prop_assert!(split.kept() <= 2 * bytes.len() + 64, "{} of {} bytes", split.kept(), bytes.len());
    }

    #[test]
    fn one_wrong_byte_shows_no_watch_further_than_it_is(
        format in any_format(),
        events in events(),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes(format)).collect();
        // A changed digit can't be detected.
        let changeable: Vec<_> = (0..bytes.len()).filter(|at| !bytes[*at].is_ascii_digit()).collect();
        if changeable.is_empty() {
            return Ok(());
        }
        let at = *at.get(&changeable);
        bytes[at] ^= 1 << bit;
        let honest: Vec<_> = events.iter().map(Written::event).collect();
        for event in found(&mut format.frames(), &bytes, &[bytes.len()]) {
            if let Some(version) = event.progress() {
                prop_assert!(honest.iter().any(|it| it.resource_version.as_ref() >= Some(version)), "{event:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_filter_takes_out_bookmarks_as_api_servers_write_them_and_nothing_else(
        format in any_format(),
        events in events(),
        pieces in pieces(),
        plain in any::<bool>(),
    ) {
        let events: Vec<_> = events.into_iter().map(|event| if plain { event.plain() } else { event }).collect();
        let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes(format)).collect();
        let (shown, seen) = filtered(format, &bytes, &pieces);
        prop_assert_eq!(seen, events.iter().map(Written::event).collect::<Vec<_>>());
        let mut rest = &shown[..];
        for event in &events {
            let is_bookmark = event.event().kind == Kind::Bookmark;
            match rest.strip_prefix(&event.bytes(format)[..]) {
                Some(behind) if !(plain && is_bookmark) => rest = behind,
                _ => prop_assert!(is_bookmark, "{:?} is missing", event),
            }
        }
        prop_assert_eq!(rest, b"");
    }

    #[test]
    fn a_filter_that_is_there_from_the_middle_on_lets_the_event_end_and_then_only_departures(
        format in proptest::sample::select(vec![Format::Json, Format::Protobuf]),
        events in events(),
        pieces in pieces(),
        at in any::<proptest::sample::Index>(),
    ) {
        let events: Vec<_> = events.into_iter().map(Written::plain).collect();
        let bytes: Vec<u8> = events.iter().flat_map(|event| event.bytes(format)).collect();
        let (before, after) = bytes.split_at(at.index(bytes.len() + 1));
        let (mut frames, mut seen, mut wanted) = (format.frames(), Vec::new(), before.to_vec());
        frames.feed(before, |event| seen.push(event));
        let (mut end, mut told) = (0, Vec::new());
        for event in &events {
            let (start, written) = (end, event.bytes(format));
            end += written.len();
            let passes = start < before.len() || event.event().kind == Kind::Deleted;
            if passes {
                wanted.extend(&written[before.len().clamp(start, end) - start..]);
            }
            if passes || event.event().kind == Kind::Other {
                told.push(event.event());
            }
        }
        let filter = EventFilter::from_here(EventSet::DeletedOnly, &frames);
        let (shown, rest) = filtered_by(filter, frames, after, &pieces);
        seen.extend(rest);
        prop_assert_eq!([before, &shown].concat(), wanted);
        prop_assert_eq!(seen, told, "no reader is told of withheld events, only that the stream can't go on");
    }

    #[test]
    fn a_filter_without_bookmarks_changes_nothing_whatever_comes(
        format in any_format(),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        pieces in pieces(),
    ) {
        let (shown, _) = filtered(format, &bytes, &pieces);
        prop_assert!(bytes.starts_with(&shown) && shown.len() + MAX_HELD >= bytes.len());
    }
}

/// The head of an event, behind the longest header of a WebSocket frame.
const MAX_HELD: usize = json::HEAD + 10;

/// What passes of the bytes in pieces of these lengths, and what is found in them.
fn filtered(format: Format, bytes: &[u8], pieces: &[usize]) -> (Vec<u8>, Vec<Event>) {
    filtered_by(EventFilter::new(EventSet::Events), format.frames(), bytes, pieces)
}

fn filtered_by(mut filter: EventFilter, mut frames: Frames, bytes: &[u8], pieces: &[usize]) -> (Vec<u8>, Vec<Event>) {
    let (mut shown, mut seen, mut rest) = (Vec::new(), Vec::new(), bytes);
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        let piece = bytes::Bytes::copy_from_slice(now);
        shown.extend(filter.pass(&mut frames, piece, |event| seen.push(event)));
        assert!(filter.held() <= MAX_HELD, "{} bytes are held back", filter.held());
        rest = later;
    }
    (shown, seen)
}

fn any_format() -> impl Strategy<Value = Format> {
    proptest::sample::select(&Format::ALL[..])
}

#[test]
fn an_event_too_long_to_keep_passes_without_being_kept() {
    for format in Format::ALL {
        let mut frames = format.frames();
        let bytes = format.write("DELETED", 7, MAX_KEPT + 1);
        let mut kept = 0;
        let mut events = Vec::new();
        for chunk in bytes.chunks(1 << 16) {
            frames.feed(chunk, |event| events.push(event));
            kept = kept.max(frames.kept());
        }
        assert!((MAX_KEPT / 2..=2 * MAX_KEPT).contains(&kept), "{format:?}: {kept}");
        assert_eq!(frames.kept(), 0);
        assert_eq!(events, [Event::without_version(Kind::Other)], "{format:?}");
        frames.feed(&format.write("BOOKMARK", 9, 0), |event| events.push(event));
        assert_eq!(events.last().and_then(Event::progress), Some(&"9".parse().unwrap()), "{format:?}");
    }
}

#[test]
fn what_was_added_shows_whether_the_sharder_wrote_to_it() {
    let json = |kind: &str, manager: &str| {
        format!(r#"{{"type":"{kind}","object":{{"metadata":{{"managedFields":[{{"manager":"{manager}"}}]}}}}}}"#)
    };
    let protobuf = |kind: &str, manager: &str| {
        let object = Some(wire::RawExtension { raw: wire::wrap("v1", manager, &wire::WatchEvent::default()) });
        let event = wire::WatchEvent { event_type: kind.to_owned(), object }.encode_to_vec();
        [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
    };
    for (kind, manager, was_assigned) in [
        ("ADDED", "ringside-sharder", true),
        ("ADDED", "ringside-shard", false),
        ("MODIFIED", "ringside-sharder", false),
    ] {
        let json = json(kind, manager) + "\n";
        for (mut frames, bytes) in [(Frames::json(), json.into_bytes()), (Frames::protobuf(), protobuf(kind, manager))]
        {
            let mut events = Vec::new();
            // More than once, as what one event said is nothing of the next.
            for _ in 0..2 {
                frames.feed(&bytes, |event| events.push(event.was_assigned));
            }
            frames.feed(&bytes[..bytes.len() / 2], |_| ());
            assert_eq!(events, [was_assigned; 2], "{kind} {manager}");
        }
    }
}

#[test]
fn of_a_change_nothing_is_kept() {
    for (format, kind) in Format::ALL.into_iter().flat_map(|format| ["ADDED", "MODIFIED"].map(|kind| (format, kind))) {
        let (mut frames, bytes) = (format.frames(), format.write(kind, 7, 1_000));
        frames.feed(&bytes[..900], |_| ());
        assert_eq!(frames.kept(), 0, "{format:?}, {kind}");
    }
}

#[test]
fn what_readers_would_take_for_different_things_is_not_understood() {
    for line in [
        r#"{"type":"BOOKMARK","type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}}"#,
        r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"7"},"metadata":{}}}"#,
        r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"7","resource\u0056ersion":"8"}}}"#,
        r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}}{"type":"ADDED"}"#,
        r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":7}}}"#,
        r#"{"type":"DELETED","object":[]"#,
        r#"{"object":{"metadata":{"resourceVersion":"7"}}}"#,
        "{",
    ] {
        let mut frames = Frames::json();
        assert_eq!(found(&mut frames, format!("{line}\n").as_bytes(), &[5]), [], "{line}");
        assert!(frames.is_opaque(), "{line}");
    }
}

#[test]
fn the_event_that_ends_a_watch_stands_between_events_only_and_is_one() {
    for format in Format::ALL {
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
fn a_deleted_of_our_own_is_one_in_every_format_and_form() {
    let deleted = Deleted {
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        namespace: Some("ns".into()),
        name: "a".into(),
        uid: "u1".into(),
        labels: [("tier".to_owned(), "x".repeat(70_000))].into(),
        resource_version: "12".into(),
        whole: None,
    };
    let websocket = |accept: &'static str| {
        let headers = |name, value: &'static str| HeaderMap::from_iter([(name, http::HeaderValue::from_static(value))]);
        Frames::of_handshake(&headers(header::ACCEPT, accept), &headers(header::UPGRADE, "websocket"))
    };
    let all = [Frames::json, Frames::protobuf, || Frames::opaque()].map(|new| new());
    let [json, protobuf, opaque] = all;
    assert!(opaque.deleted(&deleted, Form::Object).is_empty());
    for mut frames in [json, protobuf, websocket(JSON), websocket(PROTOBUF)] {
        for (form, kind) in
            [(Form::Object, "Thing"), (Form::Metadata, "PartialObjectMetadata"), (Form::Table, "Partial")]
        {
            let event = frames.deleted(&deleted, form);
            assert_eq!(found(&mut frames, &event, &[event.len()]), [Event::of("DELETED", Some("12"))], "{frames:?}");
            for part in [kind, "ns", "u1", "tier"] {
                assert!(event.windows(part.len()).any(|it| it == part.as_bytes()), "{frames:?} {form:?}: {part}");
            }
        }
    }
}

#[test]
fn our_message_stands_in_no_message_of_several_frames_and_behind_no_close() {
    let mut frames = Frames::websocket();
    frames.feed(b"\x01\x0b{\"type\":\"X\"\x89\x02hi", |_| ());
    assert_eq!(frames.expired("list again"), None, "the message goes on");
    frames.feed(b"\x80\x01}", |_| ());
    assert_eq!(frames.expired("list again").unwrap()[0], 0x81);
    frames.feed(b"\x82\x03\x0a\x01X", |_| ());
    assert_eq!(frames.expired("list again").unwrap()[0], 0x82, "this client reads protobuf");
    frames.feed(b"\x88\x02\x03\xe8\xff\xff", |event| panic!("behind the close there is {event:?}"));
    assert_eq!((frames.expired("list again"), frames.is_opaque()), (None, false));
}

#[test]
fn what_rfc_6455_forbids_a_server_is_not_understood() {
    for wrong in [
        &b"\x81\x84\0\0\0\0"[..],                    // masked
        b"\xc1\x00",                                 // a bit of an extension
        b"\x83\x00",                                 // an opcode that means nothing
        b"\x80\x00",                                 // the continuation of nothing
        b"\x01\x00\x81\x00",                         // a message within a message
        b"\x09\x00",                                 // half a ping
        b"\x89\x7e\x00\x7e",                         // a long ping
        b"\x81\x7e\x00\x7d",                         // a length that needs no second form
        b"\x81\x7f\x00\x00\x00\x00\x00\x00\xff\xff", // nor a third
        b"\x81\x7f\x80\x00\x00\x00\x00\x00\x00\x00", // more than there is
    ] {
        let mut frames = Frames::websocket();
        let bytes = [wrong, &Format::WebSocketText.write("DELETED", 7, 0)].concat();
        assert_eq!(found(&mut frames, &bytes, &[1]), [], "{wrong:?}");
        assert!(frames.is_opaque(), "{wrong:?}");
    }
}

#[test]
fn a_handshake_shows_whether_its_messages_can_be_read() {
    let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
    };
    let opaque = |pairs| Frames::of_handshake(&HeaderMap::new(), &headers(pairs)).is_opaque();
    assert!(!opaque(&[("upgrade", "WebSocket")]));
    assert!(!opaque(&[("upgrade", "websocket"), ("sec-websocket-protocol", "base64.binary.k8s.io")]));
    assert!(opaque(&[("upgrade", "websocket"), ("sec-websocket-extensions", "permessage-deflate")]));
    assert!(opaque(&[("upgrade", "SPDY/3.1")]));
    let asked = headers(&[("accept", "application/vnd.kubernetes.protobuf")]);
    let protobuf = Frames::of_handshake(&asked, &headers(&[("upgrade", "websocket")]));
    assert_eq!(protobuf.expired("before the first event").unwrap()[0], 0x82);
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

#[test]
fn an_event_of_what_has_no_version_is_an_event() {
    for object in ["", r#","object":null"#, r#","object":{}"#, r#","object":{"metadata":null}"#] {
        let line = format!("{{\"type\":\"DELETED\"{object}}}\r\n\r\n");
        assert_eq!(found(&mut Frames::json(), line.as_bytes(), &[5]), [Event::of("DELETED", None)], "{object}");
    }
}
