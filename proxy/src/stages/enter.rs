//! Takes off what belongs to the client's connection, before any other stage reads a header. Refuses CONNECT and TRACE.
//!
//! Leaves the wish to upgrade, on which [`classify`](super::classify) decides, and that the client takes trailers.

use futures::{FutureExt, future::ready};
use http::{HeaderValue, Method, Request, header};

use super::{Answered, Next};
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

impl<S: Next> Next for Enter<S> {
    fn call(&self, mut request: Request<Body>) -> Answered {
        if [Method::CONNECT, Method::TRACE].contains(request.method()) {
            return ready(Err(Refusal::Method)).boxed();
        }
        let headers = request.headers_mut();
        let (upgrade, trailers) = (asks_for_upgrade(headers), takes_trailers(headers));
        strip_hop_by_hop(headers, upgrade);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        self.next.call(request)
    }
}
