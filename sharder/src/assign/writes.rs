//! Writes that are carried out to their end, although the work that began them was dropped.
//!
//! The API server may still carry out a request that was dropped, and nobody would know when. What is read meanwhile can
//! be old a moment later: a child that is sent ahead after its siblings were brought back, an owner that gets its shard
//! after a pass has gone by. So a write goes on, and nothing is read for the next decisions before it has ended. But not
//! for long: a write that is refused with 429 or 503 would be repeated for minutes, and carry out a decision that nobody
//! would take any more.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::sleep,
};
use tokio_util::task::TaskTracker;

/// How long a write goes on that nobody waits for: twice what Kubernetes promises for 99 of 100 writes to one object
/// (1 s, the SLO "API call latency").
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes at once for one ring. One object's write takes the API server a few milliseconds, most of it waiting for etcd:
/// 16 of them keep it busy, and stay far below the API server's limit of requests in flight (400 writing ones by default,
/// `--max-requests-inflight` and its mutating twin).
const AT_ONCE: usize = 16;
/// How many of those are for writes of which there are hundreds at a time: the others stay free for what can't wait.
const OF_MANY: usize = 12;

/// The writes of one ring; clones share them.
#[derive(Clone)]
pub(crate) struct Writes {
    seats: Arc<Semaphore>,
    /// For the writes of which there are many.
    turns: Arc<Semaphore>,
    among_many: bool,
    ring: TaskTracker,
    /// Those of all rings, for who gives up leading.
    all: TaskTracker,
    /// Whether one was given up, and may be carried out all the same.
    given_up: Arc<AtomicBool>,
}

impl Default for Writes {
    /// Those of one ring alone.
    fn default() -> Self {
        Self::among(&TaskTracker::new())
    }
}

impl Writes {
    /// The writes of a ring that belong to `all`.
    pub(crate) fn among(all: &TaskTracker) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(AT_ONCE)),
            turns: Arc::new(Semaphore::new(OF_MANY)),
            among_many: false,
            ring: TaskTracker::new(),
            all: all.clone(),
            given_up: Arc::default(),
        }
    }

    /// The same, for whoever has many: they leave some seats to others.
    pub(super) fn among_many(&self) -> Self {
        Self { among_many: true, ..self.clone() }
    }

    /// Carries out a write: it goes on for a while when this is dropped.
    pub(super) async fn carry_out<T: Send + 'static>(&self, write: impl Future<Output = T> + Send + 'static) -> T {
        // Closed never. They are given back when the write has ended, whether anybody waits for it or not.
        let turn = if self.among_many { self.turns.clone().acquire_owned().await.ok() } else { None };
        let seat = self.seats.clone().acquire_owned().await;
        let (waiting, dropped) = oneshot::channel::<()>();
        let given_up = self.given_up.clone();
        let bounded = async move {
            let _held = (turn, seat);
            let patience = async {
                // Only its end counts.
                dropped.await.ok();
                sleep(PATIENCE).await;
            };
            tokio::select! {
                outcome = write => Some(outcome),
                () = patience => {
                    given_up.store(true, Ordering::Relaxed);
                    None
                }
            }
        };
        let outcome = self.all.spawn(self.ring.track_future(bounded)).await;
        drop(waiting);
        match outcome {
            Ok(Some(outcome)) => outcome,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is ending; while this waits, nothing is given up.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until none of the ring's is under way; returns whether all came to their end since the last time.
    pub(crate) async fn ended(&self) -> bool {
        ended(&self.ring).await;
        !self.given_up.swap(false, Ordering::Relaxed)
    }
}

/// Waits until no write is under way, which is soon when nobody waits for one any more.
pub(crate) async fn ended(writes: &TaskTracker) {
    writes.close();
    writes.wait().await;
    writes.reopen();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use futures::{FutureExt, future::join_all};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_waits_for_goes_on_and_is_given_up_after_a_while() {
        for (takes, whole) in [(PATIENCE / 2, true), (PATIENCE * 100, false)] {
            let writes = Writes::default();
            let (done, outcome) = oneshot::channel();
            let write = async move {
                sleep(takes).await;
                done.send(()).unwrap();
            };
            assert!(writes.carry_out(write).now_or_never().is_none());
            let start = Instant::now();
            assert_eq!(writes.ended().await, whole);
            assert_eq!(start.elapsed(), takes.min(PATIENCE));
            assert_eq!(outcome.await.is_ok(), whole);
            assert!(writes.ended().await, "told once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_waited_for_may_take_its_time() {
        let writes = Writes::default();
        assert_eq!(writes.carry_out(sleep(PATIENCE * 100).map(|()| 7)).await, 7);
        assert!(writes.carry_out(pending::<()>()).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_under_way_at_once_and_no_more() {
        let writes = Writes::default();
        let start = Instant::now();
        join_all((0..=AT_ONCE).map(|_| writes.carry_out(async { sleep(PATIENCE).await }))).await;
        assert_eq!(start.elapsed(), 2 * PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn many_writes_leave_some_seats_to_others() {
        let writes = Writes::default();
        let many: Vec<_> = (0..AT_ONCE).map(|_| writes.among_many()).collect();
        let all = join_all(many.iter().map(|writes| writes.carry_out(async { sleep(PATIENCE).await })));
        let start = Instant::now();
        let others = join_all((0..AT_ONCE - OF_MANY).map(|_| writes.carry_out(async { sleep(PATIENCE).await })));
        tokio::join!(all, async {
            others.await;
            assert_eq!(start.elapsed(), PATIENCE);
        });
        assert_eq!(start.elapsed(), 2 * PATIENCE);
    }
}
