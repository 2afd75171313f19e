//! JSON events: `{"type":"ADDED","object":{...}}`, one a line in a plain watch, one a text message by WebSocket.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Event, Kind, MalformedFrame, Step, event::Partial};
use crate::request::representation::Encoding;

/// How the API server begins an event: it writes the type first.
const TYPE_FIRST: &[u8] = br#"{"type":""#;
/// Enough for [`TYPE_FIRST`] and the longest types, `MODIFIED"` and `BOOKMARK"`.
pub(super) const HEAD: usize = TYPE_FIRST.len() + 9;

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<EventObject<'a>>,
}

#[derive(Deserialize)]
struct EventObject<'a> {
    #[serde(borrow)]
    metadata: Option<EventMetadata<'a>>,
}

#[derive(Deserialize)]
struct EventMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
}

/// The kind of an event that begins so. API servers write the type first: one with its fields in another order is
/// decoded at its end, and known for nothing by now.
pub(super) fn kind(head: &[u8]) -> Kind {
    let event_type = head.strip_prefix(TYPE_FIRST).and_then(|rest| rest.split(|byte| *byte == b'"').next());
    event_type.and_then(|text| std::str::from_utf8(text).ok()).map_or(Kind::Other, Kind::of)
}

/// The event in these bytes, if there is anything but space.
///
/// A field that is there twice is an error: readers differ in which of the two they take.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<Event>, MalformedFrame> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let event: JsonEvent<'_> = serde_json::from_slice(bytes).map_err(|_| MalformedFrame)?;
    let version = event.object.and_then(|object| object.metadata?.resource_version);
    Ok(Some(Event::of(&event.event_type, version.as_deref())))
}

/// Events separated by newlines.
#[derive(Debug)]
pub(super) struct Lines(Partial);

impl Lines {
    pub(super) fn new() -> Self {
        Self(Partial::new(Encoding::Json))
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(usize, Step), MalformedFrame> {
        let bytes = &bytes[..bytes.len().min(self.0.room())];
        match memchr::memchr(b'\n', bytes) {
            Some(length) => {
                self.0.take(&bytes[..length]);
                Ok((length + 1, Step::End(self.0.end()?)))
            }
            None => Ok(self.0.take(bytes)),
        }
    }

    pub(super) fn at_frame_boundary(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn kept(&self) -> usize {
        self.0.kept()
    }
}
