//! The body of a watch, as the client gets it: waits for what happens to its stream, and does what has to be done.

use std::{
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    super::upgrade::heartbeat::Heartbeat,
    End, Tapping,
    arrive::Arrivals,
    deadline::WatchDeadline,
    deletes_only::{DeletesOnly, ReopenStep},
    stream::{Effect, Effects, Ending, Input, Traits, WatchStream},
};
use crate::{
    body::{Body, BodyError, BoxError, Polled},
    budget::{BudgetPermit, WindowPermit},
    frames::{Deleted, Frames},
    request::representation::Form,
    views::{UnobservedDeletions, View},
};

/// A watch that was answered, and all that it waits for but its bytes.
pub struct OpenWatch {
    stream: WatchStream,
    /// None for a resource that is not the ring's.
    view: Option<View>,
    /// What the client is told before anything else, and what it knows once it has that.
    telling: Option<Box<Telling>>,
    /// Gone once the watch has ended.
    end: Option<BoxFuture<'static, End>>,
    /// What it was admitted by.
    deadline: Box<WatchDeadline>,
    /// How it goes on without the Lease, if it does.
    deletes_only: Option<Box<DeletesOnly>>,
    /// For one whose objects have children.
    arrivals: Option<Box<Arrivals>>,
    /// For what the stream keeps.
    permit: BudgetPermit,
    /// For what comes while its client does not read.
    _window: WindowPermit,
    /// Knows whether the client has said its last, of a watch by WebSocket.
    heartbeat: Option<Arc<Heartbeat>>,
}

/// Events about what the client missed.
struct Telling {
    events: BoxStream<'static, Option<Deleted>>,
    missed: UnobservedDeletions,
}

/// A part of an event is not for the client any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch ended in the middle of an event")]
struct HalfAnEvent;

impl OpenWatch {
    /// The API server has answered. What the client missed before is the first that it is told. Where that is unknown, it
    /// has to list again.
    pub(super) fn new(frames: Frames, view: Option<View>, asked: Tapping, is_websocket: bool) -> Self {
        let Tapping { asks, form, bookmarks, marks, deadline, deletes_only, arrivals, end, budget, window, .. } = asked;
        let deletes_only = deletes_only.filter(|_| !is_websocket);
        let missed = view.as_ref().and_then(View::begun);
        let traits = Traits {
            is_of_ring: view.is_some(),
            is_websocket,
            waits_for_children: arrivals.is_some(),
            reopens: deletes_only.is_some(),
            marks,
            without_lease: deadline.events,
            form,
            until: deadline.until,
        };
        let stream = WatchStream::new(frames, view.as_ref().and_then(View::position), bookmarks, traits);
        let whole = stream.encoding_of_ours().filter(|_| form == Form::Object);
        let telling = missed.zip(asks).map(|(missed, asks)| {
            let resource = resource(view.as_ref());
            let count = missed.objects.len();
            tracing::info!(resource, count, "sending DELETED for objects moved while the watch was closed");
            Telling { events: asks.deleted(&missed, whole), missed }.into()
        });
        Self {
            stream,
            view,
            telling,
            end: Some(end),
            deadline: deadline.into(),
            deletes_only: deletes_only.map(Box::new),
            arrivals: arrivals.map(Box::new),
            permit: budget.permit(),
            _window: window,
            heartbeat: None,
        }
    }

    /// A watch by WebSocket: what its client ends is not broken off.
    pub(in crate::stages) fn heard_by(mut self, heartbeat: Option<Arc<Heartbeat>>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Whether the watch ends by itself when its admission is over. In a stream that can't be understood, borders
    /// between events are unknown.
    pub fn ends_in_order(&self) -> bool {
        !self.stream.is_opaque()
    }

    /// Ready when the client's connection has to be closed.
    pub fn closed(&self) -> Option<WaitForCancellationFutureOwned> {
        self.view.as_ref().and_then(View::closed)
    }

    /// What comes, as the client gets it.
    pub(in crate::stages) fn tap(self, body: Body) -> Body {
        WatchBody { body: Some(body), watch: self, effects: Effects::new() }.boxed_unsync()
    }

    /// What the client missed.
    fn poll_telling(&mut self, context: &mut Context<'_>) -> Poll<Option<Input>> {
        let Some(telling) = &mut self.telling else { return Poll::Ready(None) };
        let input = match ready!(telling.events.poll_next_unpin(context)) {
            Some(Some(deleted)) => return Poll::Ready(Some(Input::Left(deleted))),
            // The client asks again with its next watch.
            Some(None) => {
                self.warn("can't ask what a client missed: its watch is ended");
                Some(Input::End(End::Unplaced))
            }
            None => {
                self.view.iter().for_each(|view| view.mark_notified(&telling.missed));
                None
            }
        };
        self.telling = None;
        Poll::Ready(input)
    }

    fn warn(&self, message: &str) {
        tracing::warn!(resource = resource(self.view.as_ref()), "{message}");
    }

    fn break_off(&self) {
        self.view.iter().for_each(View::broken_off);
    }
}

/// What a watch shows, for people; none for a resource that is not the ring's.
fn resource(view: Option<&View>) -> Option<String> {
    view.map(|view| view.scope().resource.to_string())
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        // With all that the controller had open. Else its client is gone, or ended it.
        if self.deadline.admitted.is_over() {
            self.break_off();
        }
    }
}

/// The body of a watch that the client reads.
struct WatchBody {
    /// Gone where nothing of it is the client's any more.
    body: Option<Body>,
    watch: OpenWatch,
    /// What is to be done before anything else is waited for.
    effects: Effects,
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = &mut *self;
        loop {
            // Asking for more means that the connection took what it was given.
            while let Some(effect) = this.effects.pop_front() {
                if let ControlFlow::Break(frame) = this.carry_out(effect) {
                    return Poll::Ready(frame);
                }
            }
            if this.watch.stream.is_ended() {
                return Poll::Ready(None);
            }
            let input = ready!(this.poll_input(context));
            let (watch, has_grown) = (&mut this.watch, matches!(input, Input::Bytes(_)));
            watch.stream.step(input, Instant::now(), &mut this.effects);
            if has_grown && !watch.permit.resize(watch.stream.kept()) {
                watch.warn("a watch is ended: there is no room to keep its event until it can be read");
                watch.stream.step(Input::End(End::NoRoom), Instant::now(), &mut this.effects);
            }
        }
    }
}

impl WatchBody {
    /// The next that happens. What ends it comes before what it brings; that its client may open another comes last.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<Input> {
        let Self { body, watch, .. } = self;
        if watch.deadline.poll_over(context) {
            return Poll::Ready(Input::AdmissionOver);
        }
        if watch.stream.has_next_held() {
            return Poll::Ready(Input::NextHeld);
        }
        if watch.arrivals.as_mut().is_some_and(|arrivals| arrivals.poll_shown(context)) {
            return Poll::Ready(Input::ChildrenShown);
        }
        let telling = watch.poll_telling(context);
        if let Poll::Ready(Some(input)) = telling {
            return Poll::Ready(input);
        }
        if let Some(end) = &mut watch.end
            && let Poll::Ready(end) = end.poll_unpin(context)
        {
            watch.end = None;
            return Poll::Ready(Input::End(end));
        }
        if watch.deadline.poll_rest(context) {
            return Poll::Ready(Input::RestOverdue);
        }
        if !watch.stream.is_holding() {
            watch.view.iter().for_each(View::idle);
        }
        if telling.is_pending() {
            return Poll::Pending;
        }
        if let Some(deletes_only) = &mut watch.deletes_only
            && let Poll::Ready(step) = deletes_only.poll_step(context)
        {
            return Poll::Ready(match step {
                ReopenStep::Left(deleted) => Input::Left(deleted),
                ReopenStep::Ended(None) => Input::NotReopened,
                ReopenStep::Ended(Some((reopened, bytes))) => {
                    *body = Some(bytes);
                    Input::Reopened(reopened)
                }
            });
        }
        if let Some(body) = body.as_mut().filter(|_| watch.stream.may_read())
            && let Poll::Ready(frame) = Pin::new(body).poll_frame(context)
        {
            return Poll::Ready(match frame {
                None => Input::UpstreamEnded(None),
                Some(Err(error)) => Input::UpstreamEnded(Some(error)),
                Some(Ok(frame)) => {
                    // No API server sends trailers with a watch.
                    let piece = frame.into_data().unwrap_or_default();
                    watch.view.iter().for_each(|view| view.passes(piece.len()));
                    Input::Bytes(piece)
                }
            });
        }
        if watch.deadline.poll_regained(context) {
            return Poll::Ready(Input::Regained);
        }
        Poll::Pending
    }

    /// Breaks where the client gets something, or nothing more.
    fn carry_out(&mut self, effect: Effect) -> ControlFlow<Option<Result<Frame<Bytes>, BodyError>>> {
        let watch = &mut self.watch;
        match effect {
            Effect::Send(bytes) => return ControlFlow::Break(Some(Ok(Frame::data(bytes)))),
            Effect::End(ending) => return ControlFlow::Break(self.end(ending).map(Err)),
            Effect::Advance(version) => watch.view.iter().for_each(|view| view.advance(&version)),
            Effect::AskAboutChildren => {
                if let (Some(arrivals), Some(view)) = (&mut watch.arrivals, &watch.view) {
                    arrivals.ask(view);
                }
            }
            Effect::WaitForRest => watch.deadline.wait_for_rest(),
            Effect::BreakOff => watch.break_off(),
            Effect::BreakOffUnlessEnded => {
                if !watch.heartbeat.as_ref().is_some_and(|it| it.is_last_said()) {
                    watch.break_off();
                }
            }
            Effect::CloseView => (watch.view, watch.telling) = (None, None),
            Effect::StopReading => self.body = None,
            Effect::Reopen(from) => {
                if let Some(deletes_only) = &mut watch.deletes_only {
                    deletes_only.reopen(from);
                }
            }
            Effect::FindOut(from) => {
                if let Some(deletes_only) = &mut watch.deletes_only {
                    deletes_only.find_out(from);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending) -> Option<BodyError> {
        self.body = None;
        match ending {
            Ending::InOrder => None,
            Ending::Error(error) => Some(error),
            Ending::HalfAnEvent => Some(BoxError::from(HalfAnEvent).into()),
            Ending::Malformed => {
                self.watch.warn("a watch is ended: what the API server sent is not in the format that it announced");
                Some(BoxError::from(HalfAnEvent).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each watch has one of these, beside its stream's boxes and its view, for as long as it is open.
    #[test]
    fn a_watch_is_small() {
        assert!(size_of::<WatchBody>() <= 320, "{} bytes", size_of::<WatchBody>());
    }
}
