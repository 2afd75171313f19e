//! One event, taken in piece by piece and read at its end, in either encoding.
//!
//! Of an event that begins as `ADDED` or `MODIFIED` nothing is kept; of one that is too long, nothing either.

use super::{Event, Kind, MAX_KEPT, MalformedFrame, Step, json, mentions::Mentions, protobuf};
use crate::request::representation::Encoding;

/// An event of which the end may not have come yet.
#[derive(Debug)]
pub(super) struct Partial {
    encoding: Encoding,
    state: PartialState,
}

#[derive(Debug)]
enum PartialState {
    /// The type is not known yet.
    Head(Vec<u8>),
    /// An `ADDED`, of which it is of interest whether the sharder wrote to its object.
    Added(Mentions),
    /// A `MODIFIED`, up to its end.
    Modified,
    /// An event to be decoded at its end.
    Keep(Vec<u8>),
    /// One that is too long to keep.
    TooLong,
}

impl Partial {
    /// Nothing yet.
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { encoding, state: PartialState::Head(Vec::new()) }
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Takes the next piece, or of it what is missing to know the event's type. Returns how much, and what is known then.
    pub(super) fn take(&mut self, mut part: &[u8]) -> (usize, Step) {
        let mut step = Step::More;
        if let PartialState::Head(head) = &mut self.state {
            part = &part[..part.len().min(head_of(self.encoding) - head.len())];
            head.extend_from_slice(part);
            if head.len() == head_of(self.encoding) {
                let kind = match self.encoding {
                    Encoding::Json => json::kind(head),
                    Encoding::Protobuf => protobuf::kind(head),
                };
                step = Step::Known(kind);
                self.state = match kind {
                    Kind::Added => PartialState::Added(Mentions::default()),
                    Kind::Modified => PartialState::Modified,
                    Kind::Deleted | Kind::Bookmark | Kind::Other => PartialState::Keep(std::mem::take(head)),
                };
            }
        } else if let PartialState::Added(mentions) = &mut self.state {
            mentions.take(part);
        } else if let PartialState::Keep(kept) = &mut self.state {
            if kept.len() + part.len() > MAX_KEPT {
                self.state = PartialState::TooLong;
            } else {
                kept.extend_from_slice(part);
            }
        }
        (part.len(), step)
    }

    /// How many of the next bytes [`Self::take`] can take at once.
    pub(super) fn room(&self) -> usize {
        match &self.state {
            PartialState::Head(head) => head_of(self.encoding) - head.len(),
            PartialState::Added(_) | PartialState::Modified | PartialState::Keep(_) | PartialState::TooLong => {
                usize::MAX
            }
        }
    }

    /// The event has ended, and the next one begins; `None` if there was nothing.
    pub(super) fn end(&mut self) -> Result<Option<Event>, MalformedFrame> {
        match std::mem::replace(&mut self.state, PartialState::Head(Vec::new())) {
            PartialState::Head(bytes) | PartialState::Keep(bytes) => match self.encoding {
                Encoding::Json => json::decode(&bytes),
                Encoding::Protobuf => protobuf::decode(bytes).map(Some),
            },
            PartialState::Added(mentions) => {
                Ok(Some(Event { was_assigned: mentions.found(), ..Event::without_version(Kind::Added) }))
            }
            PartialState::Modified => Ok(Some(Event::without_version(Kind::Modified))),
            PartialState::TooLong => Ok(Some(Event::without_version(Kind::Other))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.state, PartialState::Head(head) if head.is_empty())
    }

    /// The memory that it takes.
    pub(super) fn kept(&self) -> usize {
        match &self.state {
            PartialState::Head(bytes) | PartialState::Keep(bytes) => bytes.capacity(),
            PartialState::Added(_) | PartialState::Modified | PartialState::TooLong => 0,
        }
    }
}

/// From how many bytes on an event's kind is known.
fn head_of(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Json => json::HEAD,
        Encoding::Protobuf => protobuf::HEAD,
    }
}
