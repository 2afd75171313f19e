//! A watch without the Lease (DESIGN, "Shard membership", has it cut; DEPARTURES says why it is not).
//!
//! Its client may be about to begin with what it still has: the sooner it knows what others have by now, the less of that it
//! does. What else comes is withheld, as nothing may be done about it; so its client has to list again once the Lease is held,
//! and is told so. Who loses the Lease has often lost its connections as well, so the watch goes on from where it was when
//! these are gone: an end would leave its client with all that it has, as it can open no other. An API server that was
//! restarted meanwhile can't say what left before: that is found out from lists (`snapshot_diff`), and it goes on behind these. So is it
//! once more when the Lease is held again: a client lists again a second after it is told to, and begins meanwhile with what it has.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{Receiver, Sender, channel},
    future::{BoxFuture, MaybeDone, maybe_done},
};
use http::{Request, StatusCode, header};
use ringside_runtime::client;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    snapshot_diff::{DiffError, SnapshotDiff},
    stream::{Position, Reopened},
};
use crate::{
    body::{Body, empty},
    budget::Budget,
    frames::{Deleted, Frames},
    request::{
        Query,
        representation::{Encoding, Form, prefer_json},
    },
    stages::{
        OwnRequests,
        as_client::{AsClient, going_on, selected},
        context::{AdmittedRequest, RequestContext},
    },
    views::Scope,
};

/// Between two attempts, be it that nothing was answered, or a watch that ended at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest that it becomes, as it doubles with each time that what left has to be found out from lists.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long it is found out what left when the Lease is held again: new objects wait for as long.
const MAX_LAST_DIFF: Duration = Duration::from_secs(3);
/// What says something of a body or a connection, in the client's request: this one has neither.
const NOT_OURS: [header::HeaderName; 5] =
    [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::EXPECT, header::UPGRADE];

/// A watch that was asked for again, and its bytes.
type Again = (Reopened, Body);

type ReopenAnswer = BoxFuture<'static, Option<Again>>;

/// What comes of a watch that was asked for again.
pub(super) enum ReopenStep {
    /// An object that left before it begins, of which it says nothing.
    Left(Deleted),
    /// The watch, or none.
    Ended(Option<Again>),
}

/// A watch that goes on without the Lease, and tells only what leaves the shard.
pub(in crate::stages) struct DeletesOnly {
    asking: Asking,
    /// When it may be asked for again.
    due: Instant,
    pause: Duration,
    /// How long its client wants it.
    until: Instant,
    /// On its way, and what is found out meanwhile.
    again: Option<(MaybeDone<ReopenAnswer>, Receiver<Deleted>)>,
}

impl DeletesOnly {
    /// How the watch goes on. None for one of what objects control: that an object's children leave would have the controller
    /// begin with the object.
    pub(super) fn of(
        AdmittedRequest { request, context }: &AdmittedRequest,
        scope: &Arc<Scope>,
        (own, until): (OwnRequests, Instant),
    ) -> Option<Self> {
        let RequestContext { info, admitted, origin, .. } = context;
        if !admitted.policy.is_main(&info.resource.kind) {
            return None;
        }
        let query = Query::parse(request.uri().query().unwrap_or_default()).ok()?;
        let selects = selected(info, &query)?;
        let mut asked = Request::new(());
        asked.uri_mut().clone_from(request.uri());
        asked.headers_mut().clone_from(request.headers());
        for header in NOT_OURS {
            asked.headers_mut().remove(header);
        }
        asked.extensions_mut().insert(client::Watch);
        let asking = Asking { own, asked, selects, budget: origin.budget.clone(), scope: Arc::clone(scope) };
        Some(Self { asking, due: Instant::now(), pause: PAUSE, until, again: None })
    }

    /// Asks for the watch again, from where it has come.
    pub(super) fn reopen(&mut self, from: Position) {
        tracing::debug!(at = %from.at, from.is_old, "the API server has no more to say: a watch without the Lease goes on");
        // At once, the first time: meanwhile its client may begin with what others have.
        let due = if from.is_old && self.pause == PAUSE { Instant::now() } else { self.due };
        if from.is_old {
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        self.due = due.max(Instant::now()) + self.pause;
        let (tell, told) = channel(0);
        let again = self.asking.clone().until_answered(from, tell);
        let until = self.until;
        let in_time = async move {
            sleep_until(due).await;
            timeout_at(until, again).await.ok().flatten()
        };
        self.again = Some((maybe_done(in_time.boxed()), told));
    }

    /// Finds out what left since, and no more.
    pub(super) fn find_out(&mut self, Position { at, encoding, .. }: Position) {
        let (diff, (mut tell, told)) = (self.asking.diff(encoding), channel(0));
        let found = async move {
            // What is not known by then its client finds by its own list.
            drop(timeout(MAX_LAST_DIFF, diff.since(&at, &mut tell)).await);
            None
        };
        self.again = Some((maybe_done(found.boxed()), told));
    }

    /// Ready with the next that comes of what was asked.
    pub(super) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<ReopenStep> {
        let Some((again, told)) = &mut self.again else { return Poll::Pending };
        // It drops the sender at its end.
        let _ = again.poll_unpin(context);
        if let Some(left) = ready!(told.poll_next_unpin(context)) {
            return Poll::Ready(ReopenStep::Left(left));
        }
        let answered = Pin::new(again).take_output().flatten();
        self.again = None;
        Poll::Ready(ReopenStep::Ended(answered))
    }
}

/// How to ask for the watch again.
#[derive(Clone)]
struct Asking {
    own: OwnRequests,
    asked: Request<()>,
    /// What the watch selects.
    selects: Query,
    budget: Budget,
    scope: Arc<Scope>,
}

impl Asking {
    fn diff(&self, encoding: Option<Encoding>) -> SnapshotDiff {
        let headers = self.asked.headers();
        let client = AsClient::with(headers, &self.scope, (self.own.clone(), self.budget.clone()));
        SnapshotDiff::of(client, self.selects.clone(), encoding.filter(|_| Form::negotiated(headers) == Form::Object))
    }

    async fn until_answered(self, from: Position, mut tell: Sender<Deleted>) -> Option<Again> {
        let mut has_gap = false;
        let Position { at: mut from, mut is_old, encoding } = from;
        let mut pause = PAUSE;
        loop {
            if is_old {
                has_gap = true;
                match self.diff(encoding).since(&from, &mut tell).await {
                    Ok(until) => from = until,
                    Err(DiffError::NoAnswer) => {
                        sleep(pause).await;
                        // All of it is asked for again.
                        pause = (pause * 2).min(MAX_PAUSE);
                        continue;
                    }
                    Err(DiffError::NoRoom | DiffError::Refused | DiffError::Forgotten) => return None,
                }
            }
            let mut request = self.asked.clone().map(|()| empty());
            *request.uri_mut() = going_on(self.asked.uri(), &from.to_string())?;
            if encoding == Some(Encoding::Json) {
                // It began with a list in JSON, whatever its client prefers.
                prefer_json(request.headers_mut(), "protobuf");
            }
            let answer = (self.own)(request).await;
            is_old = answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::GONE);
            match answer {
                Ok(answer) if answer.status() == StatusCode::OK => {
                    let (frames, body) = (Frames::of_response(answer.headers()), answer.into_body());
                    let is_opaque = frames.is_opaque();
                    return (!is_opaque).then_some((Reopened { frames, from, has_gap }, body));
                }
                _ => sleep(PAUSE).await,
            }
        }
    }
}
