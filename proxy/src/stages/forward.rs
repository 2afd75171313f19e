//! Innermost: sends the request, and takes off the answer what belongs to the connection to the API server.
//!
//! May change `Host`, and hop-by-hop headers of the answer; everything else passes as it is, impersonation too.

use std::sync::atomic::Ordering;

use futures::{FutureExt, TryFutureExt};
use http::{Request, StatusCode, Version, header};
use ringside_runtime::client::Short;

use super::{Answered, Next, Upstream, answer::Stalled};
use crate::{
    body::{Body, BodyStalled},
    request::{RequestInfo, Resource, Verb},
    status::Refusal,
    upstream::headers::strip_hop_by_hop,
};

/// See the module.
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

/// Whether its answer is one object, and no more than that.
fn reads_an_object(info: &RequestInfo) -> bool {
    let is_object = |it: &Resource| it.name.is_some() && it.subresource.is_none();
    info.verb == Verb::Get && !info.upgrade && info.resource.as_ref().is_some_and(is_object)
}

impl<U: Upstream> Next for Forward<U> {
    fn call(&self, mut request: Request<Body>) -> Answered {
        // The client library writes the API server's own.
        request.headers_mut().remove(header::HOST);
        *request.version_mut() = Version::HTTP_11;
        if request.extensions().get::<RequestInfo>().is_some_and(reads_an_object) {
            request.extensions_mut().insert(Short);
        }
        let stalled = request.extensions_mut().remove::<Stalled>();
        let is_stalled = move || stalled.is_some_and(|Stalled(it)| it.load(Ordering::Relaxed));
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
}
