//! Keeps CBOR out, whatever is asked for: the proxy does not read it (DESIGN, "Proxy: the request path").
//!
//! May change `Accept`, from which it takes CBOR: what is left decides, and of nothing the API server itself says 406.
//! Refuses bodies in CBOR, as API servers do that don't speak it. What stands behind an API server's `proxy` subresource is
//! nothing of Kubernetes, and passes.

use http::Request;
use http_body::Body as _;

use crate::{
    body::Body,
    request::{
        RequestInfo,
        representation::{is_cbor_body, refuse_cbor},
    },
    status::Refusal,
};

/// Removes CBOR from `Accept`, and refuses bodies in CBOR.
///
/// # Errors
/// When its body is in CBOR.
pub(super) fn negotiate(request: &mut Request<Body>, info: Option<&RequestInfo>) -> Result<(), Refusal> {
    if info.is_some_and(|info| info.resource.is_behind_api_server()) {
        return Ok(());
    }
    if is_cbor_body(request.headers()) && !request.body().is_end_stream() {
        return Err(Refusal::CborBody);
    }
    refuse_cbor(request.headers_mut());
    Ok(())
}
