//! The client's connection that a request came on, or its stream on one by HTTP/2, for who has to close it from elsewhere.
//!
//! A body that is not read is not asked for more, and so can't end by itself.

use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static CLOSE: CancellationToken;
}

/// Serves a connection, or a stream, until it has ended or was closed.
pub(crate) async fn closable(serving: impl Future<Output = ()>) {
    let close = CancellationToken::new();
    close.run_until_cancelled(CLOSE.scope(close.clone(), serving)).await;
}

/// What closes the connection or stream that is served here; outside of one a token that closes nothing.
pub(crate) fn current() -> CancellationToken {
    CLOSE.try_with(CancellationToken::clone).unwrap_or_default()
}
