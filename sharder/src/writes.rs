//! Writes that are carried out to their end, although the work that began them was dropped.
//!
//! The API server may still carry out a request that was dropped, and no task would know when. What is read meanwhile
//! can be old a moment later: a child that is sent ahead after its siblings were brought back, an owner that gets its
//! shard after a pass has gone by. So a write goes on, and nothing is read for the next decisions before it has ended.
//! But not for long: after 429 or 503 a client repeats a write for minutes. It would carry out a decision that the
//! sharder would not take any more.

use std::{collections::BTreeMap, panic::resume_unwind, sync::Arc, time::Duration};

use ringside_ring::cluster_ring::GroupResource;
use tokio::{sync::oneshot, time::sleep};
use tokio_util::task::TaskTracker;

use crate::{
    index::Mark,
    leases::Hold,
    lock::Mutex,
    metrics::Metrics,
    queue::limiter::{Answer, Limiter, MAX_PERMITS, Priority, RingLimiter},
    resources::{Object, Resource},
};

/// How long a write goes on that no task waits for: twice what Kubernetes promises for 99 of 100 writes to one object
/// (1 s, the SLO "API call latency").
const UNAWAITED_TIMEOUT: Duration = Duration::from_secs(2);

/// Is told what the API server answers about objects, so that what is known is never older than what was written.
pub(crate) trait Answers: Send + Sync {
    /// The object is as shown. `wrote`: by a write that began after this mark.
    fn shown(&self, resource: &Resource, object: &Object, wrote: Option<Mark>);
    /// There is no object of this uid.
    fn gone(&self, resource: &Resource, uid: &str);
}

/// Whether the last write of a resource that could show it kept the ring's labels.
#[derive(Clone, PartialEq)]
pub(crate) enum Kept {
    /// It did.
    Yes,
    /// It did not, for this reason.
    No(String),
}

/// What is known of each resource, by its version in which it was written.
type Labels = Arc<Mutex<BTreeMap<(String, String), Kept>>>;

/// The writes of all rings, for who gives up leading; clones share them.
#[derive(Clone)]
pub(crate) struct AllWrites {
    under_way: TaskTracker,
    limiter: Limiter,
    labels: Labels,
}

impl AllWrites {
    /// None yet, and so many at once at most.
    pub(crate) fn new(metrics: Metrics, most: usize) -> Self {
        Self { under_way: TaskTracker::new(), limiter: Limiter::new(metrics, most), labels: Labels::default() }
    }

    /// The limit of how many are under way.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Waits until none is under way, which is soon when no task waits for one any more.
    pub(crate) async fn ended(&self) {
        ended(&self.under_way).await;
    }
}

/// The writes of one ring; clones share them.
#[derive(Clone)]
pub(crate) struct Writes {
    limiter: RingLimiter,
    priority: Priority,
    ring: TaskTracker,
    all: TaskTracker,
    labels: Labels,
    /// What they need to be carried out, where they take what a shard has left.
    hold: Option<Hold>,
    answers: Option<Arc<dyn Answers>>,
}

impl Default for AllWrites {
    /// None yet, and as many at once as are usual.
    fn default() -> Self {
        Self::new(Metrics::default(), MAX_PERMITS)
    }
}

impl Default for Writes {
    /// Those of one ring alone.
    fn default() -> Self {
        Self::among(&AllWrites::default())
    }
}

impl Writes {
    /// The writes of a ring that belong to `all`.
    pub(crate) fn among(all: &AllWrites) -> Self {
        Self {
            limiter: all.limiter.ring(),
            priority: Priority::Between,
            ring: TaskTracker::new(),
            all: all.under_way.clone(),
            labels: all.labels.clone(),
            hold: None,
            answers: None,
        }
    }

    /// Returns the same writes with this priority.
    pub(crate) fn with_priority(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// The same, and the answers are told.
    pub(crate) fn telling(&self, answers: Arc<dyn Answers>) -> Self {
        Self { answers: Some(answers), ..self.clone() }
    }

    /// Who is told the answers.
    pub(crate) fn answers(&self) -> Option<&dyn Answers> {
        self.answers.as_deref()
    }

    /// The same, under a hold.
    pub(crate) fn under(&self, hold: Hold) -> Self {
        Self { hold: Some(hold), ..self.clone() }
    }

    /// The hold that they need.
    pub(crate) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// The limit as these writes use it.
    #[cfg(test)]
    pub(crate) fn limiter(&self) -> &RingLimiter {
        &self.limiter
    }

    /// What writes of the resource have shown.
    pub(crate) fn kept(&self, resource: &Resource) -> Option<Kept> {
        self.labels.lock().get(&version_of(resource)).cloned()
    }

    /// Notes what a write of the resource has shown.
    pub(crate) fn note(&self, resource: &Resource, kept: Kept) {
        self.labels.lock().insert(version_of(resource), kept);
    }

    /// Carries out a write to an object of `resource`: it goes on for a while when this is dropped.
    ///
    /// # Errors
    /// Those of the write.
    pub(crate) async fn carry_out<T: Send + 'static>(
        &self,
        resource: &GroupResource,
        write: impl Future<Output = Result<T, kube::Error>> + Send + 'static,
    ) -> Result<T, kube::Error> {
        let mut permit = self.limiter.permit(self.priority, resource).await;
        let (waiting, dropped) = oneshot::channel::<()>();
        let bounded = async move {
            let mut write = std::pin::pin!(write);
            let mut unawaited = std::pin::pin!(async {
                // Only its end counts.
                dropped.await.ok();
                sleep(UNAWAITED_TIMEOUT).await;
            });
            loop {
                tokio::select! {
                    outcome = &mut write => {
                        permit.answered(Answer::of(&outcome));
                        return Some(outcome);
                    }
                    () = permit.until_slow() => {}
                    () = &mut unawaited => return None,
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

    /// Waits until none of the ring's is under way.
    pub(crate) async fn ended(&self) {
        ended(&self.ring).await;
    }
}

fn version_of(resource: &Resource) -> (String, String) {
    let api = resource.api();
    (api.plural, api.api_version)
}

async fn ended(writes: &TaskTracker) {
    writes.close();
    writes.wait().await;
    writes.reopen();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;

    fn xs() -> GroupResource {
        GroupResource { group: String::new(), resource: "xs".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_waits_for_goes_on_and_is_given_up_after_a_while() {
        for (takes, whole) in [(UNAWAITED_TIMEOUT / 2, true), (UNAWAITED_TIMEOUT * 100, false)] {
            let writes = Writes::default();
            let (done, outcome) = oneshot::channel();
            let write = async move {
                sleep(takes).await;
                done.send(()).ok();
                Ok(())
            };
            assert!(writes.carry_out(&xs(), write).now_or_never().is_none());
            let start = Instant::now();
            writes.ended().await;
            assert_eq!(start.elapsed(), takes.min(UNAWAITED_TIMEOUT));
            assert_eq!(outcome.await.is_ok(), whole);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_waited_for_may_take_its_time() {
        let writes = Writes::default();
        assert_eq!(writes.carry_out(&xs(), sleep(UNAWAITED_TIMEOUT * 100).map(|()| Ok(7))).await.unwrap(), 7);
        assert!(writes.carry_out(&xs(), pending::<Result<(), kube::Error>>()).now_or_never().is_none());
    }
}
