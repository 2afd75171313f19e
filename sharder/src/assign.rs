//! Gives objects that no available shard owns to the shard that they belong to, children first.
//!
//! A watch ([`watch`]) finds them; batches of them are planned ([`plan`]) and written ([`batch`], [`children`]) by one
//! worker ([`worker`]) a resource; children are known by then where that can be ([`foresight`]). What shards don't let go of in
//! time comes the same way ([`overdue`]), and what is let go of because it left the ring ([`withdraw`]). What was begun is
//! remembered beyond that ([`begun`]) and looked at again ([`revisit`]).

use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::Client;
use parking_lot::Mutex;
use ringside_ring::{
    ShardName,
    decide::{self, Action, Covered, Drain, Family, View, decide},
};
use tokio::{sync::mpsc, time::sleep};

mod batch;
mod begun;
mod carried;
pub(crate) mod children;
pub(crate) mod failures;
mod foresight;
mod overdue;
mod plan;
mod retries;
mod revisit;
mod tasks;
mod watch;
mod withdraw;
mod worker;
pub(crate) mod write;
pub(crate) mod writes;

#[cfg(test)]
pub(crate) use self::batch::process;
pub(crate) use self::{
    begun::Begun,
    carried::Carried,
    foresight::Foresight,
    plan::Sought,
    retries::{RefusedObjects, Retries},
    withdraw::withdraw,
};
use self::{foresight::look_ahead, overdue::overdue, revisit::revisit, watch::feed, worker::work, writes::Writes};
use crate::{
    census::Census,
    drains::Drains,
    faults::Faults,
    fence::Fences,
    leases::Leases,
    metrics::Metrics,
    namespaces::Namespaces,
    notices::Notices,
    probe::Verdicts,
    queue::{limiter::MAX_PERMITS, moves::Moves},
    rebalance::{Due, Looks},
    resources::Object,
    snapshot::{Main, Snapshot},
    target::Target,
};

/// Objects in one batch: enough that listing the children once for all of them is cheap, few enough that
/// the first ones don't wait long for the last.
pub(crate) const BATCH: usize = 500;
/// Objects read or written at once. The limit of concurrent writes of all rings is the narrower bound ([`crate::queue::limiter`]).
pub(crate) const PARALLEL: usize = MAX_PERMITS;

/// What the work on one resource of one ring needs to know. Valid for one snapshot.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) newest: Newest,
    pub(crate) main: Main,
    pub(crate) leases: Leases,
    pub(crate) namespaces: Namespaces,
    pub(crate) drains: Drains,
    pub(crate) moves: Moves,
    pub(crate) census: Census,
    pub(crate) fences: Fences,
    pub(crate) notices: Notices,
    pub(crate) begun: Begun,
    pub(crate) foresight: Foresight,
    pub(crate) carried: Carried,
    pub(crate) looks: Looks,
    pub(crate) due: Due,
    /// Whether the API server asks the webhook about the ring.
    pub(crate) reach: Verdicts,
    pub(crate) writes: Writes,
    pub(crate) faults: Faults,
    pub(crate) metrics: Metrics,
}

/// The newest snapshot of a ring, where it differs from the one that is worked on by nothing but who of the shards may
/// receive objects, and how long they are waited for: the work goes on. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Newest(Arc<Mutex<Option<Arc<Snapshot>>>>);

impl Newest {
    /// It is this one; none: the one that is worked on.
    pub(crate) fn set(&self, snapshot: Option<Arc<Snapshot>>) {
        *self.0.lock() = snapshot;
    }
}

impl Scope {
    /// A write to the object failed: it is tried again after a pause, whatever is shown of it.
    fn failed(&self, target: &Target, error: &kube::Error) {
        self.carried.retries(&self.main.resource.id).failed(target, error);
    }

    fn newest(&self) -> Arc<Snapshot> {
        self.newest.0.lock().as_ref().unwrap_or(&self.snapshot).clone()
    }

    /// An object, as far as it matters in this ring.
    pub(crate) fn target(&self, object: &Object) -> Target {
        Target::of(&object.metadata, &self.snapshot.labels)
    }

    /// What is to be done with a main object next.
    pub(crate) fn decide(&self, target: &Target, covered: Covered) -> Action<ShardName> {
        let newest = self.newest();
        let object = self.as_object(target, covered, &newest.view);
        decide(&object, Family::default(), &newest.view).named(&newest.view)
    }

    /// The shard that the children of a main object belong to; none while it moves, which takes them along.
    pub(crate) fn shard_for_children(&self, owner: &Target) -> Option<ShardName> {
        let newest = self.newest();
        let object = self.as_object(owner, Covered::InRing, &newest.view);
        match decide(&object, Family { is_apart: true }, &newest.view).named(&newest.view) {
            Action::Gather { to } => Some(to),
            _ => None,
        }
    }

    /// Whether a main object is with the shard that the hash ring names.
    pub(crate) fn is_home(&self, target: &Target) -> bool {
        let key = self.main.resource.key(target.namespace.as_deref(), &target.name);
        let newest = self.newest();
        newest.hash_ring().owner(&key).map(ShardName::as_str) == target.shard.as_deref()
    }

    fn as_object(&self, target: &Target, covered: Covered, view: &View) -> decide::Object {
        let key = self.main.resource.key(target.namespace.as_deref(), &target.name).point();
        let holder = view.holder(target.shard.as_deref());
        decide::Object { key, holder, drain: self.drain_of(target, covered), covered }
    }

    /// How far the drain of an object is. Outside the ring the API server's fence does not stand.
    fn drain_of(&self, target: &Target, covered: Covered) -> Option<Drain> {
        let id = target.drain.as_ref()?;
        let Some(shard) = &target.shard else { return Some(Drain::InTime) };
        let resources = self.main.controlled.iter().chain([&self.main.resource]).map(|resource| &resource.id);
        let fenced = covered == Covered::InRing
            && self.snapshot.spec.asks_for_fence()
            && self.fences.holds(&self.snapshot, resources, shard);
        Some(Drain::after(self.drains.age(&target.uid, id), self.drain_deadline(), fenced))
    }

    /// How long a shard may take to let go of an object, as the ring says now.
    fn drain_deadline(&self) -> Duration {
        self.newest().spec.drain_deadline()
    }

    /// Whether the sharder holds the Lease of the object's shard, which is gone.
    pub(crate) fn may_take(&self, target: &Target) -> bool {
        target.shard.as_deref().is_some_and(|shard| self.writes.hold().is_some_and(|hold| hold.is_of(shard)))
    }

    /// The available shard that works on a main object, or is about to let go of it.
    pub(crate) fn shard_of(&self, target: &Target) -> Option<ShardName> {
        let shard = target.shard.as_deref().filter(|shard| self.snapshot.members.is_available(shard))?;
        shard.parse().ok()
    }

    /// How long the shard of an object may still be working although it has no Lease.
    pub(crate) fn unknown_for(&self, target: &Target) -> Duration {
        let unknown = |shard: &String| self.leases.unknown_for(&self.snapshot.ring, shard);
        target.shard.as_ref().map(unknown).unwrap_or_default()
    }

    /// Whether the object lies in a namespace of the ring.
    pub(crate) async fn selects(&self, target: &Target) -> Result<bool, kube::Error> {
        self.namespaces.selects(&self.snapshot.namespaces, target.namespace.as_deref()).await
    }
}

/// The way to a worker. Bounded: a full queue slows the watch and the passes down, so memory does not
/// grow with the objects (a dead shard may leave any number of them behind).
pub(crate) type Queue = mpsc::Sender<Target>;

/// A queue with room for what comes while a worker is busy for a moment.
pub(crate) fn queue() -> (Queue, mpsc::Receiver<Target>) {
    mpsc::channel(BATCH / 4)
}

/// Finds unowned objects and gives them owners, and finds the children of owners that stay after all. Begins anew, with
/// all of them, when some could not be kept in mind.
pub(crate) async fn assign(scope: &Scope) -> Infallible {
    let mut went_back = scope.leases.went_back();
    loop {
        let (sender, receiver) = queue();
        let feeding = async {
            tokio::join!(revisit(scope, &sender), overdue(scope, &sender), look_ahead(scope), feed(scope, &sender)).3
        };
        tokio::select! {
            never = feeding => match never {},
            () = work(scope, receiver) => {}
            // Its watch would show nothing, and versions that are remembered are none any more.
            _ = went_back.changed() => drop(scope.carried.take_watch(&scope.main.resource)),
        }
        // What was dropped with its writes under way is read next.
        sleep(writes::PATIENCE).await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
