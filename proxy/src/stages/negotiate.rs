//! Keeps CBOR out, whatever is asked for: the proxy does not read it (DESIGN, "Proxy: the request path").
//!
//! May change `Accept`, from which it takes CBOR: what is left decides, and of nothing the API server itself says 406.
//! Refuses bodies in CBOR, as API servers do that don't speak it. What stands behind an API server's `proxy` subresource is
//! nothing of Kubernetes, and passes.

use futures::{FutureExt, future::ready};
use http::Request;
use http_body::Body as _;

use super::{Answered, Next};
use crate::{
    body::Body,
    request::{
        RequestInfo, Resource,
        representation::{is_cbor_body, refuse_cbor},
    },
    status::Refusal,
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Negotiate<S> {
    next: S,
}

impl<S> Negotiate<S> {
    /// Around the stages that read what is negotiated.
    pub fn new(next: S) -> Self {
        Self { next }
    }
}

/// Whether an API server reads it, and not somebody behind one.
fn is_for_api_server(request: &Request<Body>) -> bool {
    let resource = request.extensions().get::<RequestInfo>().and_then(|info| info.resource.as_ref());
    !resource.is_some_and(Resource::is_behind_api_server)
}

impl<S: Next> Next for Negotiate<S> {
    fn call(&self, mut request: Request<Body>) -> Answered {
        if is_for_api_server(&request) {
            if is_cbor_body(request.headers()) && !request.body().is_end_stream() {
                return ready(Err(Refusal::CborBody)).boxed();
            }
            refuse_cbor(request.headers_mut());
        }
        self.next.call(request)
    }
}
