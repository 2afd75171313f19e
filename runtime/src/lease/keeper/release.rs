//! The end: what is under way, and the release.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use tokio::time::sleep;

use super::{
    super::{ENDS_WITHIN, LeaseParams, failure::Failure, handle::LeaseStatus},
    Keeper, now,
};

/// How long after the shutdown a renewal may go on that is under way, and how long one request of a release waits for its
/// answer: each leaves as much for another one.
pub(super) const HALF_OF_THE_END: Duration = Duration::from_secs(ENDS_WITHIN.as_secs() / 2);

/// How long a release pauses before it is tried again.
const RELEASE_AGAIN: Duration = Duration::from_millis(500);

impl Keeper {
    /// No task acts on the Lease from here on. Returns whether one could have.
    pub(super) fn let_go(&self) -> bool {
        let reason = Some("shutting down".to_owned());
        self.news.send_replace(LeaseStatus { reason, ..LeaseStatus::default() }).valid_until.is_some()
    }

    /// Releases the Lease: no task acts on it any more, then the write says so. Tried until it is settled.
    pub(super) async fn release(&mut self) {
        // What was sent to take it may have landed without an answer.
        if !self.let_go() && self.unanswered.is_empty() {
            return;
        }
        self.patience = self.patience.min(HALF_OF_THE_END);
        let LeaseParams { namespace, name, .. } = self.terms.clone();
        let mut known = self.mine.clone();
        loop {
            match self.release_once(known.take()).await {
                Ok(true) => return tracing::info!(namespace, lease = name, "released the Lease"),
                Ok(false) => {
                    return tracing::info!(
                        namespace,
                        lease = name,
                        "the Lease is already released, or held by another"
                    );
                }
                // Between our read and our write something changed: read again.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(namespace, lease = name, %error, "could not release the Lease");
                    if error.is_final() {
                        return;
                    }
                    sleep(RELEASE_AGAIN).await;
                }
            }
        }
    }

    /// One attempt, on the Lease as it was last known, or as it is read. `false` when it is no longer ours to release: taken,
    /// or released by an attempt that got no answer.
    async fn release_once(&mut self, known: Option<Lease>) -> Result<bool, Failure> {
        let mut lease = match known {
            Some(lease) => lease,
            None => match self.answered(self.api.get_opt(&self.terms.name)).await? {
                Some(lease) if self.is_own_write(&lease) => lease,
                _ => return Ok(false),
            },
        };
        lease.metadata.managed_fields = None;
        if let Some(annotations) = &mut lease.metadata.annotations {
            let facts = self.terms.facts.borrow();
            annotations.retain(|key, _| !facts.contains_key(key));
        }
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.renew_time = Some(now());
        }
        match self.answered(self.api.replace(&self.terms.name, &PostParams::default(), &lease)).await {
            Err(error) if error.is_not_found() => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }
}
