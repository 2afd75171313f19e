//! The limit of concurrent writes to objects, for all rings together, and the order in which they begin.
//!
//! The number of permits follows from the API server's answers: one more after as many good answers as there are permits,
//! half of them after 429 or a timeout ([`limit`]). `Retry-After` stops all writes, or those to one API group. Permits go by
//! priority, and rings take turns within a priority ([`flows`]). A write that takes over a second leaves the count, as a
//! webhook may block it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::{client::Pause, explain::code};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

mod flows;
mod limit;

use self::flows::{FlowId, Flows, Next};
use crate::{api_error::has_ended, lock::Mutex, metrics::Metrics};
pub(crate) use limit::{MAX_PERMITS, MIN_PERMITS};

/// The time after which a write leaves the count: what Kubernetes promises for 99 of 100 writes to one object (the SLO "API
/// call latency").
const SLOW: Duration = Duration::from_secs(1);

/// How urgent a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// It ends a time in which the object is between two shards.
    Between,
    /// The same, for the many objects of a shard that is gone.
    Takeover,
    /// It begins a move: a shard works on the object until then.
    Rebalance,
    /// It corrects what no shard waits for.
    Repair,
}

/// All priorities, the most urgent first.
pub(super) const PRIORITIES: [Priority; 4] =
    [Priority::Between, Priority::Takeover, Priority::Rebalance, Priority::Repair];

/// The limit of concurrent writes; clones share it.
#[derive(Clone)]
pub(crate) struct Limiter(Arc<Inner>);

struct Inner {
    flows: Mutex<Flows>,
    rings: AtomicU64,
    metrics: Metrics,
}

/// The limit as one ring uses it; clones are the same ring.
#[derive(Clone)]
pub(crate) struct RingLimiter {
    limiter: Limiter,
    ring: u64,
}

/// The right to carry out one write; it is given back on drop.
pub(crate) struct Permit {
    limiter: Limiter,
    flow: FlowId,
    priority: Priority,
    began: Instant,
    is_slow: bool,
}

/// How the API server answered a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It carried the write out.
    Good,
    /// It refused the write. What it throttles is told to [`Limiter::throttled`].
    Refused,
    /// There was no answer, or 504.
    TimedOut,
}

impl Limiter {
    /// Creates a limit without writes, of so many at once at most.
    pub(crate) fn new(metrics: Metrics, most: usize) -> Self {
        let flows = Mutex::new(Flows::up_to(most));
        let this = Self(Arc::new(Inner { flows, rings: AtomicU64::new(0), metrics }));
        this.serve();
        this
    }

    /// Returns the limit for one more ring.
    pub(crate) fn ring(&self) -> RingLimiter {
        let ring = self.0.rings.fetch_add(1, Ordering::Relaxed);
        RingLimiter { limiter: self.clone(), ring }
    }

    /// Obeys an answer that asks for a pause.
    ///
    /// The permits are halved unless the pause is about one API group.
    pub(crate) fn throttled(&self, pause: &Pause) {
        let now = Instant::now();
        let until = now + pause.lasts;
        {
            let mut flows = self.0.flows.lock();
            if pause.group.is_none() {
                flows.limit.record_overload(pause.sent, now);
            }
            flows.pause(pause.group.as_deref(), until);
        }
        self.0.metrics.throttled();
        self.serve();
        let this = self.clone();
        tokio::spawn(async move {
            sleep_until(until).await;
            this.serve();
        });
    }

    /// Returns how many writes are under way, and how many may be.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let flows = self.0.flows.lock();
        (flows.used, flows.limit.permits())
    }

    /// Gives free permits to writes that wait, and shows the limit.
    fn serve(&self) {
        loop {
            let (next, permits) = {
                let mut flows = self.0.flows.lock();
                (flows.next(Instant::now()), flows.limit.permits())
            };
            self.0.metrics.write_limit(permits);
            let Some(Next { flow, priority, sender }) = next else { return };
            let (limiter, began) = (self.clone(), Instant::now());
            // A write that was cancelled just now gives it back.
            drop(sender.send(Permit { limiter, flow, priority, began, is_slow: false }));
        }
    }
}

impl RingLimiter {
    /// Waits for the permit to write to an object of `resource`.
    ///
    /// Cancel safety: the write does not wait any more when this is dropped.
    pub(crate) async fn permit(&self, priority: Priority, resource: &GroupResource) -> Permit {
        let (sender, receiver) = oneshot::channel();
        let flow = FlowId { ring: self.ring, resource: resource.clone() };
        self.limiter.0.flows.lock().add(flow, priority, sender);
        self.limiter.serve();
        // The sender is dropped after it has sent only.
        let Ok(permit) = receiver.await else { return std::future::pending().await };
        permit
    }

    /// Returns the number of permits of all rings.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.limiter.0.flows.lock().limit.permits()
    }
}

impl Answer {
    /// Reads how a write was answered.
    pub(crate) fn of<T>(outcome: &Result<T, kube::Error>) -> Self {
        match outcome {
            Ok(_) => Self::Good,
            // One whose hold had ended was not sent.
            Err(error) if !has_ended(error) && matches!(code(error), None | Some(504)) => Self::TimedOut,
            Err(_) => Self::Refused,
        }
    }
}

impl Permit {
    /// Returns when the write has taken so long that it has left the count.
    pub(crate) async fn until_slow(&mut self) {
        if self.is_slow {
            return std::future::pending().await;
        }
        sleep_until(self.began + SLOW).await;
        self.is_slow = true;
        self.limiter.0.flows.lock().mark_slow(&self.flow);
        self.limiter.serve();
    }

    /// Gives the permit back with what the answer says about the API server.
    pub(crate) fn answered(self, answer: Answer) {
        let mut flows = self.limiter.0.flows.lock();
        match answer {
            Answer::Good if !self.is_slow => {
                if flows.used >= flows.limit.of(self.priority) {
                    flows.limit.record_good();
                }
            }
            Answer::TimedOut => flows.limit.record_overload(self.began, Instant::now()),
            Answer::Good | Answer::Refused => {}
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.0.flows.lock().end(&self.flow, self.is_slow);
        self.limiter.serve();
    }
}

#[cfg(test)]
mod tests;
