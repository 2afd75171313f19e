//! What becomes of a watch: from what happens to what has to be done, without await, lock or timer.
//!
//! [`super::body`] waits for each [`Input`], and carries out each [`Effect`].

use std::mem;

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use ringside_ring::ResourceVersion;
use tokio::time::Instant;

mod holding;
mod steps;
#[cfg(test)]
mod tests;

use self::holding::{Holding, Piece};
pub(super) use self::steps::{Effect, Effects, Ending, Input, Position, Reopened};
use super::{End, LIST_AGAIN};
use crate::{
    body::BodyError,
    frames::{self, Deleted, Event, EventFilter, EventSet, Frames, Kind, Marker},
    request::representation::{Encoding, Form},
};

/// What a client is told whose watch may have shown an object that is to be released.
const LIST_ANEW: &str =
    "ringside-proxy: nothing tells whether this watch has seen what moved to other shards: list again";

/// What a client is told whose watch has said no more than what leaves.
const LIST_AFTER_THE_GAP: &str =
    "ringside-proxy: this shard was without its Lease, or did not know who leads: list again";

/// What does not change while a watch is open.
#[derive(Debug)]
pub(super) struct Traits {
    /// Whether its resource is the ring's.
    pub(super) is_of_ring: bool,
    pub(super) is_websocket: bool,
    /// Whether its objects have children in the ring.
    pub(super) waits_for_children: bool,
    /// Whether it is asked for again without the Lease.
    pub(super) reopens: bool,
    /// Whether its client ends its work by a deletionTimestamp.
    pub(super) marks: bool,
    /// What its client is told without the Lease.
    pub(super) without_lease: EventSet,
    /// In which form its client wants objects.
    pub(super) form: Form,
    /// How long its client wants it.
    pub(super) until: Instant,
}

/// A watch, and how far it has come.
#[derive(Debug)]
pub(super) struct WatchStream {
    state: State,
    frames: Frames,
    /// For a client that asked for no bookmarks, or that is told no more than what leaves.
    filter: Option<Box<EventFilter>>,
    /// For a client that ends its work by a deletionTimestamp.
    marker: Option<Box<Marker>>,
    /// Up to where the client has seen everything; none before its initial events have ended.
    position: Option<ResourceVersion>,
    /// Whether it went on behind events that are lost: what it says from there on proves nothing of before.
    has_gap: bool,
    /// Whether the API server has said by an event that it can't go on.
    is_refused: bool,
    traits: Box<Traits>,
}

/// What of a watch passes.
#[derive(Debug)]
enum State {
    /// All of it.
    Live,
    /// Nothing yet: an object waits until its children were shown, and what came behind it.
    Holding(Box<Holding>),
    /// What leaves, or nothing, as what it was admitted by is over.
    Leaving {
        /// The client has half an event, whose rest may come for a moment.
        waits_for_rest: bool,
        /// Where it was last asked for again.
        began: Option<ResourceVersion>,
    },
    /// What left while it was away: it is asked for again.
    Reopening {
        began: Option<ResourceVersion>,
    },
    /// What left by now. Then its client has to list.
    CatchingUp,
    Ended,
}

impl WatchStream {
    pub(super) fn new(frames: Frames, position: Option<ResourceVersion>, bookmarks: bool, traits: Traits) -> Self {
        let marks = traits.marks && frames.encoding() == Some(Encoding::Json);
        Self {
            state: State::Live,
            frames,
            filter: (!bookmarks).then(|| EventFilter::new(EventSet::Events).into()),
            marker: marks.then(Box::default),
            position,
            has_gap: false,
            is_refused: false,
            traits: traits.into(),
        }
    }

    /// The encoding of an event of ours that may stand here.
    pub(super) fn encoding_of_ours(&self) -> Option<Encoding> {
        self.frames.encoding_of_ours()
    }

    /// Whether it can't be understood.
    pub(super) fn is_opaque(&self) -> bool {
        self.frames.is_opaque()
    }

    /// Whether the API server's bytes are to be read.
    pub(super) fn may_read(&self) -> bool {
        match &self.state {
            State::Live | State::Leaving { .. } => true,
            State::Holding(holding) => holding.may_read(),
            State::Reopening { .. } | State::CatchingUp | State::Ended => false,
        }
    }

    /// Whether something waits for its children.
    pub(super) fn is_holding(&self) -> bool {
        matches!(self.state, State::Holding(_))
    }

    /// Whether something waited that may pass now.
    pub(super) fn has_next_held(&self) -> bool {
        matches!(&self.state, State::Holding(holding) if holding.is_free())
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The bytes that are kept until they are understood.
    pub(super) fn kept(&self) -> usize {
        self.frames.kept() + self.marker.as_ref().map_or(0, |marker| marker.kept())
    }

    /// Takes in what happened, at this moment.
    pub(super) fn step(&mut self, input: Input, now: Instant, out: &mut Effects) {
        if self.is_ended() {
            return;
        }
        match input {
            Input::Bytes(piece) => self.take(piece, now, out),
            Input::UpstreamEnded(error) => self.upstream_ended(error, now, out),
            Input::Left(deleted) => out.push_back(Effect::Send(self.deleted(&deleted))),
            Input::ChildrenShown => {
                if let State::Holding(holding) = &mut self.state {
                    holding.free();
                }
            }
            Input::NextHeld => self.release(now, out),
            Input::AdmissionOver => self.part(now, out),
            Input::RestOverdue => {
                if matches!(self.state, State::Leaving { waits_for_rest: true, .. }) {
                    out.push_back(Effect::BreakOff);
                    self.end(Ending::HalfAnEvent, out);
                }
            }
            Input::Reopened(reopened) => self.reopened(reopened, out),
            Input::NotReopened => self.end_in_order(out),
            Input::Regained => self.regained(out),
            Input::End(end) => self.end_by(end, out),
        }
    }

    /// Looks at the next bytes.
    fn take(&mut self, piece: Bytes, now: Instant, out: &mut Effects) {
        let begins = self.at_frame_boundary();
        let (bytes, proves, was_assigned) = self.pass(piece);
        let waits = was_assigned && self.traits.waits_for_children && self.position.is_some();
        match &mut self.state {
            State::Holding(holding) => holding.hold(Piece { bytes, proves, waits, begins }),
            State::Live if waits => {
                self.state = State::Holding(Holding::of(Piece { bytes, proves, waits, begins }).into());
                out.push_back(Effect::AskAboutChildren);
            }
            _ => self.send(bytes, proves, out),
        }
        if self.frames.is_closed() && self.is_in_time(now) {
            // Before its client answers to that.
            out.push_back(Effect::BreakOffUnlessEnded);
        }
        if self.traits.is_of_ring && self.frames.is_opaque() {
            out.push_back(Effect::BreakOff);
            return self.end(Ending::Malformed, out);
        }
        let at_frame_boundary = self.at_frame_boundary();
        if let State::Leaving { waits_for_rest, .. } = &mut self.state {
            *waits_for_rest &= !at_frame_boundary;
        }
        self.stop_if_silent(out);
    }

    /// Returns what of the next bytes the client gets, what that proves, and whether an object came that may have children.
    fn pass(&mut self, piece: Bytes) -> (Bytes, Option<ResourceVersion>, bool) {
        let (mut proves, mut was_assigned) = (None, false);
        let is_refused = &mut self.is_refused;
        let found = |event: Event| {
            *is_refused |= event.kind == Kind::Other;
            was_assigned |= event.was_assigned;
            if let Some(version) = event.progress()
                && proves.as_ref().is_none_or(|highest| highest < version)
            {
                proves = Some(version.clone());
            }
        };
        let piece = match &mut self.filter {
            Some(filter) => filter.pass(&mut self.frames, piece, found),
            None => {
                self.frames.feed(&piece, found);
                piece
            }
        };
        let piece = match &mut self.marker {
            Some(marker) => marker.pass(&piece),
            None => piece,
        };
        // Where the end of the initial events was withheld, what leaves behind it does not place a watch.
        let is_placed = !self.has_gap && (!self.is_parted() || self.position.is_some());
        (piece, proves.filter(|_| is_placed), was_assigned)
    }

    /// The client gets this, which proves that.
    fn send(&mut self, bytes: Bytes, proves: Option<ResourceVersion>, out: &mut Effects) {
        if !bytes.is_empty() {
            out.push_back(Effect::Send(bytes));
        }
        if let Some(version) = proves.filter(|_| self.traits.is_of_ring) {
            self.position = self.position.take().max(Some(version.clone()));
            out.push_back(Effect::Advance(version));
        }
    }

    /// The next of what was held is the client's.
    fn release(&mut self, now: Instant, out: &mut Effects) {
        let State::Holding(holding) = &mut self.state else { return };
        let (next, asks) = holding.release();
        if asks {
            out.push_back(Effect::AskAboutChildren);
        }
        let ended = holding.is_empty().then(|| holding.ended.take());
        if let Some(Piece { bytes, proves, .. }) = next {
            self.send(bytes, proves, out);
        }
        if let Some(ended) = ended {
            self.state = State::Live;
            if let Some(error) = ended {
                self.upstream_ended(error, now, out);
            }
        }
    }

    /// From here on the client is told what leaves, or nothing, until it can open another watch.
    fn part(&mut self, now: Instant, out: &mut Effects) {
        let was_held = self.is_holding();
        let is_cut = was_held && !self.at_frame_boundary();
        // By what was held a controller may begin with an object that another shard has by then.
        if !self.drop_held() {
            return self.end(Ending::HalfAnEvent, out);
        }
        self.state = State::Leaving { waits_for_rest: false, began: None };
        let (is_half, events) = (!self.at_frame_boundary(), self.traits.without_lease);
        self.filter.get_or_insert_with(|| EventFilter::from_here(events, &self.frames).into()).let_only(events);
        if events == EventSet::Nothing {
            out.extend([Effect::BreakOff, Effect::CloseView]);
        }
        if is_half && self.frames.is_opaque() {
            out.push_back(Effect::BreakOff);
            return self.end(Ending::HalfAnEvent, out);
        }
        if is_half {
            self.state = State::Leaving { waits_for_rest: true, began: None };
            out.push_back(Effect::WaitForRest);
        } else if was_held && !self.is_silent() && (is_cut || self.traits.reopens) {
            // From what its client has: what left may be among what was held.
            out.push_back(Effect::StopReading);
            if !self.reopen(now, out) {
                self.end_in_order(out);
            }
        } else {
            self.stop_if_silent(out);
        }
    }

    /// Drops what waits. Returns whether its client has whole events without.
    fn drop_held(&mut self) -> bool {
        let State::Holding(holding) = &self.state else { return true };
        if !holding.begins() {
            return false;
        }
        if !self.at_frame_boundary() {
            // The rest of an event whose beginning is dropped would be no event.
            self.frames = self.frames.anew();
        }
        self.state = State::Live;
        true
    }

    /// Stops reading where nothing that comes is for the client any more.
    fn stop_if_silent(&mut self, out: &mut Effects) {
        if self.is_silent() && self.at_frame_boundary() {
            out.push_back(Effect::StopReading);
        }
    }

    fn upstream_ended(&mut self, error: Option<BodyError>, now: Instant, out: &mut Effects) {
        if let State::Holding(holding) = &mut self.state {
            holding.ended = Some(error);
            return;
        }
        if self.reopen(now, out) {
            return;
        }
        let Some(error) = error else {
            if self.is_in_time(now) {
                out.push_back(Effect::BreakOffUnlessEnded);
            }
            // A server on the way that cut a watch of the ring did so as if it were whole.
            if self.traits.is_of_ring && !self.at_frame_boundary() {
                return self.end(Ending::HalfAnEvent, out);
            }
            return self.end_in_order(out);
        };
        out.push_back(Effect::BreakOffUnlessEnded);
        if !self.at_frame_boundary() {
            return self.end(Ending::Error(error), out);
        }
        tracing::debug!(%error, "the API server is gone: a watch ends");
        self.end_in_order(out);
    }

    /// Asks for the watch again, from where it has come. Returns whether it does.
    fn reopen(&mut self, now: Instant, out: &mut Effects) -> bool {
        let is_refused = mem::take(&mut self.is_refused);
        let may_reopen = self.traits.reopens && self.at_frame_boundary() && self.is_in_time(now);
        let at = self.has_come_to().filter(|_| may_reopen);
        let (State::Leaving { began, .. }, Some(at)) = (&mut self.state, at) else { return false };
        // So an API server answers from before all that it knows: one that was asked just for that.
        let is_old = is_refused && began.is_some();
        out.push_back(Effect::Reopen(Position { at, is_old, encoding: self.frames.encoding() }));
        self.state = State::Reopening { began: began.take() };
        true
    }

    /// From where it is asked for again; none before its initial events have ended.
    fn has_come_to(&self) -> Option<ResourceVersion> {
        let position = self.position.as_ref()?;
        match &self.state {
            State::Leaving { began: Some(began), .. } | State::Reopening { began: Some(began) } => {
                Some(began.max(position).clone())
            }
            _ => Some(position.clone()),
        }
    }

    fn reopened(&mut self, Reopened { frames, from, has_gap }: Reopened, out: &mut Effects) {
        if !frames.are_like(&self.frames) {
            return self.end_in_order(out);
        }
        self.has_gap |= has_gap;
        self.frames = frames;
        self.filter = self.filter.as_ref().map(|filter| filter.anew().into());
        self.marker = self.marker.take().map(|_| Box::default());
        self.state = State::Leaving { waits_for_rest: false, began: Some(from) };
    }

    /// It ends. Where it was asked for again its client may not know yet what left: that is found out first, as the client
    /// lists again a second later.
    fn regained(&mut self, out: &mut Effects) {
        let was_away = match &self.state {
            State::Leaving { began, .. } => began.is_some(),
            State::Reopening { .. } => true,
            State::Live | State::Holding(_) | State::CatchingUp | State::Ended => return,
        };
        if let Some(at) = self.has_come_to().filter(|_| was_away && self.at_frame_boundary()) {
            let encoding = self.frames.encoding();
            out.extend([Effect::StopReading, Effect::FindOut(Position { at, is_old: true, encoding })]);
            self.state = State::CatchingUp;
            return;
        }
        out.push_back(Effect::BreakOff);
        let told = self.last_word();
        self.end_with(told, out);
    }

    fn end_by(&mut self, end: End, out: &mut Effects) {
        if end != End::Closing {
            out.push_back(Effect::BreakOff);
        }
        if !self.drop_held() {
            return self.end(Ending::HalfAnEvent, out);
        }
        let told = match end {
            End::RingChanged => self.expired(LIST_AGAIN),
            End::Unplaced => self.expired(LIST_ANEW),
            End::Closing => self.last_word(),
            End::NoRoom => None,
        };
        self.end_with(told, out);
    }

    /// What its client has to be told when nothing more comes, if that can be said here.
    fn last_word(&mut self) -> Option<Bytes> {
        // What was withheld the next proxy does not know of. Where no object moves the client goes on from where it is.
        if self.is_parted() && self.traits.is_of_ring { self.expired(LIST_AFTER_THE_GAP) } else { self.frames.close() }
    }

    fn expired(&mut self, message: &str) -> Option<Bytes> {
        if self.withholds() {
            // The client has nothing of the event under way.
            self.frames = self.frames.anew();
        }
        self.frames.expired(message)
    }

    /// A `DELETED` of the proxy's own.
    fn deleted(&self, deleted: &Deleted) -> Bytes {
        let event = self.frames.deleted(deleted, self.traits.form);
        if self.marker.is_some() { frames::marked(&event, Timestamp::now()).into() } else { event }
    }

    /// It ends with its last word.
    fn end_in_order(&mut self, out: &mut Effects) {
        out.extend(self.last_word().map(Effect::Send));
        self.end(Ending::InOrder, out);
    }

    /// It ends with this; without it, in order where its client has whole events.
    fn end_with(&mut self, told: Option<Bytes>, out: &mut Effects) {
        let in_order = told.is_some() || self.at_frame_boundary();
        out.extend(told.map(Effect::Send));
        self.end(if in_order { Ending::InOrder } else { Ending::HalfAnEvent }, out);
    }

    fn end(&mut self, ending: Ending, out: &mut Effects) {
        self.state = State::Ended;
        out.push_back(Effect::End(ending));
    }

    /// Whether its client is told no more than what leaves.
    fn is_parted(&self) -> bool {
        !matches!(self.state, State::Live | State::Holding(_))
    }

    /// Whether nothing that comes is for its client any more. By WebSocket the end is.
    fn is_silent(&self) -> bool {
        self.is_parted() && self.traits.without_lease == EventSet::Nothing && !self.traits.is_websocket
    }

    /// Whether it is to last for longer.
    fn is_in_time(&self, now: Instant) -> bool {
        self.traits.until > now
    }

    /// Whether what the client has, with what is held, is a number of whole events.
    fn at_frame_boundary(&self) -> bool {
        self.frames.at_frame_boundary() || self.withholds()
    }

    /// Whether the client has nothing of the event under way.
    fn withholds(&self) -> bool {
        self.filter.as_ref().is_some_and(|it| it.withholds()) || self.marker.as_ref().is_some_and(|it| it.withholds())
    }
}
