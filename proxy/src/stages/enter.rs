//! Takes a request in: takes off what belongs to its client's connection, and finds out what is asked, before anything is decided.
//!
//! Refuses CONNECT and TRACE. Leaves that the client takes trailers, and the wish to upgrade where the
//! connection may become something else. Ends a body that does not come on.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, header};

use super::context::{IncomingRequest, Origin};
use crate::{
    body::{Body, empty, with_deadline},
    budget::Budget,
    request::RequestInfo,
    serve::Caller,
    status::Refusal,
    upstream::headers::{strip_hop_by_hop, takes_trailers},
};

impl IncomingRequest {
    /// A request as it came, whose buffers draw from this budget.
    ///
    /// # Errors
    /// When its method must not be sent.
    pub(super) fn of(mut request: Request<Body>, budget: Budget) -> Result<Self, Refusal> {
        if [Method::CONNECT, Method::TRACE].contains(request.method()) {
            return Err(Refusal::Method);
        }
        let info = RequestInfo::of(request.method(), request.uri(), request.headers());
        let headers = request.headers_mut();
        let trailers = takes_trailers(headers);
        strip_hop_by_hop(headers, matches!(&info, Ok(Some(info)) if info.upgrade));
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        let (body, stalled) = with_deadline(std::mem::replace(request.body_mut(), empty()));
        *request.body_mut() = body;
        let caller = request.extensions_mut().remove::<Arc<Caller>>();
        Ok(Self { request, info, origin: Origin { caller, stalled, budget } })
    }
}
