//! Takes a ring that is gone off the cluster: the labels of its objects ([`labels`]), and what else was made for it
//! ([`belongings`]).
//!
//! The leader does so when it sees a ring go ([`departed`]), and the command `cleanup` when no leader was there to see it. A
//! ring has no finalizer that would wait for that: it could not be deleted any more in a cluster without sharder. No shard
//! works without its ring, so no owner is asked: a proxy whose ring is gone refuses everything.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use ringside_ring::{RingLabels, RingName, cluster_ring::GroupResource};
use tokio::time::{Instant, sleep};

pub(crate) mod belongings;
pub(crate) mod departed;
mod labels;

pub(crate) use labels::{change, count};

use crate::{assign::writes::Writes, pauses::Pauses, resources::Resource};

/// How long after a ring has gone somebody may still be setting its labels. The longest of these: a review of the webhook
/// that began before (5 s), a write of the sharder's that was under way (2 s), a policy that puts labels back until the API
/// servers have learned that it is gone (about 1 s).
pub(crate) const SETTLED: Duration = Duration::from_secs(5);
/// The pause between two passes that both find something to do.
const PAUSE: Duration = Duration::from_secs(1);

/// What is cleaned up.
pub(crate) struct Cleanup {
    pub(crate) client: Client,
    pub(crate) ring: RingName,
    /// The writes that are under way.
    pub(crate) writes: Writes,
    /// How many passes in a row may achieve nothing before it is given up.
    pub(crate) attempts: usize,
}

/// What became of the objects of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many were found with labels.
    pub(crate) found: usize,
    /// From how many the labels were taken off.
    pub(crate) taken: usize,
    /// How many kept them.
    pub(crate) left: usize,
    /// Why some kept them, or may have.
    pub(crate) fault: Option<String>,
}

impl Tally {
    /// Whether nothing is left to do.
    pub(crate) fn is_clean(&self) -> bool {
        self.left == 0 && self.fault.is_none()
    }
}

/// What became of the objects of each resource.
pub(crate) type Tallies = BTreeMap<GroupResource, Tally>;

impl Cleanup {
    /// Takes the labels off all objects of these resources, in this order, and again until none has any, or nothing helps.
    pub(crate) async fn take_labels_off(&self, resources: &[Arc<Resource>]) -> Tallies {
        let labels = RingLabels::of(&self.ring);
        let (start, mut tallies) = (Instant::now(), Tallies::new());
        let (mut pauses, mut fruitless) = (Pauses::new(), 0);
        loop {
            let (mut taken, mut clean) = (0, true);
            for resource in resources {
                let pass = labels::take_off(&self.client, &self.writes, &labels, resource).await;
                (taken, clean) = (taken + pass.taken, clean && pass.is_clean());
                let before = tallies.remove(&resource.id).unwrap_or_default();
                let all = Tally { found: before.found + pass.found, taken: before.taken + pass.taken, ..pass };
                tallies.insert(resource.id.clone(), all);
            }
            if clean && taken == 0 && start.elapsed() >= SETTLED {
                return tallies;
            }
            if clean || taken > 0 {
                (pauses, fruitless) = (Pauses::new(), 0);
                sleep(PAUSE).await;
                continue;
            }
            fruitless += 1;
            if fruitless == self.attempts {
                return tallies;
            }
            pauses.next().await;
        }
    }
}

#[cfg(test)]
mod tests;
