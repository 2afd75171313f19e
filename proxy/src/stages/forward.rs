//! Innermost: sends the request, and takes off the answer what belongs to the connection to the API server.
//!
//! May change `Host`, and hop-by-hop headers of the answer; everything else passes as it is, impersonation too.

use std::sync::{Arc, atomic::Ordering};

use futures::{FutureExt, TryFutureExt};
use http::{Request, StatusCode, Version, header};
use ringside_runtime::client::Short;

use super::{Answered, Handler, OwnRequests, Upstream, context::AdmittedRequest};
use crate::{
    body::{Body, BodyStalled, Stalled},
    request::{RequestInfo, Verb},
    status::Refusal,
    upstream::headers::strip_hop_by_hop,
};

/// Sends the request to the API server; the innermost stage.
#[derive(Clone, Debug)]
pub struct Forward<U> {
    upstream: U,
}

impl<U> Forward<U> {
    /// To the API server, or in tests to what stands in for it.
    pub fn new(upstream: U) -> Self {
        Self { upstream }
    }
}

impl<U: Upstream> Forward<U> {
    /// Sends a request; one of the proxy's own has no body that can stall.
    pub(super) fn send(&self, mut request: Request<Body>, stalled: Option<Stalled>) -> Answered {
        // The client library writes the API server's own.
        request.headers_mut().remove(header::HOST);
        *request.version_mut() = Version::HTTP_11;
        let is_stalled = move || stalled.is_some_and(|it| it.load(Ordering::Relaxed));
        // Of what came in part the API server does nothing, and over HTTP/2 the reason of the reset is lost.
        let refusal = |error| if is_stalled() { Refusal::BodyStalled(BodyStalled) } else { Refusal::from(error) };
        let answered = self.upstream.clone().call(request).map_err(refusal);
        answered
            .map_ok(|mut response| {
                let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                strip_hop_by_hop(response.headers_mut(), upgraded);
                // The version of this connection; the server side writes its own.
                *response.version_mut() = Version::HTTP_11;
                response
            })
            .boxed()
    }

    /// Requests of the proxy's own, which pass no other stage.
    pub(super) fn own(&self) -> OwnRequests {
        let this = self.clone();
        Arc::new(move |request| this.send(request, None))
    }
}

/// Whether its answer is one object, and no more than that.
fn reads_an_object(RequestInfo { verb, resource, upgrade, .. }: &RequestInfo) -> bool {
    *verb == Verb::Get && !upgrade && resource.name.is_some() && resource.subresource.is_none()
}

impl<U: Upstream> Handler for Forward<U> {
    fn call(&self, AdmittedRequest { mut request, context }: AdmittedRequest) -> Answered {
        if reads_an_object(&context.info) {
            request.extensions_mut().insert(Short);
        }
        self.send(request, Some(context.origin.stalled))
    }
}
