//! Why a request has no answer.

use std::net::SocketAddr;

/// Any error on the way.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why the API server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The request was not sent.
    #[error("the API server can't be reached: {0}")]
    Unreachable(#[source] BoxError),
    /// The API server did nothing with the request, as it says itself.
    #[error("the API server did not take the request: {0}")]
    NotProcessed(#[source] BoxError),
    /// The request may have been sent and done, but there is no answer to it.
    #[error("no answer from the API server: {0}")]
    Failed(#[source] BoxError),
    /// The same: it was waited for, and its server does not answer anything any more.
    #[error("the API server at {0} has stopped answering")]
    Gone(SocketAddr),
}
