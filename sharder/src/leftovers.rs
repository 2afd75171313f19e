//! Resources that a ring names no more: the labels of their objects come off, in the order of a handover.
//!
//! A label that the sharder no longer keeps would lie about the object's shard. It would mean something again when the
//! ring names the resource again. What there may be is written into the ring's status ([`register`]), so that the next
//! leader, or one that was not there when the ring was changed, knows it too. The sharder asks shards to release, and
//! waits for them until the ring's deadline at most. A proxy narrows nothing that its ring does not name, and so has
//! nothing to release.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use kube::Client;
use ringside_ring::{
    cluster_ring::GroupResource,
    decide::{Action, Covered, Drain, Family, Object, decide},
};
use tokio::{sync::watch, time::Instant};

mod register;

pub(crate) use register::Leftovers;

use crate::{
    cleanup::{SETTLED, Scope, change},
    groups::GroupId,
    pauses::Pauses,
    queue::limiter::Priority,
    resources::{RETRY as LOOKED_UP, Resource, Unusable},
    snapshot::Snapshot,
    writes::{AllWrites, Writes},
};

/// What was not served for so long is gone: it has been looked up a few times since.
const GONE: Duration = Duration::from_secs(3 * LOOKED_UP.as_secs());

/// Takes the labels off, for as long as this replica leads.
pub(crate) async fn withdraw(
    client: Client,
    all_writes: AllWrites,
    leftovers: Leftovers,
    mut latest: watch::Receiver<Arc<Snapshot>>,
) -> Infallible {
    let mut work = Work {
        client,
        writes: Writes::among(&all_writes).with_priority(Priority::Repair),
        latest: latest.clone(),
        known: BTreeMap::new(),
        since: BTreeMap::new(),
        missing: BTreeMap::new(),
    };
    let mut pauses = Pauses::new();
    let mut previous: Option<Arc<Snapshot>> = None;
    loop {
        let snapshot = latest.borrow_and_update().clone();
        work.learn(&snapshot);
        let open = leftovers.take_in(&snapshot);
        if previous.as_deref().is_none_or(|previous| !previous.asks_the_same(&snapshot)) {
            // It may have named them again in between. A shard that began to narrow them then has its full time.
            work.since.clear();
            work.missing.clear();
        }
        previous = Some(snapshot.clone());
        if open.is_empty() {
            work.known.retain(|name, _| snapshot.named.contains(name));
            pauses = Pauses::new();
            if latest.changed().await.is_err() {
                // The ring is gone: the caller is about to stop this.
                std::future::pending::<()>().await;
            }
            continue;
        }
        for name in open {
            if !leftovers.is_next(&snapshot, &name) {
                continue;
            }
            let is_clean = tokio::select! {
                biased;
                () = asked_otherwise(latest.clone(), &snapshot) => break,
                is_clean = work.is_clean(&snapshot, &leftovers, &name) => is_clean,
            };
            if !is_clean {
                continue;
            }
            tracing::info!(ring = %snapshot.ring, resource = %name, "took all labels off a resource that left the ring");
            leftovers.done(&name);
        }
        tokio::select! {
            () = pauses.next() => {}
            changed = latest.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
        }
    }
}

/// Returns once the ring asks for something else than it does in `snapshot`: it may name the resource again.
async fn asked_otherwise(mut latest: watch::Receiver<Arc<Snapshot>>, snapshot: &Snapshot) {
    // Fails when the ring is gone, and then there is nothing to go on with either.
    let _ = latest.wait_for(|latest| !latest.asks_the_same(snapshot)).await;
}

/// What the work on one ring's leftovers knows.
struct Work {
    client: Client,
    writes: Writes,
    /// How the ring is now.
    latest: watch::Receiver<Arc<Snapshot>>,
    /// The resources that the ring has named since this began, or since all were clean, as they were served. What is clean may control
    /// what is not.
    known: BTreeMap<GroupResource, Arc<Resource>>,
    /// Since when each is worked on without a break.
    since: BTreeMap<GroupResource, Instant>,
    /// Since when each is not served.
    missing: BTreeMap<GroupResource, Instant>,
}

impl Work {
    fn learn(&mut self, snapshot: &Snapshot) {
        let named = snapshot.mains.iter().flat_map(|main| main.controlled.iter().chain([&main.resource]));
        let departing = snapshot.departing.values().filter_map(|resource| resource.as_ref().ok());
        self.known.extend(named.chain(departing).map(|resource| (resource.id.clone(), resource.clone())));
    }

    /// Does what can be done now; returns whether no object of the resource has labels any more, nor gets any.
    async fn is_clean(&mut self, snapshot: &Snapshot, leftovers: &Leftovers, name: &GroupResource) -> bool {
        if snapshot.spec.paused {
            // No deadline runs meanwhile: nothing was asked for.
            self.since.remove(name);
            return false;
        }
        let now = Instant::now();
        let departing = snapshot.departing.get(name);
        if matches!(departing, Some(Err(Unusable::NotServed))) {
            // Its objects are gone with it, unless it is served again soon.
            self.since.remove(name);
            return now - *self.missing.entry(name.clone()).or_insert(now) >= GONE;
        }
        self.missing.remove(name);
        let resource = match departing {
            Some(Ok(resource)) => resource,
            Some(Err(_)) => {
                self.since.remove(name);
                return false;
            }
            None => match self.known.get(name) {
                Some(resource) => resource,
                // It is being looked up.
                None => return false,
            },
        };
        let waited = now - *self.since.entry(name.clone()).or_insert(now);
        let is_main = leftovers.is_main(name);
        let drain = Drain::after(waited, snapshot.spec.drain_deadline(), true);
        let scope = Scope {
            resources: self.known.values().cloned().collect(),
            roots: is_main.then(|| name.clone()).into_iter().collect(),
            ..Scope::default()
        };
        let at = (&self.client, &**resource);
        let pass = change(&self.writes, at, &snapshot.labels, &scope, |target| {
            // Every write is decided on the ring and on the shards of that moment.
            let latest = self.latest.borrow();
            match latest.asks_the_same(snapshot) {
                false => Action::Keep,
                true if is_main => {
                    let ownership = target.ownership();
                    let object = Object {
                        // It belongs nowhere.
                        key: 0,
                        holder: latest.holder(ownership.shard),
                        drain: ownership.drain.map(|_| drain),
                        covered: Covered::Leaving,
                    };
                    let view = latest.view(GroupId::default());
                    decide(&object, Family::default(), view).named(view)
                }
                // What follows an owner is never drained by itself.
                true => Action::Release,
            }
        });
        let pass = pass.await;
        if let Some(fault) = &pass.fault {
            tracing::warn!(ring = %snapshot.ring, resource = %name, fault, "can't take labels off a resource that left the ring; trying again");
        }
        pass.found == 0 && pass.is_clean() && waited >= SETTLED
    }
}

#[cfg(test)]
mod tests;
