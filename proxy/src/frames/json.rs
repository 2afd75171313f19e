//! JSON events: `{"type":"ADDED","object":{...}}`, one a line in a plain watch, one a message by WebSocket.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Event, Kind, MAX_KEPT};

/// How the API server begins an event: it writes the type first.
const TYPE_FIRST: &[u8] = br#"{"type":""#;
/// Enough for [`TYPE_FIRST`] and the longest type, `MODIFIED"`.
const HEAD: usize = TYPE_FIRST.len() + 9;

/// One event, byte by byte.
#[derive(Debug, Default)]
pub(super) struct JsonEvent(State);

#[derive(Debug)]
enum State {
    /// The type is not known yet.
    Head(Vec<u8>),
    /// An event of no interest, up to its end.
    Skip,
    /// An event to be decoded at its end.
    Keep(Vec<u8>),
    /// One that is too long to keep.
    TooLong,
}

impl Default for State {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

#[derive(Deserialize)]
struct Watched<'a> {
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow, default)]
    object: Object<'a>,
}

#[derive(Default, Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default, rename = "resourceVersion")]
    resource_version: Option<Cow<'a, str>>,
}

impl JsonEvent {
    pub(super) fn feed(&mut self, mut part: &[u8]) {
        if let State::Head(head) = &mut self.0 {
            let take = part.len().min(HEAD - head.len());
            head.extend_from_slice(&part[..take]);
            part = &part[take..];
            if head.len() < HEAD {
                return;
            }
            self.0 = if is_change(head) { State::Skip } else { State::Keep(std::mem::take(head)) };
        }
        if let State::Keep(kept) = &mut self.0 {
            if kept.len() + part.len() > MAX_KEPT {
                self.0 = State::TooLong;
            } else {
                kept.extend_from_slice(part);
            }
        }
    }

    /// The event has ended; `None` if there was nothing but space.
    pub(super) fn end(&mut self) -> Option<Event> {
        match std::mem::take(&mut self.0) {
            State::Head(bytes) | State::Keep(bytes) => decode(&bytes),
            State::Skip => Some(Event::change()),
            State::TooLong => Some(Event { kind: Kind::Other, resource_version: None }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.0, State::Head(head) if head.is_empty())
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        match &self.0 {
            State::Head(bytes) | State::Keep(bytes) => bytes.len(),
            State::Skip | State::TooLong => 0,
        }
    }
}

/// Whether an event that begins so is an `ADDED` or `MODIFIED`. With its fields in another order it is decoded.
fn is_change(head: &[u8]) -> bool {
    let event_type = head.strip_prefix(TYPE_FIRST);
    event_type.is_some_and(|rest| rest.starts_with(b"ADDED\"") || rest.starts_with(b"MODIFIED\""))
}

fn decode(bytes: &[u8]) -> Option<Event> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let event = serde_json::from_slice::<Watched<'_>>(bytes)
        .map(|it| Event::of(&it.event_type, it.object.metadata.resource_version.as_deref()));
    Some(event.unwrap_or(Event { kind: Kind::Other, resource_version: None }))
}

/// Events separated by newlines.
#[derive(Debug, Default)]
pub(super) struct Lines(JsonEvent);

impl Lines {
    pub(super) fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(Event)) {
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            self.0.feed(line);
            // The last piece has no newline behind it: the event goes on in the next bytes.
            if lines.peek().is_some() {
                self.0.end().into_iter().for_each(&mut *found);
            }
        }
    }

    pub(super) fn at_border(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.0.kept()
    }
}
