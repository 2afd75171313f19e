//! Listens to watches as they pass: notes in [`Views`] how far each has come.
//!
//! Changes no byte, and passes each piece on as it comes, but for the bookmarks of a watch whose client asked for none
//! ([`crate::frames::Sieve`]). Ends a watch when its resource joins or leaves the
//! ring, with an event that makes the client list again where the format has a place for it, and ends all
//! watches when the proxy ends. Cuts a list when its resource joins or leaves the ring. A watch by WebSocket is
//! handed to whoever joins its connections, who does the same. No watch of the ring's resources goes on that can't be
//! understood: one that is answered so is refused, one that becomes so ends.
//!
//! Where the API server is gone between two events, a watch ends as when the API server's own timeout ends it, and the
//! client opens the next from where it is. In the middle of an event it is an error, and so it is for all that is no
//! watch: half a list must never look like a whole one.

use std::{
    pin::Pin,
    sync::Arc,
    task::{self, Context, Poll},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, pending, ready},
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use ringside_ring::ResourceVersion;
use tokio_util::sync::CancellationToken;
use tower::Service;

mod missed;

use missed::Asks;

use super::{Next, admit::Admitted, narrow::Shows, resume::Stale};
use crate::{
    body::{Body, BodyError, BoxError, holding, until},
    frames::{Event, Frames, Sieve},
    request::{RequestInfo, Verb, representation::Form},
    status::Refusal,
    views::{Expired, View, Views},
};

/// What a client is told whose watch ends because the ring changed.
const LIST_AGAIN: &str = "ringside-proxy: the resources of the ClusterRing changed: list again";

/// What a client is told whose watch may have shown an object that is to be let go.
const LIST_ANEW: &str =
    "ringside-proxy: nothing tells whether this watch has seen what moved to other shards: list again";

/// Why a watch ends with an error that ends otherwise without one.
const WITHIN_AN_EVENT: &str = "the watch ended in the middle of an event";

/// See the module.
#[derive(Clone, Debug)]
pub struct Tap<S> {
    next: S,
    views: Views,
    closing: CancellationToken,
}

impl<S> Tap<S> {
    /// Around the stages that send the request.
    pub fn new(next: S, views: Views, closing: CancellationToken) -> Self {
        Self { next, views, closing }
    }
}

/// A watch, how far it has come, and when to end it.
pub struct Watched {
    frames: Frames,
    /// None for a resource that is not the ring's.
    view: Option<View>,
    /// For a client that asked for no bookmarks.
    sieve: Option<Sieve>,
    /// What the client is told before anything else.
    first: Option<Bytes>,
    /// What the last piece proves, once the client has it.
    pending: Option<ResourceVersion>,
    /// Gone once the watch has ended.
    end: Option<BoxFuture<'static, End>>,
}

/// On the response of a handshake: the watch, for whoever joins the connections. Extensions must be `Clone`,
/// which a watch can't be, so it is taken once.
#[derive(Clone)]
pub struct Handed(Arc<Mutex<Option<Watched>>>);

impl Handed {
    fn of(watched: Watched) -> Self {
        Self(Arc::new(Mutex::new(Some(watched))))
    }

    /// Takes the watch.
    pub fn take(&self) -> Option<Watched> {
        self.0.lock().take()
    }
}

impl Watched {
    pub(super) fn new(frames: Frames, view: Option<View>, bookmarks: bool, end: BoxFuture<'static, End>) -> Self {
        Self { frames, view, sieve: (!bookmarks).then(Sieve::default), first: None, pending: None, end: Some(end) }
    }

    /// What has to be written before anything else, once.
    pub fn first(&mut self) -> Option<Bytes> {
        self.first.take()
    }

    /// Ready when the watch has to end, with what to tell the client before, if it can be told something here.
    pub fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let Poll::Ready(end) = end.as_mut().poll(context) else {
            // Who asks now has the client's connection take what was there.
            self.idle(true);
            return Poll::Pending;
        };
        self.end = None;
        let message = match end {
            End::RingChanged => LIST_AGAIN,
            End::Unplaced => LIST_ANEW,
            End::Closing | End::NotUnderstood => return Poll::Ready(None),
        };
        Poll::Ready(self.frames.expired(message))
    }

    /// Whether what the client has is a number of whole events.
    pub fn at_border(&self) -> bool {
        self.frames.at_border() || self.sieve.as_ref().is_some_and(Sieve::withholds)
    }

    /// What ends a WebSocket in order whose other end is gone, if it can be said here and was not said yet.
    pub fn close(&self) -> Option<Bytes> {
        self.frames.close()
    }

    /// The API server has answered. What the client missed before is the first that it is told; where nobody knows what that
    /// is, it has to list again.
    async fn begin<S: Next>(&mut self, asked: &Asked, next: S) {
        let Some(view) = &self.view else { return };
        let (Some(missed), Some(asks)) = (view.begun(), &asked.asks) else { return };
        let Some(deleted) = asks.deleted(next, &missed).await else {
            tracing::warn!(resource = %view.scope().resource, "can't ask what a client missed: its watch is ended");
            self.end = Some(ready(End::Unplaced).boxed());
            return;
        };
        tracing::info!(resource = %view.scope().resource, count = deleted.len(), "a client is told what moved while it did not watch");
        let events: Vec<_> = deleted.iter().map(|event| self.frames.deleted(event, asked.form)).collect();
        self.first = (!events.is_empty()).then(|| events.concat().into());
        view.told(&missed);
    }

    fn idle(&self, idle: bool) {
        if let Some(view) = &self.view {
            view.idle(idle);
        }
    }

    /// Looks at a piece that passes; returns what of it the client gets now.
    pub fn pass(&mut self, piece: Bytes) -> Bytes {
        self.idle(false);
        let pending = &mut self.pending;
        let found = |event: Event| {
            if let Some(version) = event.progress()
                && pending.as_ref().is_none_or(|highest| highest < version)
            {
                *pending = Some(version.clone());
            }
        };
        let piece = match &mut self.sieve {
            Some(sieve) => sieve.pass(&mut self.frames, piece, found),
            None => {
                self.frames.feed(&piece, found);
                piece
            }
        };
        if self.view.is_some() && self.frames.is_opaque() {
            tracing::warn!("a watch is ended: what the API server sent is not in the format that it announced");
            self.end = Some(ready(End::NotUnderstood).boxed());
        }
        piece
    }

    /// The client's connection took what passed.
    pub fn delivered(&mut self) {
        if let (Some(version), Some(view)) = (self.pending.take(), &self.view) {
            view.advance(&version);
        }
    }
}

impl<S: Next> Service<Request<Body>> for Tap<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = BoxFuture<'static, Result<Response<Body>, Refusal>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let shows = request.extensions_mut().remove::<Shows>();
        let bookmarks = shows.as_ref().is_none_or(|it| it.bookmarks);
        // Before the request is sent: what is drained while it is under way may already be in its answer.
        let (view, may_show) = self.view(shows);
        let info = request.extensions().get::<RequestInfo>();
        let verb = info.map(|info| info.verb);
        let watch = view.as_ref().filter(|_| verb == Some(Verb::Watch));
        let asks = watch.and_then(|view| Asks::of(&request, view.scope()));
        let form = Form::negotiated(request.headers());
        let handshake = info.filter(|info| info.upgrade).map(|_| request.headers().clone()).unwrap_or_default();
        let end = match verb {
            Some(Verb::Watch) if request.extensions().get::<Stale>().is_some() => Some(ready(End::RingChanged).boxed()),
            Some(Verb::Watch) => Some(self.end_of_watch(&request, view.as_ref())),
            _ => None,
        };
        let changed = (verb == Some(Verb::List)).then(|| ring_changes(&request));
        let (next, answered) = (self.next.clone(), self.next.call(request));
        let tapped = async move {
            let response = answered.await?;
            match (end, changed) {
                (Some(end), _) => {
                    tap_watch(Asked { handshake, asks, form, bookmarks }, response, view, end, next).await
                }
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

/// How a watch was asked for.
struct Asked {
    /// The headers of the handshake, of a watch by WebSocket.
    handshake: HeaderMap,
    /// How to find out what its client missed, for one that does not notice by itself.
    asks: Option<Asks>,
    form: Form,
    bookmarks: bool,
}

/// Why a watch is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// What the client knows is of another set of objects.
    RingChanged,
    /// Nobody can say whether it has shown an object that is to be let go.
    Unplaced,
    /// The proxy ends.
    Closing,
    /// It could not be told how far it has come.
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

async fn tap_watch<S: Next>(
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
    let mut watched = Watched::new(frames, view, asked.bookmarks, end);
    watched.begin(&asked, next).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        response.extensions_mut().insert(Handed::of(watched));
        return Ok(response);
    }
    Ok(response.map(|body| TappedBody { body, watched, ended: false }.boxed_unsync()))
}

/// Keeps the view of a list open until its body has ended.
fn tap_list(response: Response<Body>, view: Option<View>) -> Response<Body> {
    let Some(view) = view else { return response };
    if response.status().is_success() {
        // A list tells its client what is not there.
        drop(view.begun());
    }
    response.map(|body| holding(body, view))
}

struct TappedBody {
    body: Body,
    watched: Watched,
    ended: bool,
}

impl http_body::Body for TappedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.watched.first() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            // Asking for more means that the connection took what it was given.
            self.watched.delivered();
            if self.ended {
                return Poll::Ready(None);
            }
            if let Poll::Ready(told) = self.watched.poll_end(context) {
                self.ended = true;
                return Poll::Ready(match told {
                    Some(event) => Some(Ok(Frame::data(event))),
                    None if self.watched.at_border() => None,
                    None => Some(Err(BoxError::from(WITHIN_AN_EVENT).into())),
                });
            }
            let frame = task::ready!(Pin::new(&mut self.body).poll_frame(context));
            match self.pass(frame) {
                // Of this piece nothing is the client's.
                Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                frame => return Poll::Ready(frame),
            }
        }
    }
}

impl TappedBody {
    /// What the client gets for what came.
    fn pass(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) -> Option<Result<Frame<Bytes>, BodyError>> {
        match frame {
            Some(Ok(frame)) => Some(Ok(frame.map_data(|piece| self.watched.pass(piece)))),
            Some(Err(error)) => {
                self.ended = true;
                if self.watched.at_border() {
                    tracing::debug!(%error, "the API server is gone: a watch ends");
                    return None;
                }
                Some(Err(error))
            }
            None => {
                self.ended = true;
                // Whoever cut it on the way did so as if it were whole.
                let cut = self.watched.view.is_some() && !self.watched.at_border();
                cut.then(|| Err(BoxError::from(WITHIN_AN_EVENT).into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use futures::stream;
    use http_body_util::StreamBody;
    use proptest::prelude::*;
    use ringside_ring::cluster_ring::GroupResource;

    use super::*;
    use crate::{
        body::boxed,
        views::{Views, fixtures::watch},
    };

    /// Each watch has one of these, beside its stream and its view, for as long as it is open.
    #[test]
    fn a_watch_is_small() {
        assert!(size_of::<TappedBody>() <= 256, "{} bytes", size_of::<TappedBody>());
    }

    /// What comes out of a watch of `pieces`, of the ring or not, and whether it ended in order.
    fn tapped(pieces: &[Vec<u8>], of_the_ring: bool) -> (BytesMut, bool) {
        let frames = pieces.iter().map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(piece))));
        let body = boxed(StreamBody::new(stream::iter(frames.collect::<Vec<_>>())));
        let things = GroupResource { group: "x.io".to_owned(), resource: "things".to_owned() };
        let view = of_the_ring.then(|| watch(&Views::new(), things, None));
        let watched = Watched::new(Frames::json(), view, true, pending().boxed());
        let mut body = TappedBody { body, watched, ended: false };
        let mut out = BytesMut::new();
        loop {
            match body.frame().now_or_never() {
                Some(Some(Ok(frame))) => out.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes)),
                Some(end) => return (out, end.is_none()),
                None => return (out, false),
            }
        }
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let event = r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#;
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            Just(format!("{event}\n").into_bytes()),
            (0..event.len()).prop_map(move |at| event.as_bytes()[..at].to_vec()),
            (0..event.len()).prop_map(move |at| format!("{}\n", &event[at..]).into_bytes()),
        ]
    }

    proptest! {
        /// Of a watch that is not understood any more the rest is cut off, with an error, and nothing is ever changed.
        #[test]
        fn bytes_out_are_bytes_in(pieces in prop::collection::vec(piece(), 0..12)) {
            let sent = pieces.concat();
            let (passed, _) = tapped(&pieces, false);
            prop_assert_eq!(&passed[..], &sent[..]);
            let (shown, in_order) = tapped(&pieces, true);
            prop_assert!(sent.starts_with(&shown));
            prop_assert!(!in_order || (shown.len() == sent.len() && (sent.is_empty() || sent.ends_with(b"\n"))));
        }
    }
}
