//! Outermost: turns every refusal of an inner stage into a `Status` object in the client's representation, and counts
//! what happened.
//!
//! Ends a request's body that does not come on ([`Stalled`]), and gives it what buffers draw from. Changes nothing else about requests, and of responses only those
//! that are refusals.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, header};
use tower::Service;

use super::Next;
use crate::{
    body::{Body, empty, with_deadline},
    budget::Budget,
    metrics::Metrics,
    request::{
        Verb,
        representation::{Encoding, YAML, asks_for_yaml},
    },
    stages::classify::VerbSeen,
};

/// On a request: whether its client has stopped to send its body.
#[derive(Clone, Debug)]
pub struct Stalled(pub Arc<AtomicBool>);

/// See the module.
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

impl<S: Next> Service<Request<Body>> for Answer<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Waiting happens in calls, where it can be refused.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (body, stalled) = with_deadline(std::mem::replace(request.body_mut(), empty()));
        *request.body_mut() = body;
        request.extensions_mut().insert(Stalled(stalled));
        request.extensions_mut().insert(self.budget.clone());
        let metrics = self.metrics.clone();
        let (method, encoding) = (request.method().clone(), Encoding::negotiated(request.headers()));
        let is_yaml = encoding == Encoding::Json && asks_for_yaml(request.headers());
        let answered = self.next.call(request);
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
            let verb = response.extensions().get::<VerbSeen>().map_or(Verb::Unknown, |seen| seen.0);
            metrics.answered(verb, response.status());
            Ok(response)
        };
        answered.map(count).boxed()
    }
}
