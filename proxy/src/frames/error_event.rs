//! The event with which the proxy ends a watch: `ERROR` with 410, which makes every client list again.
//!
//! kopf, for one, restarts a watch after 410 alone; any other error is fatal to it.

use bytes::Bytes;
use http::StatusCode;
use prost::Message;

use crate::{
    request::representation::Encoding,
    wire::{RawExtension, Status, WatchEvent},
};

/// First bytes of the only or last frame of a message: text, binary, and the end of the WebSocket.
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const LENGTH_IN_TWO_BYTES: u8 = 126;
const LENGTH_IN_EIGHT_BYTES: u8 = 127;
const NORMAL_CLOSURE: u16 = 1000;

/// As a line of JSON.
pub(super) fn json(message: &str) -> Bytes {
    line(&expired(message, Encoding::Json))
}

fn expired(message: &str, encoding: Encoding) -> Vec<u8> {
    let status = Status::failure(StatusCode::GONE, "Expired", message.to_owned());
    event("ERROR", status.encoded(encoding), encoding)
}

/// An event with this object, without what stands between events.
pub(crate) fn event(event_type: &str, object: Bytes, encoding: Encoding) -> Vec<u8> {
    match encoding {
        // The type comes first, for readers that rely on it.
        Encoding::Json => [format!(r#"{{"type":"{event_type}","object":"#).as_bytes(), &object, b"}"].concat(),
        Encoding::Protobuf => {
            WatchEvent { event_type: event_type.to_owned(), object: Some(RawExtension { raw: object }) }.encode_to_vec()
        }
    }
}

/// An event in JSON as one of a plain watch.
pub(crate) fn line(event: &[u8]) -> Bytes {
    [event, b"\n"].concat().into()
}

/// An event in protobuf as one of a plain watch.
pub(crate) fn behind_length(event: &[u8]) -> Bytes {
    // An event of ours is far below 4 GiB.
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], event].concat().into()
}

/// An event as a message of a WebSocket.
pub(super) fn message(encoding: Encoding, event: &[u8]) -> Bytes {
    let first = match encoding {
        Encoding::Json => TEXT,
        Encoding::Protobuf => BINARY,
    };
    with_length(first, event)
}

/// A frame of a WebSocket with this first byte (RFC 6455, section 5.2).
pub(super) fn with_length(first: u8, event: &[u8]) -> Bytes {
    let length = match u8::try_from(event.len()) {
        Ok(short) if short < LENGTH_IN_TWO_BYTES => vec![short],
        _ => match u16::try_from(event.len()) {
            Ok(medium) => [&[LENGTH_IN_TWO_BYTES][..], &medium.to_be_bytes()].concat(),
            Err(_) => [&[LENGTH_IN_EIGHT_BYTES][..], &(event.len() as u64).to_be_bytes()].concat(),
        },
    };
    [&[first], &length[..], event].concat().into()
}

/// As a message, and the closing of the WebSocket behind it (section 5.5.1).
pub(super) fn websocket(message: &str, encoding: Encoding) -> Bytes {
    [self::message(encoding, &expired(message, encoding)), close()].concat().into()
}

/// The closing of a WebSocket alone, as the API server ends a watch at its timeout.
pub(super) fn close() -> Bytes {
    [&[CLOSE, 2], &NORMAL_CLOSURE.to_be_bytes()[..]].concat().into()
}

/// As protobuf behind its length.
pub(super) fn protobuf(message: &str) -> Bytes {
    behind_length(&expired(message, Encoding::Protobuf))
}
