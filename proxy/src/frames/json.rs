//! JSON events: `{"type":"ADDED","object":{...}}`, one a line in a plain watch, one a text message by WebSocket.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Event, NotUnderstood, event::Partial};
use crate::request::representation::Encoding;

/// How the API server begins an event: it writes the type first.
const TYPE_FIRST: &[u8] = br#"{"type":""#;
/// Enough for [`TYPE_FIRST`] and the longest type, `MODIFIED"`.
pub(super) const HEAD: usize = TYPE_FIRST.len() + 9;

#[derive(Deserialize)]
struct Watched<'a> {
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<Object<'a>>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
}

/// Whether an event that begins so is an `ADDED` or `MODIFIED`. With its fields in another order it is decoded.
pub(super) fn is_change(head: &[u8]) -> bool {
    let event_type = head.strip_prefix(TYPE_FIRST);
    event_type.is_some_and(|rest| rest.starts_with(b"ADDED\"") || rest.starts_with(b"MODIFIED\""))
}

/// The event in these bytes, if there is anything but space.
///
/// A field that is there twice is an error: readers differ in which of the two they take.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<Event>, NotUnderstood> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let event: Watched<'_> = serde_json::from_slice(bytes).map_err(|_| NotUnderstood)?;
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

    pub(super) fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(Event)) -> Result<(), NotUnderstood> {
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            self.0.feed(line);
            // The last piece has no newline behind it: the event goes on in the next bytes.
            if lines.peek().is_some() {
                self.0.end()?.into_iter().for_each(&mut *found);
            }
        }
        Ok(())
    }

    pub(super) fn at_border(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn kept(&self) -> usize {
        self.0.kept()
    }
}
