//! Whether the controller may act by the elections that it was told to lead by.
//!
//! An elector leads until its renewals have failed for a while, which is shorter than its lock lasts. If the ring could
//! not renew the real lock meanwhile, or another holder has it, a replica past the proxies may lead as well. So from
//! when that may be until the controller can't believe any more that it leads, nothing is done for it but what is asked
//! about the locks themselves: by these it finds out.

use std::{fmt, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::Locks;
use crate::body::BoxError;

/// It is not known whether the controller still leads.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the ring may have lost the lock of the controller's election, so nothing is done until it is known who leads")]
pub struct LeadInDoubt;

/// A time in which the controller may act without pause, as far as elections go.
#[derive(Clone, Default)]
pub struct Lead {
    over: CancellationToken,
    /// None while the ring held the locks when it was looked last, or it was not looked yet.
    doubt: Option<Doubt>,
}

/// The ring may have lost a lock that the controller may believe to lead by, or no look at it has succeeded yet.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Instant,
    /// Whether it was warned of.
    told: bool,
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

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("doubt", &self.doubt).finish_non_exhaustive()
    }
}

/// The lead of now.
#[derive(Clone, Debug, Default)]
pub(super) struct Leads(watch::Sender<Lead>);

/// How long a doubt lasts before it is warned of. The first looks of a term of the shard Lease take a moment.
const WARN_AFTER: Duration = Duration::from_secs(4);

impl Leads {
    /// Waits for up to `patience` until the controller may act.
    ///
    /// # Errors
    /// When it may not by then.
    pub(super) async fn pass(&self, covered: impl Fn() -> bool, patience: Duration) -> Result<Lead, LeadInDoubt> {
        let mut leads = self.0.subscribe();
        // The clock is asked as well: a deadline passes even if no task runs to notice it.
        let led = leads.wait_for(|lead| lead.doubt.is_none() && covered());
        match timeout(patience, led).await {
            Ok(Ok(lead)) => Ok(lead.clone()),
            _ => Err(LeadInDoubt),
        }
    }

    /// Takes up whether it may.
    pub(super) fn review(&self, covered: bool, locks: &Locks) {
        self.0.send_if_modified(|lead| {
            match (covered, &mut lead.doubt) {
                (false, None) => {
                    lead.over.cancel();
                    lead.doubt = Some(Doubt { since: Instant::now(), told: false });
                }
                (false, Some(doubt)) => {
                    if !doubt.told && doubt.since.elapsed() >= WARN_AFTER {
                        doubt.told = true;
                        tracing::warn!(
                            locks = locks.claimed_names(),
                            "the ring may have lost the real lock of the controller's election; refusing the controller's requests meanwhile"
                        );
                    }
                    return false;
                }
                (true, Some(doubt)) => {
                    if doubt.told {
                        tracing::info!(seconds = doubt.since.elapsed().as_secs(), "resumed the controller's requests");
                    }
                    *lead = Lead::default();
                }
                // Who waits asks the clock again.
                (true, None) => {}
            }
            true
        });
    }

    /// How long the controller has waited by now; zero when it may act.
    pub(super) fn doubted_for(&self) -> Duration {
        self.0.borrow().doubt.map_or(Duration::ZERO, |doubt| doubt.since.elapsed())
    }

    #[cfg(test)]
    pub(super) fn is_warned_of(&self) -> bool {
        self.0.borrow().doubt.is_some_and(|doubt| doubt.told)
    }
}
