//! The events of a watch, found in its bytes as they pass: borders and types, and one number of the few that matter.
//!
//! No object is decoded that need not be. Of `ADDED` and `MODIFIED` only the border is found; of `DELETED`,
//! `BOOKMARK` and `ERROR` the resourceVersion is read (DESIGN, "Handover": a watch is past a move when it
//! delivered one of these at or after it). A decoder that does not understand what it sees says so and finds
//! nothing any more, so that its watch counts as one that is past nothing.

use http::{HeaderMap, header};
use ringside_ring::ResourceVersion;

mod cut;
mod json;
mod protobuf;
mod websocket;

/// The longest event that is kept for decoding. etcd refuses objects above 1.5 MiB by default; JSON escapes and
/// a server's raised limit leave room for more. A longer event passes, its resourceVersion is just not learned.
const MAX_KEPT: usize = 8 << 20;

/// An event that went by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What kind of event.
    pub kind: Kind,
    /// The resourceVersion in its object, read for the kinds that mark progress.
    pub resource_version: Option<ResourceVersion>,
}

/// The kinds of events that differ in what they say about a watch's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ADDED` or `MODIFIED`: an initial one may carry any resourceVersion, so it says nothing.
    Change,
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
            "ADDED" | "MODIFIED" => Self::Change,
            "DELETED" => Self::Deleted,
            "BOOKMARK" => Self::Bookmark,
            _ => Self::Other,
        }
    }
}

impl Event {
    fn change() -> Self {
        Self { kind: Kind::Change, resource_version: None }
    }

    fn of(event_type: &str, resource_version: Option<&str>) -> Self {
        let kind = Kind::of(event_type);
        let resource_version = resource_version.filter(|_| kind != Kind::Change).and_then(|it| it.parse().ok());
        Self { kind, resource_version }
    }

    /// How far a watch has come that delivered this event.
    pub fn progress(&self) -> Option<&ResourceVersion> {
        matches!(self.kind, Kind::Deleted | Kind::Bookmark).then_some(self.resource_version.as_ref())?
    }
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
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if text(header::CONTENT_ENCODING).is_some_and(|it| !it.eq_ignore_ascii_case("identity")) {
            return Self::opaque();
        }
        let essence = text(header::CONTENT_TYPE).and_then(|it| it.split(';').next()).map(str::trim);
        match essence {
            Some("application/json") => Self::json(),
            Some("application/vnd.kubernetes.protobuf") => Self::protobuf(),
            _ => Self::opaque(),
        }
    }

    /// The decoder for a watch by WebSocket, by the headers of the handshake's answer.
    pub fn of_handshake(headers: &HeaderMap) -> Self {
        // An extension (compression) or a subprotocol (base64) changes what is in the messages.
        let changed = [header::SEC_WEBSOCKET_EXTENSIONS, header::SEC_WEBSOCKET_PROTOCOL];
        let is_websocket =
            headers.get(header::UPGRADE).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"));
        if !is_websocket || changed.iter().any(|name| headers.contains_key(name)) {
            Self::opaque()
        } else {
            Self::websocket()
        }
    }

    /// One JSON event a line.
    pub fn json() -> Self {
        Self(Decoder::Json(json::Lines::default()))
    }

    /// Protobuf events, each behind its length.
    pub fn protobuf() -> Self {
        Self(Decoder::Protobuf(protobuf::Lengths::default()))
    }

    /// One JSON event a text message.
    pub fn websocket() -> Self {
        Self(Decoder::WebSocket(websocket::Messages::default()))
    }

    /// A stream that can't be understood.
    pub fn opaque() -> Self {
        Self(Decoder::Opaque)
    }

    /// Looks at the next bytes of the stream, and reports each event that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(Event)) {
        let understood = match &mut self.0 {
            Decoder::Json(lines) => {
                lines.feed(bytes, &mut found);
                true
            }
            Decoder::Protobuf(lengths) => {
                lengths.feed(bytes, &mut found);
                true
            }
            Decoder::WebSocket(messages) => messages.feed(bytes, &mut found),
            Decoder::Opaque => true,
        };
        if !understood {
            self.0 = Decoder::Opaque;
        }
    }

    /// An event that tells the client to list again, if one can be put here: between two events, in a format
    /// that we can write.
    pub fn expired(&self, message: &str) -> Option<bytes::Bytes> {
        match &self.0 {
            Decoder::Json(lines) if lines.at_border() => Some(cut::json(message)),
            Decoder::Protobuf(lengths) if lengths.at_border() => Some(cut::protobuf(message)),
            Decoder::WebSocket(messages) if messages.at_border() => Some(cut::websocket(message)),
            _ => None,
        }
    }

    /// Bytes held back for decoding.
    #[cfg(test)]
    fn kept(&self) -> usize {
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
