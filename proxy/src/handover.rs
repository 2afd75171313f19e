//! Lets go of objects that the sharder drains, once the controller can't be working on them any more.
//!
//! The proxy watches the metadata of `<shard>=<me>,<drain>` for each main resource of the ring: memory grows with
//! the moves under way, not with the objects. Of DESIGN, "Handover", these are the rules 1 to 3: wait until no view of the
//! controller can show the object (`settle`) and it rests, then acknowledge. After a restart of the proxy
//! there are no views of before: the connections that carried them are gone too. Over a gap in the Lease they are remembered as
//! views that ended are.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use kube::Client;
use ringside_ring::{RingLabels, RingName, ShardName, cluster_ring::GroupResource};
use ringside_runtime::admin::Check;
use tokio::sync::{Semaphore, watch};

use crate::{fence::Fence, policy::Knowledge, views::Views};

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
use tell::Teller;

/// Acknowledgements sent at a time: a scale-out drains thousands of objects at once, and the API server's
/// fairness gives one client few seats.
const CONCURRENT: usize = 16;
/// How often drains are looked for that take too long.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What letting go needs.
#[derive(Clone, Debug)]
pub struct Handover {
    /// The shard that lets go.
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
    /// How long an object rests before it is let go.
    pub grace: Duration,
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
        Self { ring: ring.clone(), labels: RingLabels::of(ring), shard, views, fence, drains, grace, seats, followed }
    }

    /// Lets go of what is drained, for as long as it is polled; the ring's main resources may change meanwhile.
    pub async fn run(&self, client: Client, mut knowledge: watch::Receiver<Knowledge>) {
        loop {
            let main = main_resources(&knowledge.borrow_and_update());
            let now = knowledge.clone();
            self.followed.expect(&main);
            let follow = |resource: &GroupResource| follow::follow(self, client.clone(), resource.clone());
            let work = join_all(main.iter().map(follow));
            let changed = async { knowledge.wait_for(|now| main_resources(now) != main).await.is_ok() };
            tokio::select! {
                _ = work, if !main.is_empty() => {}
                // What was under way begins anew: the drains are still there on the objects.
                changed = changed => if !changed { return std::future::pending().await },
                () = self.report(client.clone(), &now) => {}
            }
        }
    }

    async fn report(&self, client: Client, knowledge: &watch::Receiver<Knowledge>) {
        let mut teller = Teller::new(client, self.ring.clone(), &self.shard);
        loop {
            if let Knowledge::Known(policy) = &*knowledge.borrow() {
                self.drains.set_deadline(policy.drain_deadline);
            }
            tokio::time::sleep(REPORT_EVERY).await;
            teller.tell(self.drains.report(tokio::time::Instant::now())).await;
        }
    }
}

fn main_resources(knowledge: &Knowledge) -> Vec<GroupResource> {
    match knowledge {
        Knowledge::Known(policy) => policy.main.iter().cloned().collect(),
        Knowledge::Unknown(_) => Vec::new(),
    }
}
