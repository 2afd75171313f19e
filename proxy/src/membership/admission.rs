//! Whether this instance is the one that may work under its shard's name.
//!
//! Objects name a shard without its namespace, so two Pods of one name in two namespaces would work on the same objects. The
//! sharder admits one of them ([`LEASE_ADMITTED`]). Beside a sharder that does not say so, by a condition of the ring, every
//! instance may work, as the contract has it.

use std::time::Duration;

use ringside_ring::labels::LEASE_ADMITTED;
use ringside_runtime::{admin::Check, lease::LeaseHandle};
use tokio::{sync::watch, time::sleep};

use crate::policy::RingState;

/// How soon the Lease is read again, at first and at last, for the sharder's answer.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Why this instance does not work.
const SHUT: &str = "the sharder has not admitted this instance: no sharder runs, or a Pod of this name in another namespace is admitted";

/// What says whether an instance may work. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) instance: String,
    pub(super) lease_handle: LeaseHandle,
    pub(super) knowledge: watch::Receiver<RingState>,
}

impl Admission {
    /// Returns whether the instance may work; none where the Lease does not say, and the ring is unknown.
    fn verdict(&self) -> Option<bool> {
        match (self.lease_handle.annotation(LEASE_ADMITTED), &*self.knowledge.borrow()) {
            (Some(admitted), _) => Some(admitted == self.instance),
            (None, RingState::Known(policy)) => Some(!policy.admits_instances),
            (None, RingState::Unknown(_)) => None,
        }
    }

    /// Whether work that has begun may go on.
    pub(super) fn lasts(&self) -> bool {
        self.verdict() != Some(false)
    }

    /// Returns once work may begin.
    pub(super) async fn until_admitted(&mut self, check: &Check) {
        let mut pause = LOOKS[0];
        while self.verdict() != Some(true) {
            // An unknown ring has a check of its own.
            match self.lasts() {
                true => check.pass(),
                false => check.fail(SHUT),
            }
            tokio::select! {
                () = self.changed() => {}
                () = sleep(pause) => {
                    self.lease_handle.look();
                    pause = (pause * 2).min(LOOKS[1]);
                }
            }
        }
        check.pass();
    }

    /// Returns once work that has begun must end.
    pub(super) async fn until_over(&mut self) {
        while self.lasts() {
            self.changed().await;
        }
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = self.lease_handle.changed() => {}
            Ok(()) = self.knowledge.changed() => {}
        }
    }
}
