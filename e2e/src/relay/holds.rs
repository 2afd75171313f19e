//! Which requests wait before they are sent on.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;

use super::forward::{Fault, Passing, full};

/// What requests with one mark wait for.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pub(super) waiting: AtomicUsize,
    pub(super) released: CancellationToken,
}

impl Hold {
    /// Returns the request once it may be sent on. It is read to its end before it waits: nothing more of it has to come
    /// from its client then.
    pub(super) async fn wait(&self, request: Request<Passing>) -> Result<Request<Passing>, Fault> {
        let (head, body) = request.into_parts();
        let body = full(body.collect().await?.to_bytes());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.released.cancelled().await;
        Ok(Request::from_parts(head, body))
    }
}
