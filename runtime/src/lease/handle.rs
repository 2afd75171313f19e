//! What the holder of a Lease knows about its hold.

use std::{collections::BTreeMap, sync::Arc};

use ringside_ring::Moment;
use tokio::sync::{Notify, watch};

use crate::clock::{SharedClock, sleep_until};

/// The keeper's latest news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseStatus {
    /// Until when the Lease is surely ours; `None` when it is not.
    pub(super) valid_until: Option<Moment>,
    /// Why it is not, for people.
    pub(super) reason: Option<String>,
    /// The annotations of the Lease as the keeper read it last: others write some of them.
    pub(super) annotations: Arc<BTreeMap<String, String>>,
}

/// Whether the Lease is held, at any time: the clock is asked, not only the last news.
#[derive(Clone)]
pub struct LeaseHandle {
    latest: watch::Receiver<LeaseStatus>,
    clock: SharedClock,
    looks: Arc<Notify>,
}

impl std::fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseHandle").field("latest", &self.latest.borrow()).finish_non_exhaustive()
    }
}

impl LeaseHandle {
    pub(super) fn new(latest: watch::Receiver<LeaseStatus>, clock: SharedClock, looks: Arc<Notify>) -> Self {
        Self { latest, clock, looks }
    }

    /// A handle whose validity a test or a tool sets by hand.
    pub fn manual(clock: SharedClock) -> (ManualHandle, Self) {
        let (news, latest) = watch::channel(LeaseStatus::default());
        (ManualHandle(news), Self::new(latest, clock, Arc::default()))
    }

    /// Returns the value of an annotation of the Lease, as the keeper read it last: with each renewal, and by
    /// [`Self::look`]. A renewal is sent only after what it is written over was shown here.
    pub fn annotation(&self, key: &str) -> Option<String> {
        self.latest.borrow().annotations.get(key).cloned()
    }

    /// Asks the keeper to read the Lease before its next renewal.
    pub fn look(&self) {
        self.looks.notify_one();
    }

    /// Returns once anything about the Lease may have changed.
    pub async fn changed(&mut self) {
        if self.latest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Until when the Lease is surely held, if it is.
    pub fn valid_until(&self) -> Option<Moment> {
        self.latest.borrow().valid_until.filter(|until| self.clock.now() < *until)
    }

    /// Whether the Lease is held now.
    pub fn held(&self) -> bool {
        self.valid_until().is_some()
    }

    /// Why the Lease is not held, for people; `None` while nothing is known yet.
    pub fn reason(&self) -> Option<String> {
        self.latest.borrow().reason.clone()
    }

    /// Returns once the Lease is held; never when it can't be any more.
    pub async fn until_held(&self) {
        let mut latest = self.latest.clone();
        while !self.held() {
            if latest.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns once the Lease is not held: lost, released, or run out.
    pub async fn until_lost(&self) {
        let mut latest = self.latest.clone();
        // Marks the value as seen before it is judged: no change in between goes unnoticed.
        latest.mark_unchanged();
        while let Some(until) = self.valid_until() {
            tokio::select! {
                changed = latest.changed() => {
                    if changed.is_err() {
                        sleep_until(&*self.clock, until).await;
                    }
                }
                () = sleep_until(&*self.clock, until) => {}
            }
        }
    }
}

/// Sets the validity of a [`LeaseHandle::manual`].
#[derive(Debug)]
pub struct ManualHandle(watch::Sender<LeaseStatus>);

impl ManualHandle {
    /// Held until `until`, or not held.
    pub fn set(&self, valid_until: Option<Moment>) {
        self.0.send_modify(|standing| (standing.valid_until, standing.reason) = (valid_until, None));
    }

    /// The Lease has these annotations.
    pub fn annotate<const N: usize>(&self, annotations: [(&str, &str); N]) {
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.0.send_modify(|standing| standing.annotations = Arc::new(annotations.into()));
    }
}
