//! Takes off what belongs to the client's connection, before any other stage reads a header. Refuses CONNECT and TRACE.
//!
//! Leaves the wish to upgrade, on which [`classify`](super::classify) decides, and that the client takes trailers.

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{HeaderValue, Method, Request, Response, header};
use tower::Service;

use super::Next;
use crate::{
    body::Body,
    request::asks_for_upgrade,
    status::Refusal,
    upstream::headers::{strip_hop_by_hop, takes_trailers},
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Enter<S> {
    next: S,
}

impl<S> Enter<S> {
    /// Around all stages that read headers.
    pub fn new(next: S) -> Self {
        Self { next }
    }
}

impl<S: Next> Service<Request<Body>> for Enter<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Refusal>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if [Method::CONNECT, Method::TRACE].contains(request.method()) {
            return Either::Right(ready(Err(Refusal::Method)));
        }
        let headers = request.headers_mut();
        let (upgrade, trailers) = (asks_for_upgrade(headers), takes_trailers(headers));
        strip_hop_by_hop(headers, upgrade);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        Either::Left(self.next.call(request))
    }
}
