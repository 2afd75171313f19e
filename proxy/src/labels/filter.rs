//! Hides labels in a stream, in place: what passes is as long as what came.
//!
//! A chunk without another owner is changed without a copy. Of one that ends within what may be an entry the end is
//! held back. What is not understood passes as it is.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{
    Keys,
    json::Entries,
    protobuf::{self, Field, Message},
};
use crate::{
    frames::{self, MalformedFrame},
    request::representation::Encoding,
    wire::MAGIC,
};

/// The filter of one stream.
#[derive(Debug)]
pub struct Filter {
    keys: Keys,
    framing: Framing,
    /// What stands at `next`, the innermost last; none between two frames.
    within: Vec<Part>,
    /// Of the JSON under way.
    entries: Entries,
    /// How many bytes have passed.
    passed: u64,
    /// Where in the stream the next look is due.
    next: u64,
    /// The end of what came, which may belong to an entry.
    held: Bytes,
}

/// In what the objects of a stream stand.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// One JSON text, or several.
    Json,
    /// One envelope, or events behind their lengths.
    Protobuf,
    /// Messages of a server.
    WebSocket,
}

/// A part of a stream, and where it ends.
#[derive(Clone, Copy, Debug)]
struct Part {
    is: Is,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
enum Is {
    Json,
    Protobuf(Message),
}

/// What is hidden of a chunk, and how.
type Edit = (Range<usize>, fn(&mut [u8]));

impl Filter {
    /// Creates the filter for a stream of JSON.
    pub fn json(keys: Keys) -> Self {
        Self::new(keys, Framing::Json)
    }

    /// Creates the filter for an object or a list in protobuf, or a watch.
    pub fn protobuf(keys: Keys) -> Self {
        Self::new(keys, Framing::Protobuf)
    }

    /// Creates the filter for what a server sends on a WebSocket: JSON in text messages, protobuf in binary ones, unmasked. A
    /// message has one frame, as API servers send them.
    pub fn websocket(keys: Keys) -> Self {
        Self::new(keys, Framing::WebSocket)
    }

    fn new(keys: Keys, framing: Framing) -> Self {
        let (within, entries, held) = (Vec::new(), Entries::default(), Bytes::new());
        Self { keys, framing, within, entries, passed: 0, next: 0, held }
    }

    /// Returns what passes of the next chunk, after what was held back before it.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let mut bytes = if self.held.is_empty() { chunk } else { [&self.held[..], &chunk].concat().into() };
        let mut edits = Vec::new();
        let hold = self.scan(&bytes, &mut edits);
        self.held = Bytes::copy_from_slice(&bytes[hold..]);
        self.passed += hold as u64;
        bytes.truncate(hold);
        if edits.is_empty() {
            return bytes;
        }
        let mut own = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        for (range, hide) in edits {
            hide(&mut own[range]);
        }
        own.freeze()
    }

    /// Returns what is held back when the stream ends. The next chunk begins another stream.
    pub fn end(&mut self) -> Bytes {
        std::mem::replace(self, Self::new(self.keys.clone(), self.framing)).held
    }

    /// Returns how many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Finds what is to hide. Returns from where on the bytes are held back.
    fn scan(&mut self, bytes: &[u8], edits: &mut Vec<Edit>) -> usize {
        loop {
            let at = usize::try_from(self.next - self.passed).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { return bytes.len() };
            while self.within.pop_if(|part| part.end == self.next).is_some() {}
            let step = match self.within.last().copied() {
                None => self.begin(rest),
                Some(Part { is: Is::Json, end }) => Ok(self.text(part_of(rest, end - self.next), end, at, edits)),
                Some(Part { is: Is::Protobuf(message), end }) => {
                    let left = end - self.next;
                    let field = protobuf::field(message, part_of(rest, left), left, &self.keys);
                    field.map(|field| self.pass(field, at, edits))
                }
            };
            match step {
                Ok(Some(taken)) => self.next += taken,
                Ok(None) => return at,
                // No look is due any more.
                Err(MalformedFrame) => self.next = u64::MAX,
            }
        }
    }

    /// Finds entries in the next bytes of a JSON text that ends there. Returns how many are done with, if any.
    fn text(&mut self, json: &[u8], end: u64, at: usize, edits: &mut Vec<Edit>) -> Option<u64> {
        let blank: fn(&mut [u8]) = |entry| entry.fill(b' ');
        let found = |entry: Range<usize>| edits.push((at + entry.start..at + entry.end, blank));
        let done = self.entries.find(&self.keys, json, found);
        if json.len() as u64 == end - self.next {
            self.entries = Entries::default();
            return Some(json.len() as u64);
        }
        (done > 0).then_some(done as u64)
    }

    /// Takes the next field of the message under way. Returns how many bytes are done with, if any.
    fn pass(&mut self, field: Field, at: usize, edits: &mut Vec<Edit>) -> Option<u64> {
        match field {
            Field::Open => None,
            Field::Other(size) => Some(size),
            Field::Within { head, message, length } => {
                self.enter(Is::Protobuf(message), head, length);
                Some(head)
            }
            Field::Kind { size, is_list } => {
                if let Some(envelope) = self.within.last_mut() {
                    envelope.is = Is::Protobuf(Message::Envelope { is_list });
                }
                Some(size)
            }
            Field::Hidden(size) => {
                edits.push((at..at + size, protobuf::hide));
                Some(size as u64)
            }
        }
    }

    /// A part of so many bytes begins after `head` more.
    fn enter(&mut self, is: Is, head: u64, length: u64) {
        let end = self.next.saturating_add(head).saturating_add(length);
        self.within.push(Part { is, end });
    }

    /// Reads what stands before a frame. Returns its length, once all of it is there.
    fn begin(&mut self, bytes: &[u8]) -> Result<Option<u64>, MalformedFrame> {
        match self.framing {
            Framing::Json => {
                self.enter(Is::Json, 0, u64::MAX);
                Ok(Some(0))
            }
            Framing::Protobuf => {
                let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
                // As a length it would be 1.8 GB.
                let (message, length) = if length == MAGIC {
                    (Message::Envelope { is_list: false }, u64::MAX)
                } else {
                    (Message::Event, u32::from_be_bytes(*length).into())
                };
                self.enter(Is::Protobuf(message), 4, length);
                Ok(Some(4))
            }
            Framing::WebSocket => {
                let Some((head, length, encoding)) = frames::message_head(bytes)? else { return Ok(None) };
                match encoding {
                    Some(Encoding::Json) => self.enter(Is::Json, head, length),
                    Some(Encoding::Protobuf) => self.enter(Is::Protobuf(Message::Event), head, length),
                    None => return Ok(Some(head + length)),
                }
                Ok(Some(head))
            }
        }
    }
}

/// Returns the bytes up to where so many are.
fn part_of(bytes: &[u8], left: u64) -> &[u8] {
    usize::try_from(left).ok().and_then(|left| bytes.get(..left)).unwrap_or(bytes)
}
