//! Takes the bookmarks out of a watch whose client asked for none: the proxy asks for them to know how far the watch has
//! come, and clients need not know what they are.
//!
//! Changes no other byte, and holds nothing back but the beginning of an event, until its type is known.

use std::ops::Range;

use bytes::Bytes;

use super::{Event, Frames, Kind, Step};

/// What is held back between two pieces of a watch.
#[derive(Debug, Default)]
pub struct Sieve {
    held: Vec<u8>,
    fate: Fate,
}

/// What becomes of the event under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    /// Its type is not known yet.
    #[default]
    Open,
    Passes,
    Dropped,
}

impl Sieve {
    /// The next piece without bookmarks, with what was held back before it. Reports each event that it completes, the
    /// bookmarks too.
    pub fn pass(&mut self, frames: &mut Frames, piece: Bytes, mut found: impl FnMut(Event)) -> Bytes {
        let (mut kept, mut open): (Vec<Range<usize>>, _) = (Vec::new(), 0..0);
        let (mut at, mut fate) = (0, self.fate);
        // Of the event whose beginning is held: `None` while it is not known.
        let mut held_passes = (fate != Fate::Open).then_some(true);
        frames.steps(&piece, |taken, step| {
            let part = at..at + taken;
            at = part.end;
            match fate {
                Fate::Open => open.end = at,
                Fate::Passes => keep(&mut kept, part),
                Fate::Dropped => {}
            }
            let is_bookmark = match &step {
                Step::More => return,
                Step::Known { is_bookmark } => *is_bookmark,
                Step::End(event) => event.as_ref().is_some_and(|event| event.kind == Kind::Bookmark),
            };
            if fate == Fate::Open {
                fate = if is_bookmark { Fate::Dropped } else { Fate::Passes };
                held_passes.get_or_insert(!is_bookmark);
                if !is_bookmark {
                    keep(&mut kept, open.clone());
                }
                open = at..at;
            }
            if let Step::End(event) = step {
                (fate, open) = (Fate::Open, at..at);
                event.into_iter().for_each(&mut found);
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
        self.fate == Fate::Dropped || !self.held.is_empty()
    }
}

fn keep(kept: &mut Vec<Range<usize>>, part: Range<usize>) {
    match kept.last_mut() {
        Some(last) if last.end == part.start => last.end = part.end,
        _ => kept.push(part),
    }
}
