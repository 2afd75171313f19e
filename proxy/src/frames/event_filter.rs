//! Takes out of a watch what its client is not to have: the bookmarks, of one who asked for none (the proxy asks for them to
//! know how far the watch has come, and clients need not know what they are), or all but what leaves the shard.
//!
//! Changes no other byte, and holds nothing back but the beginning of an event, until its type is known.

use std::ops::Range;

use bytes::Bytes;

use super::{Event, Frames, Kind, Step};

/// What is held back between two pieces of a watch.
#[derive(Debug)]
pub struct EventFilter {
    events: EventSet,
    held: Vec<u8>,
    fate: EventFate,
}

/// What a client is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSet {
    /// All but bookmarks.
    Events,
    /// `DELETED`, and nothing else.
    DeletedOnly,
    /// No event.
    Nothing,
}

impl EventSet {
    fn pass(self, kind: Kind) -> bool {
        match self {
            Self::Events => kind != Kind::Bookmark,
            Self::DeletedOnly => kind == Kind::Deleted,
            Self::Nothing => false,
        }
    }
}

/// What becomes of the event under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventFate {
    /// Its type is not known yet.
    #[default]
    Pending,
    Forward,
    Drop,
}

impl EventFilter {
    /// For a watch from its beginning.
    pub fn new(events: EventSet) -> Self {
        Self { events, held: Vec::new(), fate: EventFate::Pending }
    }

    /// For one that has passed so far without: the client has the beginning of the event under way, and gets the rest.
    pub fn from_here(events: EventSet, frames: &Frames) -> Self {
        Self {
            fate: if frames.at_frame_boundary() { EventFate::Pending } else { EventFate::Forward },
            ..Self::new(events)
        }
    }

    /// Returns a filter with the same settings for another stream, from its beginning.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.events)
    }

    /// The client is to have this from now on; of an event that has begun to pass, the rest as well.
    pub fn let_only(&mut self, events: EventSet) {
        self.events = events;
    }

    /// Of the next piece what the client is to have, with what was held back before it. Reports each event that it
    /// completes: the bookmarks too, which a client is not to know; of departures those that pass, for of what is withheld it
    /// knows nothing, and the word that the watch can't go on.
    pub fn pass(&mut self, frames: &mut Frames, piece: Bytes, mut found: impl FnMut(Event)) -> Bytes {
        let (mut kept, mut open): (Vec<Range<usize>>, _) = (Vec::new(), 0..0);
        let (mut at, mut fate) = (0, self.fate);
        // Of the event whose beginning is held: `None` while it is not known.
        let mut held_passes = (fate != EventFate::Pending).then_some(true);
        frames.steps(&piece, |taken, step| {
            let part = at..at + taken;
            at = part.end;
            match fate {
                EventFate::Pending => open.end = at,
                EventFate::Forward => keep(&mut kept, part),
                EventFate::Drop => {}
            }
            let passes = match &step {
                Step::More => return,
                Step::Known(kind) => self.events.pass(*kind),
                // What is no event is none that is to be taken out.
                Step::End(event) => event.as_ref().is_none_or(|event| self.events.pass(event.kind)),
            };
            if fate == EventFate::Pending {
                fate = if passes { EventFate::Forward } else { EventFate::Drop };
                held_passes.get_or_insert(passes);
                if passes {
                    keep(&mut kept, open.clone());
                }
                open = at..at;
            }
            if let Step::End(event) = step {
                let is_told = self.events == EventSet::Events || fate == EventFate::Forward;
                (fate, open) = (EventFate::Pending, at..at);
                event.into_iter().filter(|event| is_told || event.kind == Kind::Other).for_each(&mut found);
            }
        });
        self.fate = fate;
        if self.held.is_empty() && matches!(&kept[..], [all] if *all == (0..piece.len())) {
            return piece;
        }
        let mut out = if held_passes == Some(true) { std::mem::take(&mut self.held) } else { Vec::new() };
        out.extend(kept.into_iter().flat_map(|range| &piece[range]));
        if held_passes.is_some() {
            self.held.clear();
        }
        self.held.extend_from_slice(&piece[open]);
        out.into()
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether the client got nothing yet of the event under way.
    pub fn withholds(&self) -> bool {
        self.fate == EventFate::Drop || !self.held.is_empty()
    }
}

fn keep(kept: &mut Vec<Range<usize>>, part: Range<usize>) {
    match kept.last_mut() {
        Some(last) if last.end == part.start => last.end = part.end,
        _ => kept.push(part),
    }
}
