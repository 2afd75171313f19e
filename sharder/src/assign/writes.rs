//! Writes that are carried out to their end, although the work that began them was dropped.
//!
//! The API server may still carry out a request that was dropped, and nobody would know when. What is read meanwhile can
//! be old a moment later: a child that is sent ahead after its siblings were brought back, an owner that gets its shard
//! after a pass has gone by. So a write goes on, and nothing is read for the next decisions before it has ended.

use std::{panic::resume_unwind, time::Duration};

use tokio_util::task::TaskTracker;

/// How long the writes of the work before may hold up the next: twice what Kubernetes promises for 99 of 100 writes to
/// one object (1 s, the SLO "API call latency").
const PATIENCE: Duration = Duration::from_secs(2);

/// The writes of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Writes {
    ring: TaskTracker,
    /// Those of all rings, for who gives up leading.
    all: TaskTracker,
}

impl Writes {
    /// The writes of a ring that belong to `all`.
    pub(crate) fn among(all: &TaskTracker) -> Self {
        Self { ring: TaskTracker::new(), all: all.clone() }
    }

    /// Carries out a write: it goes on when this is dropped.
    pub(super) async fn carry_out<T: Send + 'static>(&self, write: impl Future<Output = T> + Send + 'static) -> T {
        match self.all.spawn(self.ring.track_future(write)).await {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is ending.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until none of the ring's is under way; returns whether that is so.
    pub(crate) async fn ended(&self) -> bool {
        ended(&self.ring).await
    }
}

/// Waits until no write is under way, or for as long as is reasonable; returns whether none is.
pub(crate) async fn ended(writes: &TaskTracker) -> bool {
    writes.close();
    let ended = tokio::time::timeout(PATIENCE, writes.wait()).await.is_ok();
    writes.reopen();
    ended
}
