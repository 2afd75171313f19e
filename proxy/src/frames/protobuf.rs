//! Protobuf events: each a `metav1.WatchEvent`, behind a length in four bytes, big endian, in a plain watch, and as a
//! binary message by WebSocket.

use bytes::Bytes;
use prost::Message;

use super::{Event, Kind, MalformedFrame, Step, event::Partial};
use crate::{
    request::representation::Encoding,
    wire::{self, AnyMetadata, WatchEvent},
};

/// Field 1, the type, comes first: its tag, its length, its text.
const TYPE: u8 = 0x0a;
/// Enough for the longest types, `MODIFIED` and `BOOKMARK`.
pub(super) const HEAD: usize = 2 + 8;

/// The kind of an event that begins so.
pub(super) fn kind(head: &[u8]) -> Kind {
    let [TYPE, length, text @ ..] = head else { return Kind::Other };
    let event_type = text.get(..usize::from(*length)).and_then(|text| std::str::from_utf8(text).ok());
    event_type.map_or(Kind::Other, Kind::of)
}

/// The event in these bytes. An object in an envelope that is not known has no resourceVersion.
pub(super) fn decode(bytes: Vec<u8>) -> Result<Event, MalformedFrame> {
    let event = WatchEvent::decode(Bytes::from(bytes)).map_err(|_| MalformedFrame)?;
    let object = event.object.and_then(|object| wire::unwrap(&object.raw));
    let metadata = object.and_then(|unknown| AnyMetadata::decode(unknown.raw).ok()?.metadata);
    Ok(Event::of(&event.event_type, metadata.as_ref().map(|it| it.resource_version.as_str())))
}

/// Events behind their lengths.
#[derive(Debug)]
pub(super) struct Lengths {
    event: Partial,
    state: LengthsState,
}

#[derive(Debug)]
enum LengthsState {
    /// So many bytes of the length.
    Length([u8; 4], usize),
    /// An event of which so many bytes are still to come.
    Event(u32),
}

const BORDER: LengthsState = LengthsState::Length([0; 4], 0);

impl Lengths {
    pub(super) fn new() -> Self {
        Self { event: Partial::new(Encoding::Protobuf), state: BORDER }
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<(usize, Step), MalformedFrame> {
        let (taken, step) = match &mut self.state {
            LengthsState::Length(length, known) => {
                let take = bytes.len().min(length.len() - *known);
                length[*known..*known + take].copy_from_slice(&bytes[..take]);
                *known += take;
                if *known == length.len() {
                    self.state = LengthsState::Event(u32::from_be_bytes(*length));
                }
                (take, Step::More)
            }
            LengthsState::Event(left) => {
                // What does not fit into 32 bits is more than is left.
                let most = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(*left);
                let (taken, step) = self.event.take(&bytes[..most as usize]);
                *left -= u32::try_from(taken).unwrap_or(u32::MAX);
                (taken, step)
            }
        };
        if matches!(self.state, LengthsState::Event(0)) {
            self.state = BORDER;
            return Ok((taken, Step::End(self.event.end()?)));
        }
        Ok((taken, step))
    }

    pub(super) fn at_frame_boundary(&self) -> bool {
        matches!(self.state, LengthsState::Length(_, 0))
    }

    pub(super) fn kept(&self) -> usize {
        self.event.kept()
    }
}
