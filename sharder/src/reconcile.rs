//! Distributes the objects of a ring: what the index shows is decided, and what is not as it should be is written.
//!
//! Events, timers and changes of the shards only put objects into a queue; the tasks of the queue alone write to them. A
//! change of the shards restarts nothing: everything is decided again, by one search on the hash ring for each object.
//!
//! | file | what it does |
//! | --- | --- |
//! | `ring` | what the work on one ring shares |
//! | `judge` | what is next for an object, and which queue it goes into |
//! | `family` | carries that out for one root |
//! | `first_pass` | whether the objects of a resource that has joined are labelled |
//! | `children` | the children of a root, before it |
//! | `rebalance` | asks shards to release objects, as many at once as may move |
//! | `takeover` | objects of shards that are gone, until their Leases are held |
//! | `strays` | labels on what follows no object of the ring |
//! | `unlabelled` | children that no watch shows |
//! | `review` | objects without a shard that no watch has shown |
//! | `spaces` | which namespaces are the ring's |
//! | `known` | counts, for the status and metrics |
//! | `told` | logs, metrics and what is refused |

use std::{convert::Infallible, sync::Arc};

use futures::{StreamExt, stream};
use tokio::sync::watch;

use crate::{faults::Faults, queue::work::Queue, snapshot::Snapshot, writes::Writes};

mod children;
mod family;
mod first_pass;
mod judge;
mod kinds;
mod known;
mod rebalance;
mod review;
mod ring;
mod spaces;
mod strays;
mod takeover;
mod told;
mod unlabelled;

use self::ring::Ring;
pub(crate) use self::{kinds::kinds_of, ring::Tools};
#[cfg(test)]
pub(crate) use known::Counts;
pub(crate) use known::{Distribution, Known};

/// Families of a resource that are worked on at once.
const PARALLEL: usize = 64;

/// Distributes the objects of one ring, for as long as this replica leads.
pub(crate) async fn distribute(
    tools: &Tools,
    writes: &Writes,
    latest: &mut watch::Receiver<Arc<Snapshot>>,
    known: &Known,
    faults: &Faults,
) -> Infallible {
    loop {
        let snapshot = latest.borrow_and_update().clone();
        faults.clear();
        let ring = Arc::new(Ring::new(tools, &snapshot, writes, known, faults));
        known.follow(Some(ring.clone()));
        tokio::select! {
            never = work(&ring) => match never {},
            () = follow(&ring, latest, &snapshot) => {}
        }
        // What is read next is not older than they are.
        writes.ended().await;
    }
}

/// Works until it is dropped.
async fn work(ring: &Ring) -> Infallible {
    let of_resource = |(resource, queue)| async move {
        let works = stream::unfold(queue, |queue: &Queue| async move { Some((queue.next().await, queue)) });
        works.for_each_concurrent(PARALLEL, |work| family::work_on(ring, resource, work)).await;
    };
    let families = async {
        futures::future::join_all(ring.judge.queues().map(of_resource)).await;
        // No queue has an end.
        std::future::pending().await
    };
    tokio::select! {
        never = families => never,
        never = rebalance::rebalance(ring) => never,
        never = spaces::follow(ring) => never,
        never = takeover::follow(ring) => never,
        never = ring.told.tell(ring) => never,
        never = unlabelled::look(ring) => never,
        never = review::review(ring) => never,
        never = watch_by_reach(ring) => never,
    }
}

/// Has children without label watched while the API server does not ask the webhook.
async fn watch_by_reach(ring: &Ring) -> Infallible {
    let mut reach = ring.tools.reach.subscribe();
    loop {
        let is_away = matches!(&*reach.borrow_and_update(), Some(Err(_)));
        ring.sources.lock().watch_all(is_away);
        // The sender lives in the ring's tools.
        let _ = reach.changed().await;
    }
}

/// Decides by the newest shards, and returns when the ring has other resources or namespaces.
async fn follow(ring: &Ring, latest: &mut watch::Receiver<Arc<Snapshot>>, begun: &Snapshot) {
    loop {
        if latest.changed().await.is_err() {
            // The ring is gone: who started this is about to stop it.
            std::future::pending::<()>().await;
        }
        let (new, before) = (latest.borrow_and_update().clone(), ring.judge.view());
        if !new.distributes_the_same(begun) || new.unresolved != begun.unresolved {
            return;
        }
        let is_alike = new.members == before.members
            && new.withheld == before.withheld
            && new.generation == before.generation
            && new.among_the_same(&before);
        ring.judge.look_from(new);
        if !is_alike {
            ring.sort(|_| true);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
