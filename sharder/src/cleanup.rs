//! Takes a ring that is gone off the cluster: the labels of its objects ([`labels`]), and what else was made for it
//! ([`belongings`]).
//!
//! Labels come off what is of the ring ([`scope`]): copies on other controllers' objects stay, and what they come from is named
//! ([`templates`]).
//!
//! The leader does so when it sees a ring go ([`departed`]), and the command `cleanup` when no leader was there to see it. A
//! ring has no finalizer that would wait for that: it could not be deleted any more in a cluster without sharder. No shard
//! works without its ring, so no owner is asked: a proxy whose ring is gone refuses everything.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use ringside_ring::{RingLabels, RingName, cluster_ring::GroupResource, decide::Action};
use ringside_runtime::explain::explain;
use tokio::time::sleep;

pub(crate) mod belongings;
pub(crate) mod departed;
mod labels;
pub(crate) mod lease;
mod scope;
pub(crate) mod templates;

#[cfg(test)]
pub(crate) use labels::PARALLEL;
use labels::write_all;
pub(crate) use labels::{change, list};
pub(crate) use scope::Scope;

use crate::{pauses::Pauses, resources::Resource, target::Target, writes::Writes};

/// How long the labels of a ring may still be set after it has gone. A review of the webhook may have begun before
/// (2 s). A write of the sharder may be under way (2 s). A policy puts labels back until the API servers know that it
/// is gone (about 1 s).
pub(crate) const SETTLED: Duration = Duration::from_secs(5);
/// What is cleaned up.
pub(crate) struct Cleanup {
    pub(crate) client: Client,
    pub(crate) ring: RingName,
    /// The writes that are under way.
    pub(crate) writes: Writes,
    /// How many attempts in a row may achieve nothing before it is given up.
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
    /// How many keep them as copies, by the kind of their controller, which is not of the ring.
    pub(crate) copies: BTreeMap<String, usize>,
    /// Why some kept them, or may have.
    pub(crate) fault: Option<String>,
}

impl Tally {
    /// Whether nothing is left to do.
    pub(crate) fn is_clean(&self) -> bool {
        self.left == 0 && self.fault.is_none() && self.copies.is_empty()
    }

    /// Counts what was listed of a resource; returns what is in the scope.
    pub(crate) fn take_in(&mut self, (resource, scope): (&Resource, &Scope), listed: Vec<Target>) -> Vec<Target> {
        self.found += listed.len();
        let (own, copies): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|object| scope.includes(&resource.id, object));
        for controller in copies.into_iter().flat_map(|object| object.owners) {
            *self.copies.entry(controller.kind).or_default() += 1;
        }
        own
    }
}

/// What became of the objects of each resource.
pub(crate) type Tallies = BTreeMap<GroupResource, Tally>;

impl Cleanup {
    /// Takes the labels off all objects of these resources that the scope includes, in this order.
    ///
    /// # Guarantees
    /// Each object that [`SETTLED`] later has labels is looked at once, and none that comes after that: so it ends, whatever
    /// others make meanwhile. Only what fails is tried again.
    pub(crate) async fn take_labels_off(&self, resources: &[Arc<Resource>], scope: &Scope) -> Tallies {
        let labels = RingLabels::of(&self.ring);
        sleep(SETTLED).await;
        let mut tallies = Tallies::new();
        let mut open: Vec<(&Arc<Resource>, Option<Vec<Target>>)> = resources.iter().map(|one| (one, None)).collect();
        let (mut pauses, mut fruitless) = (Pauses::new(), 0);
        loop {
            for (resource, objects) in open.iter_mut().filter(|(_, objects)| objects.is_none()) {
                let tally = tallies.entry(resource.id.clone()).or_default();
                let listed = list(&self.client, &labels, resource).await;
                tally.fault = listed.as_ref().err().map(explain);
                *objects = listed.ok().map(|listed| tally.take_in((resource, scope), listed));
            }
            let mut taken = 0;
            for (resource, objects) in &mut open {
                let Some(objects) = objects else { continue };
                let next = |object: &Target| match scope.includes(&resource.id, object) {
                    true => Action::Release,
                    false => Action::Keep,
                };
                let at = (&self.client, &***resource);
                let written = write_all(&self.writes, at, &labels, std::mem::take(objects), &next).await;
                let tally = tallies.entry(resource.id.clone()).or_default();
                taken += written.taken;
                tally.taken += written.taken;
                (tally.left, tally.fault) = (written.failed.len(), written.fault);
                *objects = written.failed;
            }
            open.retain(|(_, objects)| objects.as_ref().is_none_or(|failed| !failed.is_empty()));
            fruitless = if taken == 0 { fruitless + 1 } else { 0 };
            if open.is_empty() || fruitless >= self.attempts {
                return tallies;
            }
            pauses.next().await;
        }
    }
}

#[cfg(test)]
mod tests;
