//! The event with which the proxy ends a watch: `ERROR` with 410, which makes every client list again.
//!
//! kopf, for one, restarts a watch after 410 alone; any other error is fatal to it.

use bytes::Bytes;
use prost::Message;
use serde_json::json;

use crate::wire::{self, RawExtension, Status, VersionOnly, WatchEvent};

const CODE: u16 = 410;
const REASON: &str = "Expired";

/// As a line of JSON.
pub(super) fn json(message: &str) -> Bytes {
    let object = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": REASON, "code": CODE,
    });
    // serde_json orders keys by name, and the type must come first for readers that rely on it.
    format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n").into()
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
