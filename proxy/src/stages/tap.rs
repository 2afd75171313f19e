//! Listens to watches as they pass: notes in [`Views`] how far each has come.
//!
//! Changes no byte, and passes each piece on as it comes, but for the bookmarks of a watch whose client asked for none
//! ([`crate::frames::EventFilter`]), and each `DELETED` of one that ends its work by a deletionTimestamp ([`crate::frames::Marker`]).
//! What comes from another shard waits for its children (`arrive`). Ends a watch when its resource joins or leaves the
//! ring, with an event that makes the client list again where the format has a place for it, and ends all
//! watches when the proxy ends. Without the Lease a watch of the objects that the ring shards says no more than what leaves
//! (`deletes_only`), and any other says nothing; all end in order when the Lease is held again (`deadline`). Cuts a list when its
//! resource joins or leaves the ring. A watch by WebSocket is handed to `upgrade`, which joins its connections and does the
//! same. All that becomes another protocol is. No watch of the ring's resources goes on that can't be understood: one that is
//! answered so is refused, one that becomes so ends. One whose client does not read ends with its
//! connection, when drains have waited for it for long ([`crate::handover`]).
//!
//! Where the API server is gone between two events, a watch ends as when the API server's own timeout ends it, and the
//! client opens the next from where it is. In the middle of an event it is an error, and so it is for all that is no
//! watch: half a list must never look like a whole one.
//!
//! All of that is decided by `stream`, which awaits nothing; `body` waits for what happens, and does what was decided.

use std::task::Poll;

use bytes::Bytes;
use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, pending, ready},
};
use http::{HeaderMap, Response, StatusCode, header};
use ringside_runtime::client;
use tokio_util::sync::CancellationToken;

mod arrive;
mod body;
mod deadline;
mod deletes_only;
mod missed;
mod snapshot_diff;
mod stream;

use arrive::{Arrivals, CacheQuestion};
pub use body::OpenWatch;
use deadline::WatchDeadline;
use deletes_only::DeletesOnly;
use missed::Asks;

use super::{
    Answered, Handler, OwnRequests,
    context::{AdmittedRequest, RequestContext},
    narrow::ViewToOpen,
    upgrade::{ClientSide, Upgrades},
};
use crate::{
    body::{Body, observed, until},
    budget::{Budget, WindowPermit},
    config::DeletionTimestamps,
    connection,
    frames::Frames,
    metrics::Metrics,
    request::{Verb, representation::Form},
    status::Refusal,
    views::{Expired, View, Views},
};

/// What a client is told whose watch ends because the ring changed.
const LIST_AGAIN: &str = "ringside-proxy: the resources of the ring changed: list again";

/// Notes how far each watch has come, and ends watches when the ring's resources change.
#[derive(Clone)]
pub struct Tap<S> {
    next: S,
    own: OwnRequests,
    state: TapState,
}

/// What it works with.
#[derive(Clone)]
pub struct TapState {
    /// What the controller can still see.
    pub views: Views,
    /// Which clients find a deletionTimestamp in each `DELETED`.
    pub marks: DeletionTimestamps,
    /// Counters.
    pub metrics: Metrics,
    /// Ends watches, without an error.
    pub closing: CancellationToken,
    /// Joins what becomes another protocol.
    pub upgrades: Upgrades,
}

impl<S> Tap<S> {
    /// Around the stages that send the request; `own` sends its questions.
    pub fn new(next: S, own: OwnRequests, state: TapState) -> Self {
        Self { next, own, state }
    }
}

impl<S: Handler> Handler for Tap<S> {
    fn call(&self, mut asked: AdmittedRequest) -> Answered {
        match asked.context.info.verb {
            Verb::Watch => self.watch(asked),
            Verb::List => self.list(asked),
            _ => {
                let connections = ClientSide::of(&mut asked);
                let (upgrades, answered) = (self.state.upgrades.clone(), self.next.call(asked));
                match connections {
                    Some(client) => answered.map_ok(move |answer| upgrades.join(client, answer, None)).boxed(),
                    None => answered,
                }
            }
        }
    }
}

impl<S: Handler> Tap<S> {
    fn list(&self, mut asked: AdmittedRequest) -> Answered {
        let view = self.view(&mut asked);
        let changed = ring_changes(&asked.context);
        let answered = self.next.call(asked);
        async move {
            let answer = answered.await;
            let response = view.answered(answer)?;
            let view = match view {
                // Not before it is sent: the API server says what is wrong with a token, if something is.
                Viewed::Expired if response.status().is_success() => return Err(Expired.into()),
                Viewed::Expired | Viewed::Foreign => None,
                Viewed::Open(view) => Some(view),
            };
            Ok(tap_list(response, view).map(|body| until(body, changed.map(|()| LIST_AGAIN.into()))))
        }
        .boxed()
    }

    fn watch(&self, mut asked: AdmittedRequest) -> Answered {
        let budget = asked.context.origin.budget.clone();
        let Ok(window) = budget.window() else { return ready(Err(Refusal::NoRoom)).boxed() };
        asked.request.extensions_mut().insert(client::Watch);
        let bookmarks = asked.context.view_to_open.as_ref().is_none_or(|it| it.bookmarks);
        let viewed = self.view(&mut asked);
        let client = ClientSide::of(&mut asked);
        let AdmittedRequest { request, context } = &asked;
        let (headers, agent) = (request.headers(), request.headers().get(header::USER_AGENT));
        let view = viewed.open();
        let deadline = WatchDeadline::of(context);
        let tapping = Tapping {
            handshake: client.as_ref().map(|_| headers.clone()).unwrap_or_default(),
            asks: view.map(|view| Asks::of(&asked, view.scope(), self.own.clone())),
            form: Form::negotiated(headers),
            bookmarks,
            marks: view.is_some() && self.state.marks.are_for(agent),
            deletes_only: view
                .and_then(|view| DeletesOnly::of(&asked, view.scope(), (self.own.clone(), deadline.until))),
            deadline,
            arrivals: view.and_then(|view| Arrivals::of(context, view.scope(), &self.state.metrics)),
            end: if context.is_stale { ready(End::RingChanged).boxed() } else { self.end_of_watch(context, view) },
            budget,
            window,
        };
        let question = view.and_then(|view| CacheQuestion::of(&asked, view.scope(), self.own.clone()));
        let (upgrades, answered) = (self.state.upgrades.clone(), self.next.call(asked));
        async move {
            let answer = answered.await;
            let response = viewed.answered(answer)?;
            let view = viewed.into_open();
            if let (Some(view), Some(question)) = (&view, question) {
                view.probed_by(question.by(response.extensions().get().cloned()));
            }
            tapping.tap(response, view, client.map(|client| (upgrades, client)))
        }
        .boxed()
    }

    /// The view that the answer gives.
    fn view(&self, AdmittedRequest { request, context }: &mut AdmittedRequest) -> Viewed {
        let Some(ViewToOpen { scope, kind, .. }) = context.view_to_open.take() else { return Viewed::Foreign };
        // Before the request is sent: what is drained while it is under way may already be in its answer.
        let Some(view) = kind.and_then(|kind| self.state.views.open(scope, kind).ok()) else { return Viewed::Expired };
        view.shown_to(request.headers().get(header::USER_AGENT), connection::current());
        Viewed::Open(view)
    }

    fn end_of_watch(&self, context: &RequestContext, view: Option<&View>) -> BoxFuture<'static, End> {
        let (changed, closing) = (ring_changes(context), self.state.closing.clone().cancelled_owned());
        let cut = view.map_or_else(|| pending().boxed(), |view| view.cut().boxed());
        async move {
            tokio::select! {
                () = changed => End::RingChanged,
                () = cut => End::Unplaced,
                () = closing => End::Closing,
            }
        }
        .boxed()
    }
}

/// The view of the ring that an answer gives.
enum Viewed {
    /// No view of the ring: its resource is not narrowed.
    Foreign,
    /// One that must not be shown.
    Expired,
    Open(View),
}

impl Viewed {
    fn open(&self) -> Option<&View> {
        if let Self::Open(view) = self { Some(view) } else { None }
    }

    fn into_open(self) -> Option<View> {
        if let Self::Open(view) = self { Some(view) } else { None }
    }

    /// Notes where the client will ask again for the same.
    fn answered(&self, answer: Result<Response<Body>, Refusal>) -> Result<Response<Body>, Refusal> {
        let is_postponed = match &answer {
            Ok(response) => response.status() == StatusCode::TOO_MANY_REQUESTS || response.status().is_server_error(),
            Err(refusal) => matches!(refusal, Refusal::Upstream(_)),
        };
        self.open().filter(|_| is_postponed).into_iter().for_each(View::postponed);
        answer
    }
}

/// What a watch is tapped with.
struct Tapping {
    /// The headers of the handshake, of a watch by WebSocket.
    handshake: HeaderMap,
    /// How to find out what its client missed, for one that does not notice by itself.
    asks: Option<Asks>,
    form: Form,
    bookmarks: bool,
    /// Whether its client is to find a deletionTimestamp in each `DELETED`.
    marks: bool,
    deadline: WatchDeadline,
    deletes_only: Option<DeletesOnly>,
    arrivals: Option<Arrivals>,
    /// Ready when it has to end.
    end: BoxFuture<'static, End>,
    budget: Budget,
    /// Counted as long as the answer is there.
    window: WindowPermit,
}

/// Why a watch is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// What the client knows is of another set of objects.
    RingChanged,
    /// It can't be told whether the watch has shown an object that is to be released.
    Unplaced,
    /// The proxy ends.
    Closing,
    /// There is no room to keep its event until it can be read.
    NoRoom,
}

/// Returns when the resource of the request joins the ring or leaves it.
fn ring_changes(RequestContext { info, admitted, .. }: &RequestContext) -> impl Future<Output = ()> + Send + 'static {
    admitted.policy_changed(info.resource.kind.clone())
}

impl Tapping {
    fn tap(
        self,
        response: Response<Body>,
        view: Option<View>,
        connections: Option<(Upgrades, ClientSide)>,
    ) -> Result<Response<Body>, Refusal> {
        let frames = match response.status() {
            StatusCode::OK => Frames::of_response(response.headers()),
            StatusCode::SWITCHING_PROTOCOLS => Frames::of_handshake(&self.handshake, response.headers()),
            // A success that no API server gives to a watch: what is in it is not known.
            status if status.is_success() => Frames::opaque(),
            // No watch came of it.
            _ => return Ok(response),
        };
        if view.is_some() && frames.is_opaque() {
            return Err(Refusal::OpaqueWatch);
        }
        let admitted = self.deadline.admitted.clone();
        let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let watch = OpenWatch::new(frames, view, self, is_upgraded);
        if is_upgraded {
            return Ok(match connections {
                Some((upgrades, client)) => upgrades.join(client, response, Some(watch)),
                None => response,
            });
        }
        let in_order = watch.ends_in_order();
        let tapped = response.map(|body| watch.tap(body));
        Ok(if in_order { tapped } else { tapped.map(|body| until(body, admitted.over())) })
    }
}

/// Keeps the view of a list open until its body has ended.
fn tap_list(response: Response<Body>, view: Option<View>) -> Response<Body> {
    let Some(view) = view else { return response };
    if response.status().is_success() {
        // A list tells its client what is not there.
        drop(view.begun());
    }
    response.map(|body| {
        observed(body, view, |view, polled| match polled {
            Poll::Pending => view.idle(),
            Poll::Ready(Some(Ok(frame))) => view.passes(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(_) => {}
        })
    })
}

#[cfg(test)]
pub(super) mod fixtures {
    use super::*;
    use crate::frames::EventSet;

    /// A watch by WebSocket, or one of nothing of the ring, that lasts.
    pub(in crate::stages) fn open(frames: Frames, view: Option<View>) -> OpenWatch {
        let budget = Budget::default();
        let asked = Tapping {
            handshake: HeaderMap::new(),
            asks: None,
            form: Form::Object,
            bookmarks: true,
            marks: false,
            deadline: WatchDeadline::none(EventSet::Nothing),
            deletes_only: None,
            arrivals: None,
            end: pending().boxed(),
            window: budget.window().expect("none is open"),
            budget,
        };
        OpenWatch::new(frames, view, asked, true)
    }
}
