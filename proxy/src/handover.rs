//! Lets go of objects that the sharder drains, once the controller can't be working on them any more.
//!
//! The proxy watches the metadata of `<shard>=<me>,<drain>` for each main resource of the ring: memory grows with
//! the moves under way, not with the objects. Of DESIGN, "Handover", this does rule 1, of rule 2 the part (a)
//! for open watches and lists in flight and the time of part (c), and rule 3. Not there yet: the fence on late
//! writes and requests in flight (2 b), reads by name (4), old views that come back (5), `DELETED` for clients
//! that miss one (6), chains of `continue`, asking whether a watch could show the object at all, and asking for
//! bookmarks: a watch whose client wants none and that nothing happens on holds a drain. After a restart of the
//! proxy or a gap in its Lease, the views of before are not known: an acknowledgement then rests on the grace alone.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use kube::Client;
use ringside_ring::{RingLabels, RingName, ShardName, cluster_ring::GroupResource};
use ringside_runtime::admin::Check;
use tokio::sync::{Semaphore, watch};

use crate::{policy::Knowledge, views::Views};

mod acknowledge;
mod drain;
mod drains;
mod follow;
mod followed;
#[cfg(test)]
mod tests;

pub use drains::Drains;
use followed::Followed;

/// Acknowledgements sent at a time: a scale-out drains thousands of objects at once, and the API server's
/// fairness gives one client few seats.
const CONCURRENT: usize = 16;
/// A drain that takes longer than this is reported, and writes of others hold none for longer: by then any
/// reconcile that answers at all has ended.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often those are looked for.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What letting go needs.
#[derive(Clone, Debug)]
pub struct Handover {
    /// The shard that lets go.
    pub shard: ShardName,
    /// Its ring's labels.
    pub labels: RingLabels,
    /// What the controller can still see.
    pub views: Views,
    /// The drains under way.
    pub drains: Drains,
    /// How long an object rests before it is let go.
    pub grace: Duration,
    seats: Arc<Semaphore>,
    followed: Followed,
}

impl Handover {
    /// For a shard of a ring. `check` passes while the drained objects of all main resources are followed.
    pub fn new(ring: &RingName, shard: ShardName, views: Views, drains: Drains, grace: Duration, check: Check) -> Self {
        let (seats, followed) = (Arc::new(Semaphore::new(CONCURRENT)), Followed::new(check));
        Self { labels: RingLabels::of(ring), shard, views, drains, grace, seats, followed }
    }

    /// Lets go of what is drained, for as long as it is polled; the ring's main resources may change meanwhile.
    pub async fn run(&self, client: Client, mut knowledge: watch::Receiver<Knowledge>) {
        loop {
            let main = main_resources(&knowledge.borrow_and_update());
            self.followed.expect(&main);
            let follow = |resource: &GroupResource| follow::follow(self, client.clone(), resource.clone());
            let work = join_all(main.iter().map(follow));
            let changed = async { knowledge.wait_for(|now| main_resources(now) != main).await.is_ok() };
            tokio::select! {
                _ = work, if !main.is_empty() => {}
                // What was under way begins anew: the drains are still there on the objects.
                changed = changed => if !changed { return std::future::pending().await },
                () = self.report() => {}
            }
        }
    }

    async fn report(&self) {
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            self.drains.report(tokio::time::Instant::now(), DEADLINE);
        }
    }
}

fn main_resources(knowledge: &Knowledge) -> Vec<GroupResource> {
    match knowledge {
        Knowledge::Known(policy) => policy.main.iter().cloned().collect(),
        Knowledge::Unknown(_) => Vec::new(),
    }
}
