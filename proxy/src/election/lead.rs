//! Whether the controller may act by the elections that it was told to lead by.
//!
//! An elector leads until its renewals have failed for a while, which is shorter than its lock lasts. If the ring could not
//! renew the real lock meanwhile, or somebody else has it, one who elects past the proxies may lead as well. So from when that
//! may be until the controller can't believe any more that it leads, nothing is done for it but what is asked about the locks
//! themselves: by these it finds out.

use std::{fmt, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::Locks;
use crate::{body::BoxError, status::Refusal};

/// A time in which the controller may act without pause, as far as elections go.
#[derive(Clone, Default)]
pub struct Lead {
    over: CancellationToken,
    /// Since when it is over.
    doubted: Option<Instant>,
}

impl Lead {
    /// Returns, with the error for a stream, when it is over.
    pub fn over(&self) -> impl Future<Output = BoxError> + Send + 'static {
        let over = self.over.clone().cancelled_owned();
        async move {
            over.await;
            "the ring may have lost the real lock of the controller's election".into()
        }
    }
}

#[cfg(test)]
impl Lead {
    pub(crate) fn doubt(&self) {
        self.over.cancel();
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("doubted", &self.doubted).finish_non_exhaustive()
    }
}

/// The lead of now.
#[derive(Clone, Debug, Default)]
pub(super) struct Leads(watch::Sender<Lead>);

impl Leads {
    /// Waits for up to `patience` until the controller may act.
    ///
    /// # Errors
    /// When it may not by then.
    pub(super) async fn pass(&self, covered: impl Fn() -> bool, patience: Duration) -> Result<Lead, Refusal> {
        let mut leads = self.0.subscribe();
        // The clock is asked as well: a time runs out whether or not anybody runs to notice.
        let led = leads.wait_for(|lead| lead.doubted.is_none() && covered());
        match timeout(patience, led).await {
            Ok(Ok(lead)) => Ok(lead.clone()),
            _ => Err(Refusal::LeadInDoubt),
        }
    }

    /// Takes up whether it may.
    pub(super) fn review(&self, covered: bool, locks: &Locks) {
        self.0.send_if_modified(|lead| {
            match (covered, lead.doubted) {
                (false, None) => {
                    lead.doubted = Some(Instant::now());
                    lead.over.cancel();
                    tracing::warn!(
                        locks = locks.believed_names(),
                        "the ring may have lost the real lock of the controller's election: nothing is done for the controller until the lock is the ring's again, or the controller knows that it does not lead"
                    );
                }
                (true, Some(since)) => {
                    tracing::info!(seconds = since.elapsed().as_secs(), "the controller may go on");
                    *lead = Lead::default();
                }
                // Who waits asks the clock again.
                (true, None) => {}
                (false, Some(_)) => return false,
            }
            true
        });
    }

    /// How long the controller has waited by now; zero when it may act.
    pub(super) fn doubted_for(&self) -> Duration {
        self.0.borrow().doubted.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
