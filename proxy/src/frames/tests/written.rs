//! Events as servers may write them, in every format.

use proptest::{collection::vec, prelude::*};
use prost::Message;
use serde_json::Value;

use crate::{
    frames::{Event, Frames, Kind},
    wire::{self, AnyMetadata, Metadata, RawExtension, WatchEvent},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Format {
    Json,
    Protobuf,
    WebSocketText,
    WebSocketBinary,
}

impl Format {
    pub(super) const ALL: [Self; 4] = [Self::Json, Self::Protobuf, Self::WebSocketText, Self::WebSocketBinary];

    pub(super) fn frames(self) -> Frames {
        match self {
            Self::Json => Frames::json(),
            Self::Protobuf => Frames::protobuf(),
            Self::WebSocketText | Self::WebSocketBinary => Frames::websocket(),
        }
    }

    /// An event, written as the API server does it.
    pub(super) fn write(self, event_type: &str, version: u64, padding: usize) -> Vec<u8> {
        Written { style: Style::default(), ..Written::new(event_type, version, padding) }.bytes(self)
    }
}

/// An event, and how it is written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    event_type: String,
    version: u64,
    padding: usize,
    style: Style,
}

#[derive(Clone, Debug, Default)]
struct Style {
    object_first: bool,
    /// `"\u0074ype"`, and the like.
    escapes: bool,
    /// Something in the object that looks like an event.
    mimicry: bool,
    /// Space before, within and behind, CR among it.
    space: &'static str,
    /// Lengths of the frames of a message, and of the ping after each of them.
    frames: Vec<(usize, Option<u8>)>,
}

impl Written {
    fn new(event_type: &str, version: u64, padding: usize) -> Self {
        Self { event_type: event_type.to_owned(), version, padding, style: Style::default() }
    }

    /// The same as the API server writes it.
    pub(super) fn plain(self) -> Self {
        Self { style: Style::default(), ..self }
    }

    /// As which event it must be found.
    pub(super) fn event(&self) -> Event {
        let kind = match self.event_type.as_str() {
            "ADDED" => Kind::Added,
            "MODIFIED" => Kind::Modified,
            "DELETED" => Kind::Deleted,
            "BOOKMARK" => Kind::Bookmark,
            _ => Kind::Other,
        };
        let resource_version = (!kind.is_change()).then(|| self.version.to_string().parse().unwrap());
        Event { resource_version, ..Event::without_version(kind) }
    }

    pub(super) fn bytes(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Json => [self.json().as_bytes(), b"\n"].concat(),
            Format::Protobuf => {
                let event = self.protobuf();
                [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
            }
            Format::WebSocketText => self.message(1, self.json().as_bytes()),
            Format::WebSocketBinary => self.message(2, &self.protobuf()),
        }
    }

    fn json(&self) -> String {
        json_text(&self.event_type, self.version, self.padding, &self.style)
    }

    fn protobuf(&self) -> Vec<u8> {
        let metadata = Metadata { resource_version: self.version.to_string(), ..Metadata::default() };
        let object = AnyMetadata { metadata: Some(metadata) };
        // The kind in the envelope stands in for an object of any length.
        let mut kind = "x".repeat(self.padding);
        if self.style.mimicry {
            kind.push_str("\n\u{7}DELETED\n\u{8}BOOKMARK");
        }
        let raw = wire::wrap("v1", &kind, &object);
        let (kind, object) = (self.event_type.clone(), Some(RawExtension { raw }));
        if !self.style.object_first {
            return WatchEvent { event_type: kind, object }.encode_to_vec();
        }
        let object = WatchEvent { event_type: String::new(), object }.encode_to_vec();
        [object, WatchEvent { event_type: kind, object: None }.encode_to_vec()].concat()
    }

    fn message(&self, opcode: u8, payload: &[u8]) -> Vec<u8> {
        let (mut bytes, mut opcode, mut rest) = (Vec::new(), opcode, payload);
        for (length, ping) in &self.style.frames {
            let (part, behind) = rest.split_at((*length).min(rest.len()));
            bytes.extend(frame(opcode, part));
            if let Some(ping) = ping {
                bytes.extend(frame(0x89, &vec![b'{'; usize::from(*ping)]));
            }
            (opcode, rest) = (0, behind);
        }
        bytes.extend(frame(0x80 | opcode, rest));
        bytes
    }
}

/// An event in JSON.
fn json_text(event_type: &str, version: u64, padding: usize, style: &Style) -> String {
    let s = style.space;
    let escaped = |text: &str| {
        let escape = |byte: u8| format!("\\u{byte:04x}");
        let all = || text.bytes().map(escape).collect::<String>();
        if style.escapes { format!("\"{}\"", all()) } else { Value::from(text).to_string() }
    };
    let (padding, version) = ("x".repeat(padding), escaped(&version.to_string()));
    let lure = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"99999999999999999999999"}}}"#;
    let lures = format!(r#","spec":{{"type":"DELETED","metadata":{lure},"object":{lure},"text":{lure:?}}}"#);
    let lures = if style.mimicry { lures } else { String::new() };
    let (metadata, key) = (escaped("metadata"), escaped("resourceVersion"));
    let object = format!(r#"{{{s}{metadata}{s}:{{"name":"{padding}",{s}{key}:{version}{s}}}{lures}}}"#);
    let (of_type, of_object) =
        (format!("{}:{s}{}", escaped("type"), escaped(event_type)), format!("{}{s}:{object}", escaped("object")));
    let (first, second) = if style.object_first { (of_object, of_type) } else { (of_type, of_object) };
    format!("{s}{{{first}{s},{second}{s}}}{s}")
}

/// A frame of a WebSocket message, as a server sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
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

fn style() -> impl Strategy<Value = Style> {
    let space = proptest::sample::select(vec!["", " ", "\t", "\r", "   \r\t ", "                              "]);
    let frames = vec((0..80_usize, proptest::option::of(0..=125_u8)), 0..4);
    let parts = (any::<bool>(), any::<bool>(), any::<bool>(), space, frames);
    parts.prop_map(|(object_first, escapes, mimicry, space, frames)| Style {
        object_first,
        escapes,
        mimicry,
        space,
        frames,
    })
}

pub(super) fn events() -> impl Strategy<Value = Vec<Written>> {
    let known = proptest::sample::select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]);
    let event_type = prop_oneof![9 => known.prop_map(str::to_owned), 1 => "[A-Z\"\\\\]{0,9}"];
    let event = (event_type, any::<u64>(), 0..400_usize, style());
    let event = event.prop_map(|(event_type, version, padding, style)| Written { event_type, version, padding, style });
    vec(event, 0..8)
}

pub(super) fn pieces() -> impl Strategy<Value = Vec<usize>> {
    vec(1..90_usize, 1..8)
}

/// What is found when the bytes come in pieces of these lengths, over and over.
pub(super) fn found(frames: &mut Frames, bytes: &[u8], pieces: &[usize]) -> Vec<Event> {
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
