//! Answers requests for the controller's election Lease itself, so that every shard's controller leads.
//!
//! Inside `admit`: while the shard Lease is not held these requests are refused like all others, so the
//! controller loses its lead as its framework intends. Which Leases are meant, and how they are answered, is
//! decided in [`crate::election`]; a write that may begin an election is sent as a dry run first, and what the
//! API server refuses then is its answer. All other requests pass unchanged.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use tower::{Service, ServiceExt};

use super::{Next, admit::Admitted, narrow::with_query, whole};
use crate::{
    body::{Body, full},
    election::{LockRefusal, Locks},
    metadata::MAX_OBJECT,
    request::{
        BadRequest, Query, RequestInfo,
        representation::{Encoding, is_compressed},
    },
    status::Refusal,
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Elect<S> {
    next: S,
    locks: Arc<Locks>,
}

impl<S> Elect<S> {
    /// Around the stages for everything else.
    pub fn new(next: S, locks: Arc<Locks>) -> Self {
        Self { next, locks }
    }
}

impl<S: Next> Service<Request<Body>> for Elect<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = BoxFuture<'static, Result<Response<Body>, Refusal>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let info = request.extensions().get::<RequestInfo>();
        let asked = info.and_then(|info| self.locks.concerns(info));
        let shard = request.extensions().get::<Admitted>().map(|admitted| admitted.term.shard.clone());
        let (Some(asked), Some(shard)) = (asked, shard) else { return self.next.call(request).boxed() };
        let (next, locks) = (self.next.clone(), self.locks.clone());
        let answered = async move {
            let query = Query::parse(request.uri().query().unwrap_or_default()).map_err(BadRequest::from)?;
            if query.first("dryRun").is_some() {
                // The client's own: it changes no lock, and makes none.
                return next.oneshot(request).await;
            }
            if is_compressed(request.headers()) {
                // An election in it would be found by nobody here.
                return Err(Refusal::CompressedBody);
            }
            let (parts, body) = request.into_parts();
            let bytes = whole(body).await?;
            if let Some(answer) = locks.answer(&asked, &parts, &bytes) {
                return Ok(answer?);
            }
            if locks.may_begin(&asked, &parts, &bytes, shard.as_str()) {
                let tried = next.clone().oneshot(dry_run(&parts, &query, &bytes)?).await?;
                if !tried.status().is_success() {
                    return Ok(tried);
                }
                let (head, body) = tried.into_parts();
                let body = Limited::new(body, MAX_OBJECT).collect().await.map_err(|_| LockRefusal::Answer)?;
                let tried = Response::from_parts(head, body.to_bytes());
                if let Some(answer) = locks.adopt(&asked, &parts, &bytes, &tried, shard.as_str()) {
                    return Ok(answer?);
                }
            }
            next.oneshot(Request::from_parts(parts, full(bytes))).await
        };
        answered.boxed()
    }
}

/// The write as the API server should judge it, without storing it.
fn dry_run(parts: &Parts, query: &Query, body: &Bytes) -> Result<Request<Body>, Refusal> {
    let mut parts = parts.clone();
    parts.uri = with_query(&parts.uri, &query.with("dryRun", "All"))?;
    // In a form that can be read here, and not compressed.
    let accept = HeaderValue::from_static(Encoding::negotiated(&parts.headers).media_type());
    parts.headers.insert(header::ACCEPT, accept);
    parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(Request::from_parts(parts, full(body.clone())))
}
