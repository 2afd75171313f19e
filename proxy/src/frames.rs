//! The events of a watch, found in its bytes as they pass: borders and types, and one number of the few that matter.
//!
//! No object is decoded that need not be. Of `ADDED` and `MODIFIED` only the border is found; of `DELETED`,
//! `BOOKMARK` and `ERROR` the resourceVersion is read (DESIGN, "Handover": a watch is past a move when it
//! delivered one of these at or after it). An initial event is never one of these, but for the bookmark that ends
//! them: an API server sends its state as `ADDED`, then the annotated bookmark, and no other before it. A decoder that
//! does not understand what it sees says so and finds nothing any more: it errs towards "not past".

use http::{HeaderMap, header};
use ringside_ring::ResourceVersion;

use crate::request::representation::{Encoding, Form, JSON, PROTOBUF};

mod deleted;
mod error_event;
mod event;
mod event_filter;
mod json;
mod marker;
mod mentions;
mod protobuf;
mod websocket;

pub use deleted::Deleted;
pub(crate) use error_event::{behind_length, event, line};
pub use event_filter::{EventFilter, EventSet};
pub use marker::Marker;
pub(crate) use marker::marked;
pub(crate) use websocket::message_head;

/// The longest event that is kept for decoding. etcd refuses objects above 1.5 MiB by default; JSON escapes and
/// a server's raised limit leave room for more. A longer event passes, its resourceVersion is just not learned.
pub const MAX_KEPT: usize = 8 << 20;

/// An event that went by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What kind of event.
    pub kind: Kind,
    /// The resourceVersion in its object, read for the kinds that mark progress.
    pub resource_version: Option<ResourceVersion>,
    /// Whether the sharder is among the writers of an object that was `ADDED`: it may come from another shard.
    pub was_assigned: bool,
}

/// The kinds of events that differ in what they say about a watch's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ADDED`: an initial one may carry any resourceVersion, so it says nothing.
    Added,
    /// `MODIFIED`: the same.
    Modified,
    /// `DELETED`.
    Deleted,
    /// `BOOKMARK`.
    Bookmark,
    /// `ERROR`, or a type that this version does not know.
    Other,
}

impl Kind {
    fn of(event_type: &str) -> Self {
        match event_type {
            "ADDED" => Self::Added,
            "MODIFIED" => Self::Modified,
            "DELETED" => Self::Deleted,
            "BOOKMARK" => Self::Bookmark,
            _ => Self::Other,
        }
    }

    fn is_change(self) -> bool {
        matches!(self, Self::Added | Self::Modified)
    }
}

impl Event {
    fn without_version(kind: Kind) -> Self {
        Self { kind, resource_version: None, was_assigned: false }
    }

    fn of(event_type: &str, resource_version: Option<&str>) -> Self {
        let kind = Kind::of(event_type);
        let resource_version = resource_version.filter(|_| !kind.is_change()).and_then(|it| it.parse().ok());
        Self { resource_version, ..Self::without_version(kind) }
    }

    /// How far a watch has come that delivered this event.
    pub fn progress(&self) -> Option<&ResourceVersion> {
        matches!(self.kind, Kind::Deleted | Kind::Bookmark).then_some(self.resource_version.as_ref())?
    }
}

/// The bytes are not those of a watch in this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of a watch are not what its format has")]
pub(crate) struct MalformedFrame;

/// What is known of the event under way once a decoder took some bytes.
enum Step {
    /// Nothing new.
    More,
    /// Its kind; [`Kind::Other`] where the beginning does not say.
    Known(Kind),
    /// It ends here; `None` if what ended was no event: an empty line, a ping.
    End(Option<Event>),
}

/// The decoder of one watch's stream.
#[derive(Debug)]
pub struct Frames(Decoder);

#[derive(Debug)]
enum Decoder {
    Json(json::Lines),
    Protobuf(protobuf::Lengths),
    WebSocket(websocket::Messages),
    Opaque,
}

impl Frames {
    /// The decoder for a watch's response, by its headers.
    pub fn of_response(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        if text(header::CONTENT_ENCODING).is_some_and(|it| !it.eq_ignore_ascii_case("identity")) {
            return Self::opaque();
        }
        match text(header::CONTENT_TYPE).and_then(|it| it.split(';').next()).map(str::trim) {
            Some(JSON) => Self::json(),
            Some(PROTOBUF) => Self::protobuf(),
            _ => Self::opaque(),
        }
    }

    /// The decoder for a watch by WebSocket, by the headers of the handshake: what was asked and what was answered.
    pub fn of_handshake(asked: &HeaderMap, answered: &HeaderMap) -> Self {
        let protocol = answered.get(header::UPGRADE).map(http::HeaderValue::as_bytes);
        let is_websocket = protocol.is_some_and(|it| it.eq_ignore_ascii_case(b"websocket"));
        // An extension (compression) changes what is in the messages.
        if !is_websocket || answered.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) {
            return Self::opaque();
        }
        Self(Decoder::WebSocket(websocket::Messages::new(Encoding::negotiated(asked))))
    }

    /// One JSON event a line.
    pub fn json() -> Self {
        Self(Decoder::Json(json::Lines::new()))
    }

    /// Protobuf events, each behind its length.
    pub fn protobuf() -> Self {
        Self(Decoder::Protobuf(protobuf::Lengths::new()))
    }

    /// One event a message: JSON as text, protobuf as binary.
    pub fn websocket() -> Self {
        Self(Decoder::WebSocket(websocket::Messages::new(Encoding::Json)))
    }

    /// A stream that can't be understood.
    pub fn opaque() -> Self {
        Self(Decoder::Opaque)
    }

    /// Whether the stream can't be understood, or not any more.
    pub fn is_opaque(&self) -> bool {
        matches!(self.0, Decoder::Opaque)
    }

    /// Looks at the next bytes of the stream, and reports each event that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(Event)) {
        self.steps(bytes, |_, step| {
            if let Step::End(Some(event)) = step {
                found(event);
            }
        });
    }

    /// Tells with how many of the bytes each step came.
    fn steps(&mut self, mut bytes: &[u8], mut each: impl FnMut(usize, Step)) {
        while !bytes.is_empty() {
            let step = match &mut self.0 {
                Decoder::Json(lines) => lines.step(bytes),
                Decoder::Protobuf(lengths) => lengths.step(bytes),
                Decoder::WebSocket(messages) => messages.step(bytes),
                Decoder::Opaque => Err(MalformedFrame),
            };
            let (taken, step) = step.unwrap_or_else(|MalformedFrame| {
                self.0 = Decoder::Opaque;
                (bytes.len(), Step::Known(Kind::Other))
            });
            each(taken, step);
            bytes = &bytes[taken..];
        }
    }

    /// The encoding of a plain watch that is understood.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        match self.0 {
            Decoder::Json(_) => Some(Encoding::Json),
            Decoder::Protobuf(_) => Some(Encoding::Protobuf),
            Decoder::WebSocket(_) | Decoder::Opaque => None,
        }
    }

    /// The encoding of an event of ours that may stand here.
    pub(crate) fn encoding_of_ours(&self) -> Option<Encoding> {
        match &self.0 {
            Decoder::WebSocket(messages) => messages.border(),
            _ => self.encoding(),
        }
    }

    /// Whether both are of the same format.
    pub fn are_like(&self, other: &Self) -> bool {
        std::mem::discriminant(&self.0) == std::mem::discriminant(&other.0)
    }

    /// The decoder for another stream of the same format.
    #[must_use]
    pub fn anew(&self) -> Self {
        match &self.0 {
            Decoder::Json(_) => Self::json(),
            Decoder::Protobuf(_) => Self::protobuf(),
            Decoder::WebSocket(messages) => Self(Decoder::WebSocket(messages.anew())),
            Decoder::Opaque => Self::opaque(),
        }
    }

    /// An event that tells the client to list again, if one can be put here: between two events, in a format
    /// that we can write.
    pub fn expired(&self, message: &str) -> Option<bytes::Bytes> {
        match &self.0 {
            Decoder::Json(lines) => lines.at_frame_boundary().then(|| error_event::json(message)),
            Decoder::Protobuf(lengths) => lengths.at_frame_boundary().then(|| error_event::protobuf(message)),
            Decoder::WebSocket(messages) => messages.border().map(|encoding| error_event::websocket(message, encoding)),
            Decoder::Opaque => None,
        }
    }

    /// A `DELETED` of the proxy's own, to stand between two events.
    pub(crate) fn deleted(&self, deleted: &Deleted, form: Form) -> bytes::Bytes {
        let event = |encoding| deleted.event(encoding, form);
        match &self.0 {
            Decoder::Json(_) => error_event::line(&event(Encoding::Json)),
            Decoder::Protobuf(_) => error_event::behind_length(&event(Encoding::Protobuf)),
            Decoder::WebSocket(messages) => {
                let encoding = messages.border().unwrap_or(Encoding::Json);
                error_event::message(encoding, &event(encoding))
            }
            Decoder::Opaque => bytes::Bytes::new(),
        }
    }

    /// Whether the stream stands between two events, so that an end here takes nothing apart. Of a stream that can't be
    /// understood this is unknown, so `false`.
    pub fn at_frame_boundary(&self) -> bool {
        match &self.0 {
            Decoder::Json(lines) => lines.at_frame_boundary(),
            Decoder::Protobuf(lengths) => lengths.at_frame_boundary(),
            Decoder::WebSocket(messages) => messages.at_frame_boundary(),
            Decoder::Opaque => false,
        }
    }

    /// Whether the server has closed a WebSocket.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(&self.0, Decoder::WebSocket(messages) if messages.is_closed())
    }

    /// What has to be said between two events before an end in order: the closing of a WebSocket.
    pub fn close(&self) -> Option<bytes::Bytes> {
        match &self.0 {
            Decoder::WebSocket(messages) => messages.border().map(|_| error_event::close()),
            _ => None,
        }
    }

    /// The memory that is held back for decoding: twice [`MAX_KEPT`] at the most, as a buffer grows.
    pub fn kept(&self) -> usize {
        match &self.0 {
            Decoder::Json(lines) => lines.kept(),
            Decoder::Protobuf(lengths) => lengths.kept(),
            Decoder::WebSocket(messages) => messages.kept(),
            Decoder::Opaque => 0,
        }
    }
}

#[cfg(test)]
mod tests;
