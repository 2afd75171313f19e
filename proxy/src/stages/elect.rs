//! Answers requests for the lock of the controller's election itself, so that every shard's controller leads.
//!
//! Inside `admit`: while the shard Lease is not held these requests are refused like all others, so the
//! controller loses its lead as its framework intends. Which objects are meant, and how they are answered, is
//! decided in [`crate::election`]; a write that may begin an election is sent as a dry run first, and what the
//! API server refuses then is its answer. Nothing is said to lead before the ring holds the real lock. All other requests pass
//! unchanged, but reads of a lock that the ring holds already, and writes that would free one; where they show the lock of
//! another election that is noted (`waits`). Lists and watches of one name see
//! the same (`selected`), and a deletion of many leaves locks out (`deletion`).

use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, TryFutureExt, future::ready};
use http::{HeaderValue, Request, Response, header, request::Parts};
use tokio_util::sync::CancellationToken;

mod deletion;
mod passing;
mod selected;
mod waits;

use super::{
    Answered, Handler,
    context::{AdmittedRequest, RequestContext},
    narrow::with_query,
    whole,
};
use crate::{
    access::credentials::is_foreign,
    body::{Body, full},
    budget::{NoRoom, Unread},
    election::{Claim, Hold, Judgement, LockName, LockRefusal, LockRequest, Locks},
    metadata::MAX_OBJECT,
    request::{
        BadRequest, Query,
        representation::{Encoding, is_compressed},
    },
    status::Refusal,
};
use waits::Look;

/// Answers requests for the locks of the controller's elections itself.
#[derive(Clone, Debug)]
pub struct Elect<S> {
    next: S,
    locks: Arc<Locks>,
    hold: Arc<Hold>,
    closing: CancellationToken,
}

impl<S> Elect<S> {
    /// Around the stages for everything else; `closing` ends watches.
    pub fn new(next: S, locks: Arc<Locks>, hold: Arc<Hold>, closing: CancellationToken) -> Self {
        Self { next, locks, hold, closing }
    }
}

impl<S: Handler> Handler for Elect<S> {
    fn call(&self, mut admitted: AdmittedRequest) -> Answered {
        if is_foreign(admitted.request.headers()) {
            // Another account elects for itself.
            return self.next.call(admitted);
        }
        if let Err(refusal) = deletion::spare_locks(&self.locks, &mut admitted) {
            return ready(Err(refusal)).boxed();
        }
        let info = &admitted.context.info;
        if let Some(name) = self.locks.selected(info) {
            return self.clone().selected(name, admitted).boxed();
        }
        let Some(asked) = self.locks.concerns(info) else {
            let look = Look::of(&admitted.context, &self.locks, self.hold.holder());
            let (locks, answered) = (self.locks.clone(), self.next.call(admitted));
            return match look {
                Some(look) => answered.map_ok(|answer| look.at(answer, locks)).boxed(),
                None => answered,
            };
        };
        let (this, locks, name) = (self.clone(), self.locks.clone(), asked.name().cloned());
        async move {
            let answer = this.answer(asked, admitted).await;
            if let Some(name) = name
                && !answer.as_ref().is_ok_and(|answer| answer.status().is_success())
            {
                locks.refused(&name);
            }
            answer
        }
        .boxed()
    }
}

impl<S: Handler> Elect<S> {
    async fn answer(self, asked: LockRequest, admitted: AdmittedRequest) -> Result<Response<Body>, Refusal> {
        let (locks, hold) = (&self.locks, &self.hold);
        if let Some(name) = asked.name().filter(|name| matches!(asked, LockRequest::Read(_)) && !locks.knows(name)) {
            return look(self.next.clone(), (locks, hold), name, admitted).await;
        }
        let AdmittedRequest { request, context } = admitted;
        let (shard, budget) = (&context.admitted.term.shard, &context.origin.budget);
        let query = Query::parse(request.uri().query().unwrap_or_default()).map_err(BadRequest::from)?;
        let deletes = matches!(asked, LockRequest::Delete(_));
        if !deletes && query.first("dryRun").is_some() {
            // The client's own: it changes no lock, and makes none.
            return self.next.call(AdmittedRequest { request, context }).await;
        }
        if is_compressed(request.headers()) {
            // The proxy could find no election in a compressed body.
            return Err(Refusal::CompressedBody);
        }
        let (parts, body) = request.into_parts();
        let bytes = whole(budget, body).await?;
        if deletes && deletion::is_dry(&query, &bytes) {
            return self.next.call(AdmittedRequest { request: Request::from_parts(parts, full(bytes)), context }).await;
        }
        if let Some((name, claim)) = locks.claimed(&asked, &parts, &bytes) {
            let sure = hold.make_sure(&name, &claim).await;
            if matches!(sure, Err(LockRefusal::Conflict(_))) {
                // Its leader is another than this ring, as the controller sees when it reads it again.
                locks.forget(&name);
            }
            sure?;
        }
        if let Some(answer) = locks.answer(&asked, &parts, &bytes) {
            locks.kept().await;
            return Ok(answer?);
        }
        let frees = if locks.may_begin(&asked, &parts, &bytes, shard.as_str()) {
            let tried = self.next.call(dry_run(&parts, &context, &query, &bytes)?).await?;
            if !tried.status().is_success() {
                return Ok(tried);
            }
            let (head, body) = tried.into_parts();
            let body = budget.collect(body, MAX_OBJECT).await;
            let tried = Response::from_parts(head, body.map_err(|unread| not_judged(&unread))?);
            match locks.judge(&asked, &bytes, &tried, shard.as_str())? {
                Judgement::Begins(judged) => {
                    locks.make_room(&judged)?;
                    let judged = judged.taken_for(hold).await.inspect_err(|refusal| locks.not_taken(refusal))?;
                    let answer = locks.adopt(&asked, &parts, &bytes, judged);
                    locks.kept().await;
                    return Ok(answer?);
                }
                Judgement::Renews(name) => return Err(LockRefusal::Conflict(name).into()),
                Judgement::Frees => true,
                Judgement::Other => false,
            }
        } else {
            Locks::may_free(&asked, &parts, &bytes)
        };
        if frees && let Some(answer) = of_the_ring((locks, hold), &asked, &parts, &bytes).await? {
            return Ok(answer);
        }
        self.next.call(AdmittedRequest { request: Request::from_parts(parts, full(bytes)), context }).await
    }
}

/// Answers a write that would free a lock which the ring holds. The controller led by it before the proxy started
/// again, and the lock is not only this controller's.
async fn of_the_ring(
    (locks, hold): (&Locks, &Hold),
    asked: &LockRequest,
    parts: &Parts,
    body: &Bytes,
) -> Result<Option<Response<Body>>, Refusal> {
    let Some(name) = asked.name() else { return Ok(None) };
    if !learn((locks, hold), name).await? && locks.is_claimed(name) {
        // It has another holder by now, or none. The controller led by the ring's lock: it has nothing of its own to
        // free.
        return Err(LockRefusal::Conflict(name.clone()).into());
    }
    let answer = locks.answer(asked, parts, body);
    locks.kept().await;
    Ok(answer.transpose()?)
}

/// Finds out whether the ring holds what is no lock yet, as far as is known: then it is one.
async fn learn((locks, hold): (&Locks, &Hold), name: &LockName) -> Result<bool, LockRefusal> {
    match hold.of_the_ring(name).await? {
        Some(version) => locks.learn_free(name, Some(&version)).map(|()| true),
        None => Ok(false),
    }
}

/// Reads what is no lock yet, as far as is known: it is one if the ring holds it.
async fn look<S: Handler>(
    next: S,
    (locks, hold): (&Locks, &Hold),
    name: &LockName,
    admitted: AdmittedRequest,
) -> Result<Response<Body>, Refusal> {
    let budget = admitted.context.origin.budget.clone();
    let response = next.call(admitted).await?;
    if !response.status().is_success() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let (whole, body) = budget.peek(body, MAX_OBJECT).await;
    // As it came it may show that another leads.
    if let Some(whole) = whole.map_err(|NoRoom| Refusal::NoRoom)? {
        let free = locks.read(name, &head.headers, &whole, hold.holder());
        if free.is_err() && locks.is_claimed(name) {
            // It comes back to what it led by: nothing is in doubt when the ring holds it.
            hold.take(name, &Claim::default()).await?;
        }
        free?;
    }
    // The real lock: it has another holder, or none.
    locks.refused(name);
    Ok(Response::from_parts(head, body))
}

/// What the API server said of a dry run was not read.
fn not_judged(unread: &Unread) -> Refusal {
    match unread {
        Unread::NoRoom(_) => Refusal::NoRoom,
        Unread::TooLong(_) | Unread::Broken(_) => LockRefusal::Answer.into(),
    }
}

/// The write as the API server should judge it, without storing it.
fn dry_run(parts: &Parts, context: &RequestContext, query: &Query, body: &Bytes) -> Result<AdmittedRequest, Refusal> {
    let mut parts = parts.clone();
    parts.uri = with_query(&parts.uri, &query.with("dryRun", "All"))?;
    // In a form that can be read here, and not compressed.
    let accept = HeaderValue::from_static(Encoding::negotiated(&parts.headers).media_type());
    parts.headers.insert(header::ACCEPT, accept);
    parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(AdmittedRequest { request: Request::from_parts(parts, full(body.clone())), context: context.clone() })
}
