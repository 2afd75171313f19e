//! The way to the API server, as the last stage sees it: a transport of the runtime's, with this crate's body.

use std::task::{Context, Poll};

use futures::{TryFutureExt, future::BoxFuture};
use http::{Request, Response};
use ringside_runtime::client::{ApiServer, ConnectError, Transport};
use tower::Service;

use crate::body::{Body, boxed};

pub mod headers;

pub use ringside_runtime::client::NoAnswer as UpstreamError;

/// The API server.
#[derive(Clone)]
pub struct Upstream(Transport);

impl Upstream {
    /// Connections are made when they are needed.
    ///
    /// # Errors
    /// When the credentials can't be used.
    pub fn new(server: &ApiServer) -> Result<Self, ConnectError> {
        Ok(Self(server.transport()?))
    }
}

impl Service<Request<Body>> for Upstream {
    type Response = Response<Body>;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Response<Body>, UpstreamError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.call(request).map_ok(|response| response.map(boxed)))
    }
}
