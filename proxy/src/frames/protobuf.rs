//! Protobuf events: a length in four bytes, big endian, then a `metav1.WatchEvent`.

use bytes::Bytes;
use prost::Message;

use super::{Event, Kind, MAX_KEPT};
use crate::wire::{self, AnyObject, WatchEvent};

/// Field 1, the type, comes first: its tag, its length, its text.
const CHANGES: [&[u8]; 2] = [b"\x0a\x05ADDED", b"\x0a\x08MODIFIED"];
/// The longer one of [`CHANGES`].
const HEAD: usize = 10;

/// Events behind their lengths.
#[derive(Debug)]
pub(super) struct Lengths(State);

#[derive(Debug)]
enum State {
    /// So many bytes of the length.
    Length([u8; 4], usize),
    /// An event of which `left` bytes are still to come and the type is not known yet.
    Head { left: usize, head: Vec<u8> },
    /// An event of no interest.
    Skip { left: usize, kind: Kind },
    /// An event to be decoded at its end.
    Keep { left: usize, kept: Vec<u8> },
}

impl Default for Lengths {
    fn default() -> Self {
        Self(State::Length([0; 4], 0))
    }
}

impl Lengths {
    pub(super) fn feed(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Event)) {
        while !bytes.is_empty() {
            bytes = self.step(bytes);
            if let Some(event) = self.complete() {
                found(event);
            }
        }
    }

    /// Takes what belongs to the present state and returns the rest.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match &mut self.0 {
            State::Length(length, known) => {
                let take = bytes.len().min(length.len() - *known);
                length[*known..*known + take].copy_from_slice(&bytes[..take]);
                *known += take;
                if *known == length.len() {
                    // A usize has 32 bits or more wherever this runs.
                    let left = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                    self.0 = State::Head { left, head: Vec::new() };
                }
                &bytes[take..]
            }
            State::Head { left, head } => {
                let take = bytes.len().min(*left).min(HEAD - head.len());
                head.extend_from_slice(&bytes[..take]);
                *left -= take;
                if head.len() == HEAD {
                    let (left, kept) = (*left, std::mem::take(head));
                    self.0 = if CHANGES.iter().any(|change| kept.starts_with(change)) {
                        State::Skip { left, kind: Kind::Change }
                    } else if left > MAX_KEPT {
                        State::Skip { left, kind: Kind::Other }
                    } else {
                        State::Keep { left, kept }
                    };
                }
                &bytes[take..]
            }
            State::Skip { left, .. } => {
                let take = bytes.len().min(*left);
                *left -= take;
                &bytes[take..]
            }
            State::Keep { left, kept } => {
                let take = bytes.len().min(*left);
                kept.extend_from_slice(&bytes[..take]);
                *left -= take;
                &bytes[take..]
            }
        }
    }

    /// The event that has just ended, if one has.
    fn complete(&mut self) -> Option<Event> {
        let event = match &mut self.0 {
            State::Head { left: 0, head } => decode(std::mem::take(head)),
            State::Keep { left: 0, kept } => decode(std::mem::take(kept)),
            State::Skip { left: 0, kind } => Event { kind: *kind, resource_version: None },
            _ => return None,
        };
        *self = Self::default();
        Some(event)
    }

    pub(super) fn at_border(&self) -> bool {
        matches!(self.0, State::Length(_, 0))
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        match &self.0 {
            State::Head { head: kept, .. } | State::Keep { kept, .. } => kept.len(),
            State::Length(..) | State::Skip { .. } => 0,
        }
    }
}

fn decode(bytes: Vec<u8>) -> Event {
    let Ok(event) = WatchEvent::decode(Bytes::from(bytes)) else {
        return Event { kind: Kind::Other, resource_version: None };
    };
    let object = event.object.and_then(|object| wire::unwrap(&object.raw));
    let object = object.and_then(|unknown| AnyObject::decode(unknown.raw).ok());
    let version = object.and_then(|object| object.metadata?.resource_version);
    Event::of(&event.event_type, version.as_deref())
}
