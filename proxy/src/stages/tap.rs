//! Listens to watches as they pass: notes in [`Views`] how far each has come.
//!
//! Changes no byte, and passes each piece on as it comes, but for the bookmarks of a watch whose client asked for none
//! ([`crate::frames::Sieve`]), and each `DELETED` of one that ends its work by a deletionTimestamp ([`crate::frames::Marker`]).
//! What comes from another shard waits for its children (`arrive`). Ends a watch when its resource joins or leaves the
//! ring, with an event that makes the client list again where the format has a place for it, and ends all
//! watches when the proxy ends. Without the Lease a watch of the objects that the ring shards says no more than what leaves
//! (`leave`), and any other says nothing; all end in order when the Lease is held again (`lasts`). Cuts a list when its resource joins or leaves the ring. A watch by WebSocket is
//! handed to whoever joins its connections, who does the same. No watch of the ring's resources goes on that can't be
//! understood: one that is answered so is refused, one that becomes so ends. One whose client does not read ends with its
//! connection, when drains have waited for it for long ([`crate::handover`]).
//!
//! Where the API server is gone between two events, a watch ends as when the API server's own timeout ends it, and the
//! client opens the next from where it is. In the middle of an event it is an error, and so it is for all that is no
//! watch: half a list must never look like a whole one.

use std::task::Poll;

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, pending, ready},
};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use ringside_runtime::client;
use tokio_util::sync::CancellationToken;

mod arrive;
mod body;
mod departed;
mod lasts;
mod leave;
mod missed;
mod watched;

use arrive::{Arrivals, Question};
use body::TappedBody;
use lasts::Lasts;
use leave::Leave;
use missed::Asks;
pub use watched::{Handed, Watched};

use super::{
    Answered, Next,
    admit::{Admitted, EndsInOrder},
    narrow::Shows,
    resume::Stale,
};
use crate::{
    body::{Body, observed, until},
    budget::{Budget, NoRoom, WindowPermit},
    config::DeletionTimestamps,
    connection,
    frames::Frames,
    metrics::Metrics,
    request::{RequestInfo, Verb, representation::Form},
    status::Refusal,
    views::{Expired, View, Views},
};

/// What a client is told whose watch ends because the ring changed.
const LIST_AGAIN: &str = "ringside-proxy: the resources of the ring changed: list again";

/// See the module.
#[derive(Clone, Debug)]
pub struct Tap<S> {
    next: S,
    views: Views,
    marks: DeletionTimestamps,
    metrics: Metrics,
    closing: CancellationToken,
}

impl<S> Tap<S> {
    /// Around the stages that send the request.
    pub fn new(next: S, views: Views, marks: DeletionTimestamps, metrics: Metrics, closing: CancellationToken) -> Self {
        Self { next, views, marks, metrics, closing }
    }
}

impl<S: Next> Next for Tap<S> {
    fn call(&self, mut request: Request<Body>) -> Answered {
        let verb = request.extensions().get::<RequestInfo>().map(|info| info.verb);
        let window = match (verb == Some(Verb::Watch)).then(|| Budget::of(request.extensions()).window()).transpose() {
            Ok(window) => window,
            Err(NoRoom) => return ready(Err(Refusal::NoRoom)).boxed(),
        };
        if window.is_some() {
            request.extensions_mut().insert(client::Watch);
        }
        let shows = request.extensions_mut().remove::<Shows>();
        let bookmarks = shows.as_ref().is_none_or(|it| it.bookmarks);
        // Before the request is sent: what is drained while it is under way may already be in its answer.
        let (view, may_show) = self.view(shows);
        let info = request.extensions().get::<RequestInfo>();
        if let Some(view) = &view {
            view.shown_to(request.headers().get(header::USER_AGENT), connection::current());
        }
        let watch = view.as_ref().filter(|_| verb == Some(Verb::Watch));
        let asks = watch.and_then(|view| Asks::of(&request, view.scope()));
        let form = Form::negotiated(request.headers());
        let handshake = info.filter(|info| info.upgrade).map(|_| request.headers().clone()).unwrap_or_default();
        let end = match verb {
            Some(Verb::Watch) if request.extensions().get::<Stale>().is_some() => Some(ready(End::RingChanged).boxed()),
            Some(Verb::Watch) => Some(self.end_of_watch(&request, view.as_ref())),
            _ => None,
        };
        let lasts = Lasts::of(&request);
        let marks = watch.is_some() && self.marks.are_for(request.headers().get(header::USER_AGENT));
        let leave = watch.and_then(|view| Leave::of(&request, view.scope(), self.next.clone()));
        let arrivals = watch.and_then(|view| Arrivals::of(&request, view.scope(), &self.metrics));
        let question = watch.and_then(|view| Question::of(&request, view.scope(), self.next.clone()));
        let budget = Budget::of(request.extensions());
        let changed = (verb == Some(Verb::List)).then(|| ring_changes(&request));
        let (next, answered) = (self.next.clone(), self.next.call(request));
        let tapped = async move {
            let answer = answered.await;
            if let Some(view) = view.as_ref().filter(|_| is_postponed(&answer)) {
                view.postponed();
            }
            let response = answer?;
            if let (Some(view), Some(question)) = (&view, question) {
                view.probed_by(question.by(response.extensions().get().cloned()));
            }
            match (end, changed) {
                (Some(end), _) => tap_watch(
                    Asked { handshake, asks, form, bookmarks, marks, lasts, leave, arrivals, budget, window },
                    response,
                    view,
                    end,
                    next,
                ),
                // Not before it is sent: the API server says what is wrong with a token, if something is.
                (None, Some(_)) if !may_show && response.status().is_success() => Err(Expired.into()),
                (None, Some(changed)) => {
                    Ok(tap_list(response, view).map(|body| until(body, changed.map(|()| LIST_AGAIN.into()))))
                }
                (None, None) => Ok(response),
            }
        };
        tapped.boxed()
    }
}

/// Whether the client will ask again for the same.
fn is_postponed(answer: &Result<Response<Body>, Refusal>) -> bool {
    match answer {
        Ok(response) => response.status() == StatusCode::TOO_MANY_REQUESTS || response.status().is_server_error(),
        Err(refusal) => matches!(refusal, Refusal::Upstream(_)),
    }
}

/// How a watch was asked for.
struct Asked {
    /// The headers of the handshake, of a watch by WebSocket.
    handshake: HeaderMap,
    /// How to find out what its client missed, for one that does not notice by itself.
    asks: Option<Asks>,
    form: Form,
    bookmarks: bool,
    /// Whether its client is to find a deletionTimestamp in each `DELETED`.
    marks: bool,
    lasts: Option<Lasts>,
    leave: Option<Leave>,
    arrivals: Option<Arrivals>,
    budget: Budget,
    /// Counted as long as the answer is there.
    window: Option<WindowPermit>,
}

/// Why a watch is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// What the client knows is of another set of objects.
    RingChanged,
    /// Nobody can say whether it has shown an object that is to be let go.
    Unplaced,
    /// Its client can open another, after a time in which it was told what leaves, or nothing.
    Regained,
    /// The proxy ends.
    Closing,
    /// It could not be told how far it has come, or there is no room to find out.
    NotUnderstood,
}

impl<S> Tap<S> {
    /// The view that the answer gives, and whether it may be shown.
    fn view(&self, shows: Option<Shows>) -> (Option<View>, bool) {
        let Some(Shows { scope, kind, .. }) = shows else { return (None, true) };
        let view = kind.and_then(|kind| self.views.open(scope, kind).ok());
        let may_show = view.is_some();
        (view, may_show)
    }

    fn end_of_watch(&self, request: &Request<Body>, view: Option<&View>) -> BoxFuture<'static, End> {
        let (changed, closing) = (ring_changes(request), self.closing.clone().cancelled_owned());
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

/// Returns when the resource of the request joins the ring or leaves it.
fn ring_changes(request: &Request<Body>) -> BoxFuture<'static, ()> {
    let resource = request.extensions().get::<RequestInfo>().and_then(|info| info.resource.clone());
    let admitted = request.extensions().get::<Admitted>();
    match resource.zip(admitted) {
        Some((resource, admitted)) => admitted.policy_changed(resource.kind).boxed(),
        None => pending().boxed(),
    }
}

fn tap_watch<S: Next>(
    asked: Asked,
    mut response: Response<Body>,
    view: Option<View>,
    end: BoxFuture<'static, End>,
    next: S,
) -> Result<Response<Body>, Refusal> {
    let frames = match response.status() {
        StatusCode::OK => Frames::of_response(response.headers()),
        StatusCode::SWITCHING_PROTOCOLS => Frames::of_handshake(&asked.handshake, response.headers()),
        // A success that no API server gives to a watch: what is in it is not known.
        status if status.is_success() => Frames::opaque(),
        // No watch came of it.
        _ => return Ok(response),
    };
    if view.is_some() && frames.is_opaque() {
        return Err(Refusal::OpaqueWatch);
    }
    let mut watched =
        Watched::new(frames, view, asked.bookmarks, end).lasting(asked.lasts, &asked.budget, asked.window);
    if asked.marks {
        watched.marking();
    }
    watched.begin(asked.asks, asked.form, next);
    watched.arriving(asked.arrivals);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        response.extensions_mut().insert(Handed::of(watched));
        return Ok(response);
    }
    if let Some(leave) = asked.leave {
        watched.leaving(leave);
    }
    if watched.ends_in_order() {
        response.extensions_mut().insert(EndsInOrder);
    }
    Ok(response.map(|body| TappedBody::new(body, watched).boxed_unsync()))
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
