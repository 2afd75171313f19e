//! The event with which the proxy ends a watch: `ERROR` with 410, which makes every client list again.
//!
//! kopf, for one, restarts a watch after 410 alone; any other error is fatal to it.

use bytes::Bytes;
use prost::Message;
use serde_json::json;

use crate::wire::{self, RawExtension, Status, VersionOnly, WatchEvent};

const CODE: u16 = 410;
const REASON: &str = "Expired";

/// First bytes of the only or last frame of a message: text, and the end of the WebSocket.
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const LENGTH_IN_TWO_BYTES: u8 = 126;
const NORMAL_CLOSURE: u16 = 1000;

/// As a line of JSON.
pub(super) fn json(message: &str) -> Bytes {
    let object = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": REASON, "code": CODE,
    });
    // serde_json orders keys by name, and the type must come first for readers that rely on it.
    format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n").into()
}

/// As a text message, and the closing of the WebSocket behind it (RFC 6455, sections 5.2 and 5.5.1).
pub(super) fn websocket(message: &str) -> Bytes {
    let event = json(message);
    let text = event.trim_ascii_end();
    // A message of ours is far below 64 KiB, the most of a length in two bytes.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[TEXT, LENGTH_IN_TWO_BYTES], &length[..], text, &[CLOSE, 2], &NORMAL_CLOSURE.to_be_bytes()].concat().into()
}

/// As protobuf behind its length.
pub(super) fn protobuf(message: &str) -> Bytes {
    let status = Status {
        metadata: Some(VersionOnly::default()),
        status: "Failure".to_owned(),
        message: message.to_owned(),
        reason: REASON.to_owned(),
        code: CODE.into(),
    };
    let object = RawExtension { raw: wire::wrap("v1", "Status", &status) };
    let event = WatchEvent { event_type: "ERROR".to_owned(), object: Some(object) }.encode_to_vec();
    // A message of ours is far below 4 GiB.
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &event].concat().into()
}
