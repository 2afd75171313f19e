//! The open connections to the webhook: so many at most. A further one closes the one that was used the longest ago.

use std::sync::Arc;

use crate::lock::Mutex;
use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use tokio::{task::AbortHandle, time::Instant};

/// Connections at once: an API server needs few, as HTTP/2 carries many reviews by one.
const MAX_OPEN: usize = 256;

/// When a connection's last request came, or the connection.
type LastUse = Arc<Mutex<Instant>>;

/// All open connections.
#[derive(Default)]
pub(super) struct Connections(Vec<(LastUse, AbortHandle)>);

impl Connections {
    /// Takes in a new connection with its task, and closes another if there are too many.
    pub(super) fn add(&mut self, last_use: LastUse, task: AbortHandle) {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.push((last_use, task));
        if self.0.len() > MAX_OPEN {
            self.0.sort_by_key(|(last_use, _)| *last_use.lock());
            self.0.remove(0).1.abort();
        }
    }
}

/// The router of a new connection, which notes when it is used.
pub(super) fn noting(router: Router) -> (LastUse, Router) {
    let last_use = Arc::new(Mutex::new(Instant::now()));
    (last_use.clone(), router.layer(from_fn_with_state(last_use, note)))
}

async fn note(State(last_use): State<LastUse>, request: Request, next: Next) -> Response {
    *last_use.lock() = Instant::now();
    next.run(request).await
}
