//! Gives objects that no available shard owns to the shard that they belong to, children first.
//!
//! A watch ([`watch`]) finds them; batches of them are planned ([`plan`]) and written ([`batch`], [`children`]) by one
//! worker ([`worker`]) a resource. What shards don't let go of in time comes the same way ([`overdue`]). What was begun is remembered beyond that ([`begun`]) and looked at again ([`revisit`]).

use std::{convert::Infallible, sync::Arc};

use kube::Client;
use ringside_ring::{
    ShardName,
    cluster_ring::Fence,
    handover::{Patience, Step, next_step},
};
use tokio::sync::mpsc;

mod batch;
mod begun;
pub(crate) mod children;
mod claims;
pub(crate) mod failures;
mod overdue;
mod plan;
mod revisit;
mod watch;
mod worker;
pub(crate) mod write;
pub(crate) mod writes;

#[cfg(test)]
pub(crate) use self::batch::process;
pub(crate) use self::{begun::Begun, claims::Claims};
use self::{overdue::overdue, revisit::revisit, watch::feed, worker::work, writes::Writes};
use crate::{
    drains::Drains,
    faults::Faults,
    fence::Fences,
    leases::Leases,
    metrics::Metrics,
    namespaces::Namespaces,
    notices::Notices,
    rebalance::Looks,
    snapshot::{Main, Snapshot},
    target::Target,
};

/// Objects in one batch: enough that listing the children once for all of them is cheap, few enough that
/// the first ones don't wait long for the last.
pub(crate) const BATCH: usize = 500;
/// Objects looked at or written to at once; how many writes are under way is bounded for the whole ring.
pub(crate) const PARALLEL: usize = 16;

/// What the work on one resource of one ring needs to know. Valid for one snapshot.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) main: Main,
    pub(crate) leases: Leases,
    pub(crate) namespaces: Namespaces,
    pub(crate) drains: Drains,
    pub(crate) fences: Fences,
    pub(crate) notices: Notices,
    pub(crate) begun: Begun,
    pub(crate) claims: Claims,
    pub(crate) looks: Looks,
    pub(crate) writes: Writes,
    pub(crate) faults: Faults,
    pub(crate) metrics: Metrics,
}

impl Scope {
    /// What is to be done with a main object next.
    pub(crate) fn next_step(&self, target: &Target) -> Step {
        let key = self.main.resource.key(target.namespace.as_deref(), &target.name);
        let Snapshot { members, hash_ring, .. } = &*self.snapshot;
        if let Some(to) = hash_ring.owner(&key).filter(|_| self.shard_of(target).is_some() && self.claims.has(target)) {
            return Step::Assign { to: to.clone() };
        }
        next_step(target.ownership(), self.patience(target), &key, members, hash_ring)
    }

    /// How long the shard of a drained object is waited for.
    fn patience(&self, target: &Target) -> Patience {
        let (Some(shard), Some(id)) = (&target.shard, &target.drain) else { return Patience::Left };
        let spec = &self.snapshot.spec;
        let resources = self.main.controlled.iter().chain([&self.main.resource]).map(|resource| &resource.id);
        let fenced = spec.fence == Fence::ApiServer && self.fences.holds(&self.snapshot.ring, resources, shard);
        Patience::after(self.drains.age(&target.uid, id), spec.drain_deadline(), fenced)
    }

    /// The available shard that works on a main object, or is about to let go of it.
    pub(crate) fn shard_of(&self, target: &Target) -> Option<ShardName> {
        let shard = target.shard.as_deref().filter(|shard| self.snapshot.members.is_available(shard))?;
        shard.parse().ok()
    }

    /// Whether the object lies in a namespace of the ring.
    pub(crate) async fn selects(&self, target: &Target) -> Result<bool, kube::Error> {
        self.namespaces.selects(&self.snapshot.namespaces, target.namespace.as_deref()).await
    }
}

/// The way to a worker. Bounded: a full queue slows the watch and the passes down, so memory does not
/// grow with the objects (a dead shard may leave any number of them behind).
pub(crate) type Queue = mpsc::Sender<Target>;

/// A queue with room for a few batches.
pub(crate) fn queue() -> (Queue, mpsc::Receiver<Target>) {
    mpsc::channel(2 * BATCH)
}

/// Finds unowned objects and gives them owners, and finds the children of owners that stay after all. Begins anew, with
/// all of them, when some could not be kept in mind.
pub(crate) async fn assign(scope: &Scope) -> Infallible {
    loop {
        let (sender, receiver) = queue();
        let feeding = async { tokio::join!(revisit(scope, &sender), overdue(scope, &sender), feed(scope, &sender)).2 };
        tokio::select! {
            never = feeding => match never {},
            () = work(scope, receiver) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
