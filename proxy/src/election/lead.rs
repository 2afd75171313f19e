//! Whether the controller may act by the elections that it was told to lead by.
//!
//! An elector leads until its renewals have failed for a while, which is shorter than its lock lasts. If the ring could not
//! renew the real lock meanwhile, or somebody else has it, one who elects past the proxies may lead as well. So from when that
//! may be until the controller can't believe any more that it leads, nothing is done for it but what is asked about the locks
//! themselves: by these it finds out.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

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
    state: State,
}

/// What is known of the locks that the controller may believe to lead by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The ring held them when it was looked last, or it was not looked yet.
    #[default]
    Held,
    /// In this term of the shard Lease no look has succeeded yet.
    Unknown(Instant),
    /// The ring may have lost one.
    Doubted(Instant),
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
        f.debug_struct("Lead").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The lead of now.
#[derive(Clone, Debug, Default)]
pub(super) struct Leads {
    lead: watch::Sender<Lead>,
    /// Whether the locks were covered once since the term of the shard Lease began.
    known: Arc<AtomicBool>,
}

/// How long the first looks of a term may take before it is warned of.
const WARN_AFTER: Duration = Duration::from_secs(4);

impl Leads {
    /// Waits for up to `patience` until the controller may act.
    ///
    /// # Errors
    /// When it may not by then.
    pub(super) async fn pass(&self, covered: impl Fn() -> bool, patience: Duration) -> Result<Lead, LeadInDoubt> {
        let mut leads = self.lead.subscribe();
        // The clock is asked as well: a time runs out whether or not anybody runs to notice.
        let led = leads.wait_for(|lead| lead.state == State::Held && covered());
        match timeout(patience, led).await {
            Ok(Ok(lead)) => Ok(lead.clone()),
            _ => Err(LeadInDoubt),
        }
    }

    /// Takes up whether it may.
    pub(super) fn review(&self, covered: bool, locks: &Locks) {
        let was_known = self.known.fetch_or(covered, Ordering::Relaxed);
        let doubt = |lead: &mut Lead, since| {
            lead.state = State::Doubted(since);
            tracing::warn!(
                locks = locks.believed_names(),
                "the ring may have lost the real lock of the controller's election; refusing the controller's requests meanwhile"
            );
        };
        self.lead.send_if_modified(|lead| {
            match (covered, lead.state) {
                (false, State::Held) => {
                    lead.over.cancel();
                    if was_known {
                        doubt(lead, Instant::now());
                    } else {
                        lead.state = State::Unknown(Instant::now());
                    }
                }
                (false, State::Unknown(since)) if since.elapsed() >= WARN_AFTER => doubt(lead, since),
                (true, State::Unknown(_)) => *lead = Lead::default(),
                (true, State::Doubted(since)) => {
                    tracing::info!(seconds = since.elapsed().as_secs(), "resumed the controller's requests");
                    *lead = Lead::default();
                }
                // Who waits asks the clock again.
                (true, State::Held) => {}
                (false, _) => return false,
            }
            true
        });
    }

    /// How long the controller has waited by now; zero when it may act.
    pub(super) fn doubted_for(&self) -> Duration {
        match self.lead.borrow().state {
            State::Held => Duration::ZERO,
            State::Unknown(since) | State::Doubted(since) => since.elapsed(),
        }
    }

    /// Another term of the shard Lease begins, and the locks have to be looked at.
    pub(super) fn knows_nothing(&self) {
        self.known.store(false, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn is_doubted(&self) -> bool {
        matches!(self.lead.borrow().state, State::Doubted(_))
    }
}
