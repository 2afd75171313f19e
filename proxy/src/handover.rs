//! Releases objects that the sharder drains, once the controller can't be working on them any more.
//!
//! The proxy watches the metadata of `<shard>=<me>,<drain>` for each main resource of the ring: memory grows with
//! the moves under way, not with the objects. Of DESIGN, "Handover", these are the rules 1 to 3: wait until no view of the
//! controller can show the object (`settle`) and it rests, then acknowledge. After a restart of the proxy
//! there are no views of before: the connections that carried them are gone too. Over a gap in the Lease they are remembered as
//! views that ended are.
//!
//! At an orderly end, the shard releases what is drained before it releases the Lease: else it would wait for the grace
//! of the next instance, which may be there before the sharder sees the Lease without holder. Who has ended is at work
//! on nothing; but nothing may have been carried out for the grace, as the sharder's look at children relies on that,
//! so it counts from the last write.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use kube::Client;
use ringside_ring::{RingLabels, RingName, ShardName, cluster_ring::GroupResource};
use ringside_runtime::admin::Check;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use crate::{fence::Fence, membership::LeaseTerm, policy::RingState, views::Views};

mod acknowledge;
mod ask;
mod drain;
mod drains;
mod follow;
mod followed;
mod settle;
mod tell;
#[cfg(test)]
mod tests;

pub use drains::Drains;
use followed::Followed;
use tell::EventRecorder;

/// Acknowledgements sent at a time: a scale-out drains thousands of objects at once, and the API server's
/// fairness gives one client few seats.
const CONCURRENT: usize = 16;
/// How long the end waits for what is drained: beyond the last grace, and at most, as a part of
/// [`crate::serve::ENDS_WITHIN`]. The next instance, or the sharder, sees to what is left.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
const FINISHES_WITHIN: Duration = Duration::from_secs(3);
/// How often drains are looked for that take too long.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What a shard needs to release drained objects.
#[derive(Clone, Debug)]
pub struct Handover {
    /// The shard that releases.
    pub shard: ShardName,
    /// Its ring.
    pub ring: RingName,
    /// The ring's labels.
    pub labels: RingLabels,
    /// What the controller can still see.
    pub views: Views,
    /// The drains under way.
    pub drains: Drains,
    /// What the controller may not write any more, and what it is writing.
    pub fence: Fence,
    /// How long an object rests before the shard releases it.
    pub grace: Duration,
    /// The number of the hold on the Lease.
    pub term: u64,
    seats: Arc<Semaphore>,
    followed: Followed,
}

impl Handover {
    /// For a shard of a ring. `check` passes while the drained objects of all main resources are followed.
    pub fn new(
        ring: &RingName,
        shard: ShardName,
        views: Views,
        fence: Fence,
        drains: Drains,
        grace: Duration,
        check: Check,
    ) -> Self {
        let (seats, followed) = (Arc::new(Semaphore::new(CONCURRENT)), Followed::new(check));
        let (ring, labels, term) = (ring.clone(), RingLabels::of(ring), 0);
        Self { ring, labels, shard, views, fence, drains, grace, term, seats, followed }
    }

    /// Returns a copy bound to this hold on the Lease.
    #[must_use]
    pub fn during(&self, term: &LeaseTerm) -> Self {
        Self { term: term.number, ..self.clone() }
    }

    /// Waits until all that is drained is released, or until that would take too long. The controller has ended, and
    /// nothing of it is under way but what the fence knows of. The shard's other objects wait for the release of the
    /// Lease.
    pub async fn finish(&self) {
        self.views.end();
        let (now, last) = (Instant::now(), self.fence.ends());
        let (rested, latest) = (last.unwrap_or(now) + self.grace, now + FINISHES_WITHIN);
        let until = (rested.max(now) + ANSWERS_WITHIN).min(latest);
        // Of a longer grace nothing would be over by then.
        if rested > latest || timeout_at(until, self.drains.none()).await.is_err() {
            let (drained, _) = self.drains.all(now);
            tracing::info!(drained, "the Lease is released before all that is drained was released");
        }
    }

    /// Releases what is drained, for as long as it is polled; the ring's main resources may change meanwhile.
    pub async fn run(&self, client: Client, mut knowledge: watch::Receiver<RingState>) {
        loop {
            let main = main_resources(&knowledge.borrow_and_update());
            let now = knowledge.clone();
            self.followed.expect(&main);
            let follow = |resource: &GroupResource| follow::follow(self, client.clone(), resource.clone());
            let work = join_all(main.iter().map(follow));
            let changed = async { knowledge.wait_for(|now| main_resources(now) != main).await.is_ok() };
            tokio::select! {
                _ = work, if !main.is_empty() => {}
                // What was under way begins again: the objects still have their drain labels.
                changed = changed => if !changed { return std::future::pending().await },
                () = self.report(client.clone(), &now) => {}
            }
        }
    }

    async fn report(&self, client: Client, knowledge: &watch::Receiver<RingState>) {
        let mut teller = EventRecorder::new(client, self.ring.clone(), &self.shard);
        loop {
            if let RingState::Known(policy) = &*knowledge.borrow() {
                self.drains.set_deadline(policy.drain_deadline);
            }
            tokio::time::sleep(REPORT_EVERY).await;
            teller.tell(self.drains.report(tokio::time::Instant::now())).await;
        }
    }
}

fn main_resources(knowledge: &RingState) -> Vec<GroupResource> {
    match knowledge {
        RingState::Known(policy) => policy.families.keys().cloned().collect(),
        RingState::Unknown(_) => Vec::new(),
    }
}
