//! A watch without the Lease (DESIGN, "Shard membership", has it cut; ARCHITECTURE says why it is not).
//!
//! Its client may be about to begin with what it still has: the sooner it knows what others have by now, the less of that it
//! does. What else comes is withheld, as nothing may be done about it; so its client has to list again once the Lease is held,
//! and is told so. Who loses the Lease has often lost its connections as well, so the watch goes on from where it was when
//! these are gone: an end would leave its client with all that it has, as it can open no other. Of an API server that was
//! restarted meanwhile it learns nothing: such a one begins with what there is, and can't say what left before.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, StatusCode, Uri, header};
use ringside_ring::ResourceVersion;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;

use super::End;
use crate::{
    body::{Body, empty},
    frames::Frames,
    request::{Query, RequestInfo},
    stages::{Next, admit::Admitted, narrow::with_query},
};

/// Between two attempts, be it that nothing was answered, or a watch that ended at once.
const PAUSE: Duration = Duration::from_secs(1);
/// What says something of a body or a connection, in the client's request: this one has neither.
const NOT_OURS: [header::HeaderName; 5] =
    [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::EXPECT, header::UPGRADE];

/// A watch that is asked for again, once it is there.
type Again = BoxFuture<'static, Option<(Frames, Body)>>;

/// See the module.
pub(in crate::stages) struct Leave {
    admitted: Admitted,
    /// Gone once the Lease is.
    lost: Option<BoxFuture<'static, ()>>,
    ask: Box<dyn Fn(ResourceVersion) -> Again + Send>,
    /// When it may be asked for again.
    due: Instant,
    /// On its way.
    again: Option<Again>,
}

impl Leave {
    /// How the watch goes on. None for one of what objects control: that an object's children leave would have the controller
    /// begin with the object.
    pub(super) fn of<S: Next>(request: &Request<Body>, next: S) -> Option<Self> {
        let admitted = request.extensions().get::<Admitted>()?.clone();
        let info = request.extensions().get::<RequestInfo>()?.clone();
        let resource = &info.resource.as_ref()?.kind;
        let is_its_own = admitted.policy.main.contains(resource) && !admitted.policy.controlled.contains(resource);
        let lost = Some(admitted.lost().boxed());
        let mut asked = Request::new(());
        asked.uri_mut().clone_from(request.uri());
        asked.headers_mut().clone_from(request.headers());
        for header in NOT_OURS {
            asked.headers_mut().remove(header);
        }
        asked.extensions_mut().insert(RequestInfo { upgrade: false, ..info });
        let ask = Box::new(move |from| ask_until_answered(next.clone(), asked.clone(), from).boxed());
        is_its_own.then(|| Self { admitted, lost, ask, due: Instant::now(), again: None })
    }

    /// Whether the Lease was just lost; with when it is held again. The clock is asked as well: who wakes hears at once of all
    /// that happened, and not in this order.
    pub(super) fn poll_lost(&mut self, context: &mut Context<'_>) -> Option<BoxFuture<'static, End>> {
        let lost = self.lost.as_mut()?.as_mut().poll(context).is_ready() || !self.admitted.term.is_on();
        self.lost.take_if(|_| lost).map(|_| self.admitted.regained().map(|()| End::Regained).boxed())
    }

    /// Whether it is known that the Lease is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_none()
    }

    /// The API server is gone, or ended the watch. Returns whether it goes on, from where it has come.
    pub(super) fn goes_on(&mut self, from: Option<ResourceVersion>) -> bool {
        let Some(from) = from.filter(|_| self.is_lost()) else { return false };
        tracing::debug!(%from, "the API server has no more to say: a watch without the Lease goes on");
        let (again, due) = ((self.ask)(from), self.due);
        self.due = due.max(Instant::now()) + PAUSE;
        let in_time = async move {
            sleep_until(due).await;
            again.await
        };
        self.again = Some(in_time.boxed());
        true
    }

    /// Ready when nothing is on its way: with what was, or with none that came to nothing.
    pub(super) fn poll_again(&mut self, context: &mut Context<'_>) -> Poll<Option<Option<(Frames, Body)>>> {
        let Some(again) = &mut self.again else { return Poll::Ready(None) };
        let answered = ready!(again.as_mut().poll(context));
        self.again = None;
        Poll::Ready(Some(answered))
    }
}

async fn ask_until_answered<S: Next>(next: S, asked: Request<()>, from: ResourceVersion) -> Option<(Frames, Body)> {
    let uri = going_on(asked.uri(), &from)?;
    loop {
        let mut request = asked.clone().map(|()| empty());
        request.uri_mut().clone_from(&uri);
        match next.clone().oneshot(request).await {
            Ok(answer) if answer.status() == StatusCode::OK => {
                let frames = Frames::of_response(answer.headers());
                return (!frames.is_opaque()).then(|| (frames, answer.into_body()));
            }
            _ => sleep(PAUSE).await,
        }
    }
}

/// What a watch is asked for by that goes on from there.
fn going_on(uri: &Uri, from: &ResourceVersion) -> Option<Uri> {
    let mut query = Query::parse(uri.query().unwrap_or_default()).ok()?;
    query.remove(&["sendInitialEvents", "resourceVersionMatch"]);
    query.set("resourceVersion", &from.to_string());
    with_query(uri, &query.to_string()).ok()
}
