//! A watch as it passes: how far it has come, and when to end it.

use std::{
    sync::Arc,
    task::{self, Context, Poll},
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
    stream::BoxStream,
};
use http_body::Frame;
use k8s_openapi::jiff::Timestamp;
use ringside_ring::ResourceVersion;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::field::display;

use http_body_util::BodyExt;

use super::{
    super::upgrade::heartbeat::Heartbeat,
    End, LIST_AGAIN,
    arrive::{Arrivals, Piece},
    body::WatchBody,
    deadline::WatchDeadline,
    deletes_only::{Again, DeletesOnly, Step},
    missed::Asks,
};
use crate::{
    body::{Body, BodyError},
    budget::{Budget, BudgetPermit, WindowPermit},
    frames::{self, Deleted, Event, EventFilter, EventSet, Frames, Kind, Marker},
    request::representation::{Encoding, Form},
    views::{UnobservedDeletions, View},
};

/// What a client is told whose watch may have shown an object that is to be released.
const LIST_ANEW: &str =
    "ringside-proxy: nothing tells whether this watch has seen what moved to other shards: list again";

/// What a client is told whose watch has said no more than what leaves.
const LIST_AFTER_THE_GAP: &str =
    "ringside-proxy: this shard was without its Lease, or did not know who leads: list again";

/// A watch, how far it has come, and when to end it.
pub struct WatchStream {
    frames: Frames,
    /// None for a resource that is not the ring's.
    view: Option<View>,
    /// For a client that asked for no bookmarks, or that is told no more than what leaves.
    filter: Option<Box<EventFilter>>,
    /// For a client that ends its work by a deletionTimestamp.
    marker: Option<Box<Marker>>,
    /// What the client is told before anything else, and what it knows once it has that.
    telling: Option<Box<Telling>>,
    /// What the last piece proves, once the client has it.
    pending: Option<ResourceVersion>,
    /// Whether the API server has said by an event that it can't go on.
    is_refused: bool,
    /// Whether it went on behind events that are lost: what it says from there on proves nothing of before.
    has_gap: bool,
    /// Gone once the watch has ended.
    end: Option<BoxFuture<'static, End>>,
    /// How long its client wants it to last, and may go on.
    deadline: Option<Box<WatchDeadline>>,
    /// How it goes on without the Lease, if it does.
    pub(super) deletes_only: Option<Box<DeletesOnly>>,
    /// For one whose objects have children.
    pub(super) arrivals: Option<Box<Arrivals>>,
    /// Whether objects came with the last piece whose children are waited for.
    arrives: bool,
    /// Whether its resource is the ring's.
    is_of_ring: bool,
    /// For what the frames keep.
    permit: BudgetPermit,
    /// For what comes while its client does not read.
    window: Option<WindowPermit>,
    /// Knows whether the client has said its last, of a watch by WebSocket.
    heartbeat: Option<Arc<Heartbeat>>,
}

/// A part of an event is not for the client any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch ended in the middle of an event")]
pub(super) struct HalfAnEvent;

/// Events about what the client missed.
struct Telling {
    events: BoxStream<'static, Option<Deleted>>,
    form: Form,
    missed: UnobservedDeletions,
}

/// What waited for its children.
pub(super) enum Held {
    /// It was nothing, or is none of the client's.
    Nothing,
    /// It is the client's now.
    Piece(Bytes),
    /// It was dropped, as the Lease is lost: what left may have been among it.
    Dropped,
    /// It was dropped, and its client has half an event.
    Half,
}

/// What becomes of a watch when the Lease is held again.
pub(super) enum Regained {
    /// It is found out first what left.
    FindsOut,
    Ends,
}

/// What comes next.
pub(super) enum Next {
    /// Of the API server; none at its end.
    Frame(Option<Result<Frame<Bytes>, BodyError>>),
    /// Of the proxy's own, for the client.
    Told(Bytes),
    /// The watch goes on with this.
    With(Body),
    Nothing,
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        // With all that the controller had open. Else its client is gone, or ended it.
        if self.deadline.as_ref().is_some_and(|it| it.admitted.is_over()) {
            self.broken_off();
        }
    }
}

impl WatchStream {
    pub(in crate::stages) fn new(
        frames: Frames,
        view: Option<View>,
        bookmarks: bool,
        end: BoxFuture<'static, End>,
    ) -> Self {
        Self {
            frames,
            is_of_ring: view.is_some(),
            view,
            filter: (!bookmarks).then(|| EventFilter::new(EventSet::Events).into()),
            marker: None,
            telling: None,
            pending: None,
            is_refused: false,
            has_gap: false,
            end: Some(end),
            deadline: None,
            deletes_only: None,
            arrivals: None,
            arrives: false,
            permit: Budget::default().permit(),
            window: None,
            heartbeat: None,
        }
    }

    /// A watch whose client is to find a deletionTimestamp in each `DELETED`.
    pub(super) fn marking(&mut self) {
        self.marker = (self.frames.encoding() == Some(Encoding::Json)).then(Box::default);
    }

    /// A `DELETED` of the proxy's own.
    fn tell(&self, deleted: &Deleted, form: Form) -> Bytes {
        let event = self.frames.deleted(deleted, form);
        if self.marker.is_some() { frames::marked(&event, Timestamp::now()).into() } else { event }
    }

    /// What it was admitted by may be over: from then on its client is told what leaves, or nothing, until it can open another.
    fn review(&mut self, context: &mut Context<'_>) {
        let (at_frame_boundary, is_opaque) = (self.at_frame_boundary(), self.frames.is_opaque());
        let Some(deadline) = self.deadline.as_mut() else { return };
        if !deadline.poll_over(context) {
            return;
        }
        if !at_frame_boundary {
            deadline.wait_for_rest(is_opaque);
        }
        let events = deadline.events;
        if events == EventSet::Nothing {
            // It shows nothing any more.
            self.broken_off();
            (self.view, self.telling, self.pending) = (None, None, None);
        }
        self.filter.get_or_insert_with(|| EventFilter::from_here(events, &self.frames).into()).let_only(events);
    }

    /// Whether the watch ends by itself when its admission is over. In a stream that can't be understood, borders
    /// between events are unknown.
    pub fn ends_in_order(&self) -> bool {
        self.deadline.is_some() && !self.frames.is_opaque()
    }

    /// A watch by WebSocket: what its client ends is not broken off.
    pub(in crate::stages) fn heard_by(mut self, heartbeat: Option<Arc<Heartbeat>>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Whether nothing that comes is for its client any more. By WebSocket the end is.
    pub(super) fn is_silent(&self) -> bool {
        let is_silent = |deadline: &WatchDeadline| deadline.is_over() && deadline.events == EventSet::Nothing;
        self.heartbeat.is_none() && self.deadline.as_deref().is_some_and(is_silent) && self.at_frame_boundary()
    }

    /// A watch that was asked for so, and draws on this.
    pub(super) fn lasting(mut self, deadline: WatchDeadline, budget: &Budget, window: WindowPermit) -> Self {
        (self.deadline, self.permit, self.window) = (Some(deadline.into()), budget.permit(), Some(window));
        self
    }

    /// Whether its client is told no more than what leaves, as what it was admitted by is over.
    fn is_parted(&self) -> bool {
        self.deadline.as_ref().is_some_and(|it| it.is_over())
    }

    /// Whether it is to last for longer.
    fn is_in_time(&self) -> bool {
        self.deadline.as_ref().is_none_or(|it| it.until > Instant::now())
    }

    /// The API server ended it in order.
    pub(super) fn ended(&self) {
        if self.is_in_time() {
            self.gone();
        }
    }

    /// The API server is gone, unless its client was before.
    pub(super) fn gone(&self) {
        if !self.heartbeat.as_ref().is_some_and(|it| it.is_last_said()) {
            self.broken_off();
        }
    }

    /// What it shows, for people; none for a resource that is not the ring's.
    fn resource(&self) -> Option<String> {
        self.view.as_ref().map(|view| view.scope().resource.to_string())
    }

    /// Neither its client ended it, nor its time.
    pub(super) fn broken_off(&self) {
        self.view.iter().for_each(View::broken_off);
    }

    /// The next that has to be written before anything else; ready with none when that was all.
    pub(super) fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.review(context);
        let Some(telling) = &mut self.telling else { return Poll::Ready(None) };
        match task::ready!(telling.events.poll_next_unpin(context)) {
            Some(Some(deleted)) => {
                let form = telling.form;
                return Poll::Ready(Some(self.tell(&deleted, form)));
            }
            // The client asks again with its next watch.
            Some(None) => {
                tracing::warn!(
                    resource = self.resource().map(display),
                    "can't ask what a client missed: its watch is ended"
                );
                self.end = Some(ready(End::Unplaced).boxed());
            }
            None => self.view.iter().for_each(|view| view.mark_notified(&telling.missed)),
        }
        self.telling = None;
        Poll::Ready(None)
    }

    /// Ready when the watch has to end, with what to tell the client before, if it can be told something here.
    pub(super) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.review(context);
        let at_frame_boundary = self.at_frame_boundary();
        if self.deadline.as_mut().is_some_and(|deadline| deadline.lacks_rest(at_frame_boundary, context)) {
            self.broken_off();
            return Poll::Ready(None);
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let Poll::Ready(end) = end.as_mut().poll(context) else {
            // Who asks now has the client's connection take what was there.
            self.view.iter().for_each(View::idle);
            return Poll::Pending;
        };
        self.end = None;
        if end != End::Closing {
            self.broken_off();
        }
        let message = match end {
            End::RingChanged => LIST_AGAIN,
            End::Unplaced => LIST_ANEW,
            End::Closing => return Poll::Ready(self.last_word()),
            End::MalformedFrame => return Poll::Ready(None),
        };
        Poll::Ready(self.expired(message))
    }

    /// The API server is gone, or ended the watch. Returns whether it goes on all the same.
    pub(super) fn goes_on(&mut self) -> bool {
        let (at_frame_boundary, from) = (self.at_frame_boundary(), self.view.as_ref().and_then(View::position));
        let (in_time, until) = (self.is_in_time(), self.deadline.as_ref().map(|it| it.until));
        let how = (std::mem::take(&mut self.is_refused), self.frames.encoding());
        let may_go_on = self.is_parted() && at_frame_boundary && in_time;
        self.deletes_only.as_mut().is_some_and(|deletes_only| may_go_on && deletes_only.goes_on(from, how, until))
    }

    /// Ready when its client can open another watch: it ends. Where it was asked for again its client may not know yet what
    /// left: that is found out first, as the client lists again a second later.
    pub(super) fn poll_regained(&mut self, context: &mut Context<'_>) -> Poll<Regained> {
        if !self.deadline.as_mut().is_some_and(|deadline| deadline.poll_regained(context)) {
            return Poll::Pending;
        }
        let (from, encoding) = (self.view.as_ref().and_then(View::position), self.frames.encoding());
        let at_frame_boundary = self.at_frame_boundary();
        let finds_out = |it: &mut Box<DeletesOnly>| at_frame_boundary && it.finds_out(from, encoding);
        if self.deletes_only.as_mut().is_some_and(finds_out) {
            return Poll::Ready(Regained::FindsOut);
        }
        self.broken_off();
        Poll::Ready(Regained::Ends)
    }

    /// What its client has to be told when nothing more comes, if that can be said here.
    pub(super) fn last_word(&mut self) -> Option<Bytes> {
        // What was withheld the next proxy does not know of. Where no object moves the client goes on from where it is.
        if self.is_parted() && self.is_of_ring { self.expired(LIST_AFTER_THE_GAP) } else { self.frames.close() }
    }

    /// What comes, as the client gets it.
    pub(in crate::stages) fn tap(self, body: Body) -> Body {
        WatchBody::new(body, self).boxed_unsync()
    }

    fn expired(&mut self, message: &str) -> Option<Bytes> {
        if self.withholds() {
            // The client has nothing of the event under way.
            self.frames = self.frames.anew();
        }
        self.frames.expired(message)
    }

    /// Ready with what comes of a watch that is asked for again, or with none where it is not.
    pub(super) fn poll_again(&mut self, context: &mut Context<'_>) -> Poll<Option<Next>> {
        let Some(deletes_only) = &mut self.deletes_only else { return Poll::Ready(None) };
        let Some(step) = task::ready!(deletes_only.poll_again(context)) else { return Poll::Ready(None) };
        Poll::Ready(Some(match step {
            Step::Left(deleted) => {
                let form = deletes_only.form;
                Next::Told(self.tell(&deleted, form))
            }
            Step::Ended(Some(Again { frames, body, has_gap, .. })) if frames.are_like(&self.frames) => {
                self.has_gap |= has_gap;
                self.frames = frames;
                self.filter = self.filter.as_ref().map(|filter| filter.anew().into());
                self.marker = self.marker.take().map(|_| Box::default());
                Next::With(body)
            }
            Step::Ended(_) => Next::Nothing,
        }))
    }

    /// Whether what the client has is a number of whole events.
    pub(super) fn at_frame_boundary(&self) -> bool {
        self.frames.at_frame_boundary() || self.withholds()
    }

    /// Whether the client has nothing of the event under way.
    fn withholds(&self) -> bool {
        self.filter.as_ref().is_some_and(|it| it.withholds()) || self.marker.as_ref().is_some_and(|it| it.withholds())
    }

    /// Notes that the API server has answered. What the client missed before is the first that it is told. Where that
    /// is unknown, it has to list again.
    pub(super) fn begin(&mut self, asks: Option<Asks>, form: Form) {
        let Some(view) = &self.view else { return };
        let (Some(missed), Some(asks)) = (view.begun(), asks) else { return };
        let whole = self.frames.encoding_of_ours().filter(|_| form == Form::Object);
        let (resource, count) = (&view.scope().resource, missed.objects.len());
        tracing::info!(%resource, count, "sending DELETED for objects moved while the watch was closed");
        let events = asks.deleted(&missed, whole);
        self.telling = Some(Telling { events, form, missed }.into());
    }

    /// Ready when the client's connection has to be closed.
    pub fn closed(&self) -> Option<WaitForCancellationFutureOwned> {
        self.view.as_ref().and_then(View::closed)
    }

    /// Looks at a piece that passes; returns what of it the client gets now. The rest waits, or is none of the client's.
    pub(super) fn take(&mut self, piece: Bytes) -> Bytes {
        if self.arrivals.is_none() {
            return self.pass(piece);
        }
        let begins = self.at_frame_boundary();
        let bytes = self.pass(piece);
        // Before that its initial events are on their way: its client does not act on them yet.
        let is_placed = || self.view.as_ref().is_some_and(|view| view.position().is_some());
        let arrives = std::mem::take(&mut self.arrives) && is_placed();
        match &mut self.arrivals {
            Some(arrivals) if arrives || !arrivals.is_empty() => {
                arrivals.hold(Piece { bytes, proves: self.pending.take(), arrives, begins });
                Bytes::new()
            }
            _ => bytes,
        }
    }

    /// What waited, when it is the client's.
    pub(super) fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Held> {
        if self.arrivals.as_ref().is_none_or(|arrivals| arrivals.is_empty()) {
            return Poll::Ready(Held::Nothing);
        }
        self.review(context);
        let is_parted = self.is_parted();
        let Some(arrivals) = &mut self.arrivals else { return Poll::Ready(Held::Nothing) };
        let Some(view) = self.view.as_ref().filter(|_| !is_parted) else {
            // By what it says a controller may begin with an object that another shard has by then. Its client lists again.
            if !arrivals.drop_all() {
                return Poll::Ready(Held::Half);
            }
            // Where it can't be asked for again it goes on, and says what leaves from here on.
            if self.deletes_only.is_none() && self.frames.at_frame_boundary() {
                return Poll::Ready(Held::Nothing);
            }
            // The rest of an event whose beginning is dropped would be no event.
            self.frames = self.frames.anew();
            return Poll::Ready(if self.is_silent() { Held::Nothing } else { Held::Dropped });
        };
        let piece = task::ready!(arrivals.poll_next(view, context));
        Poll::Ready(piece.map_or(Held::Nothing, |piece| {
            self.pending = self.pending.take().max(piece.proves);
            Held::Piece(piece.bytes)
        }))
    }

    /// Looks at a piece that passes; returns what of it the client gets.
    fn pass(&mut self, piece: Bytes) -> Bytes {
        self.view.iter().for_each(|view| view.passes(piece.len()));
        let (pending, is_refused, arrives) = (&mut self.pending, &mut self.is_refused, &mut self.arrives);
        let found = |event: Event| {
            *is_refused |= event.kind == Kind::Other;
            *arrives |= event.was_assigned;
            if let Some(version) = event.progress()
                && pending.as_ref().is_none_or(|highest| highest < version)
            {
                *pending = Some(version.clone());
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
        if self.frames.is_closed() {
            // Before its client answers to that.
            self.ended();
        }
        let kept = self.frames.kept() + self.marker.as_ref().map_or(0, |marker| marker.kept());
        if !self.permit.resize(kept) {
            let resource = self.resource().map(display);
            tracing::warn!(resource, "a watch is ended: there is no room to keep its event until it can be read");
            self.end = Some(ready(End::MalformedFrame).boxed());
        }
        if self.view.is_some() && self.frames.is_opaque() {
            let resource = self.resource().map(display);
            tracing::warn!(
                resource,
                "a watch is ended: what the API server sent is not in the format that it announced"
            );
            self.end = Some(ready(End::MalformedFrame).boxed());
        }
        piece
    }

    /// The client's connection took what passed.
    pub(super) fn delivered(&mut self) {
        let Some(view) = &self.view else { return };
        // Where the end of the initial events was withheld, what leaves behind it does not place a watch.
        let is_placed = !self.has_gap && (!self.is_parted() || view.position().is_some());
        if let Some(version) = self.pending.take_if(|_| is_placed) {
            view.advance(&version);
        }
    }

    /// Whether an end here takes away what the client can't do without. A server on the way that cut a watch of the
    /// ring did so as if it were whole.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_of_ring && !self.at_frame_boundary()
    }
}
