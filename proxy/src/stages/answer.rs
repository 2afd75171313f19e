//! Outermost: turns every refusal of an inner stage into a `Status` object in the client's representation, and counts
//! what happened.
//!
//! Takes the request in (`enter`). Changes nothing else about requests, and of responses only those that are refusals.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use http::{HeaderValue, Method, Request, Response, header};
use tower::Service;

use super::{Handler, context::IncomingRequest};
use crate::{
    body::{Body, empty},
    budget::Budget,
    metrics::Metrics,
    request::{
        Verb,
        representation::{Encoding, YAML, asks_for_yaml},
    },
};

/// Outermost stage: takes requests in, answers refusals as `Status` objects, and counts.
#[derive(Clone, Debug)]
pub struct Answer<S> {
    next: S,
    metrics: Metrics,
    budget: Budget,
}

impl<S> Answer<S> {
    /// Around the rest of the stack.
    pub fn new(next: S, metrics: Metrics, budget: Budget) -> Self {
        Self { next, metrics, budget }
    }
}

impl<S: Handler<IncomingRequest>> Service<Request<Body>> for Answer<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Waiting happens in calls, where it can be refused.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metrics = self.metrics.clone();
        let (method, encoding) = (request.method().clone(), Encoding::negotiated(request.headers()));
        let is_yaml = encoding == Encoding::Json && asks_for_yaml(request.headers());
        let incoming = IncomingRequest::of(request, self.budget.clone());
        let verb = incoming.as_ref().map_or(Verb::Unknown, IncomingRequest::verb);
        let answered = match incoming {
            Ok(incoming) => self.next.call(incoming),
            Err(refusal) => ready(Err(refusal)).boxed(),
        };
        let count = move |result: Result<Response<Body>, crate::status::Refusal>| {
            let response = result.unwrap_or_else(|refusal| {
                tracing::debug!(%method, %refusal, "refused");
                metrics.refused(refusal.label());
                let mut answer = refusal.into_response(encoding);
                if is_yaml {
                    // Every text in JSON is one in YAML (YAML 1.2, section 1.2).
                    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(YAML));
                }
                // RFC 9110, section 9.3.2. The HTTP/2 side of the library would send a body.
                if method == Method::HEAD { answer.map(|_| empty()) } else { answer }
            });
            metrics.answered(verb, response.status());
            Ok(response)
        };
        answered.map(count).boxed()
    }
}
