//! Answers requests for the controller's election Lease itself, so that every shard's controller leads.
//!
//! Inside `admit`: while the shard Lease is not held these requests are refused like all others, so the
//! controller loses its lead as its framework intends. Which Leases are meant, and how they are answered, is
//! decided in [`crate::election`]; all other requests pass unchanged.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use tower::{Service, ServiceExt};

use super::{Next, admit::Admitted};
use crate::{
    body::{Body, full},
    election::{Asked, LockRefusal, Locks},
    request::RequestInfo,
    status::Refusal,
};

/// The longest body of a write to a Lease. A Lease has some hundred bytes; managedFields and odd annotations
/// make it a few thousand.
const MAX_BODY: usize = 256 << 10;

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
            let (parts, body) = request.into_parts();
            let bytes = read(body).await?;
            if let Some(answer) = locks.answer(&asked, &parts, &bytes, shard.as_str()) {
                return Ok(answer?);
            }
            if let Asked::Patch(name) = &asked
                && let Some(base) = fetch(next.clone(), &parts, name).await?
                && let Some(answer) = locks.adopt_patched(&asked, &parts, &bytes, &base, shard.as_str())
            {
                return Ok(answer?);
            }
            next.oneshot(Request::from_parts(parts, full(bytes))).await
        };
        answered.boxed()
    }
}

async fn read(body: Body) -> Result<bytes::Bytes, Refusal> {
    let read = Limited::new(body, MAX_BODY).collect().await;
    Ok(read.map_err(|error| LockRefusal::Body(error.to_string()))?.to_bytes())
}

/// The real Lease that a patch changes, which may be about to become a lock of ours.
async fn fetch<S: Next>(next: S, parts: &http::request::Parts, name: &str) -> Result<Option<bytes::Bytes>, Refusal> {
    let Some(mut info) = parts.extensions.get::<RequestInfo>().cloned() else { return Ok(None) };
    info.verb = crate::request::Verb::Get;
    let mut request = Request::get(parts.uri.path())
        .body(crate::body::empty())
        .map_err(|error| LockRefusal::Body(format!("can't ask for Lease '{name}': {error}")))?;
    request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static("application/json"));
    request.extensions_mut().insert(info);
    let response = next.oneshot(request).await?;
    if response.status().is_success() { Ok(Some(read(response.into_body()).await?)) } else { Ok(None) }
}
