//! Keeps the objects of one ring with the shards that they belong to: assignment and rebalancing, anew for
//! every set of available shards.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::future::select_all;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

use crate::{
    assign::{Begun, Claims, Scope, assign, writes::Writes},
    drains::Drains,
    faults::Faults,
    leader::Leader,
    namespaces::Selection,
    rebalance::{Due, Looks, Pass, look_again, passes},
    snapshot::Snapshot,
};

/// Namespaces that are relabelled together, by whoever rolls out a policy, make for one new beginning.
const RELABEL_PAUSE: Duration = Duration::from_secs(1);

/// Distributes the objects of one ring, for as long as this replica leads.
///
/// The work on a snapshot is dropped when the shards or the ring's spec change: what it was decided on has changed. The
/// writes that are under way are waited for. Nothing is lost by that: every write tests what it relies on, the new
/// watches begin with all objects that are without owner, and whose children were sent ahead is remembered. For that
/// reason it also begins anew once a period, unless a pass is still due, which would never end otherwise, and when
/// namespaces became the ring's: whatever was missed, for whatever reason, is found then.
pub(crate) async fn distribute(
    leader: Leader,
    mut latest: watch::Receiver<Arc<Snapshot>>,
    drains: Drains,
    faults: Faults,
) -> Infallible {
    let (due, writes) = (Due::default(), Writes::among(&leader.writes));
    let kept = Kept { drains, begun: Begun::default(), claims: Claims::default(), looks: Looks::default() };
    let begun = &kept.begun;
    let mut relabelled = leader.namespaces.changes();
    let mut selection = Selection::default();
    let mut period = interval_at(Instant::now() + leader.sync_period, leader.sync_period);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut previous: Option<Arc<Snapshot>> = None;
    loop {
        let late = !writes.ended().await;
        let snapshot = latest.borrow_and_update().clone();
        mark(&due, previous.as_deref(), &snapshot);
        let resources = snapshot.mains.iter().map(|main| &main.resource.id).collect();
        begun.keep_only(&resources);
        kept.claims.keep_only(&resources);
        // What can't be waited for or remembered, or is not known of a leader before, is looked for among all.
        let unknown = snapshot.distributed().any(|main| !begun.knows(&main.resource.id));
        if late || begun.overflowed() || unknown {
            mark_all(&due, &snapshot);
        }
        if previous.as_deref().is_none_or(|previous| !previous.distributes_the_same(&snapshot)) {
            // Everything is looked through now.
            selection = leader.namespaces.selection(&snapshot.namespaces);
        }
        let mut anew: Option<Instant> = None;
        let mut work = std::pin::pin!(work_on(&leader, &snapshot, &kept, (&writes, &faults), &due));
        loop {
            tokio::select! {
                never = &mut work => match never {},
                changed = latest.changed() => {
                    if changed.is_err() {
                        // The ring is gone: whoever started this is about to stop it.
                        std::future::pending::<()>().await;
                    }
                    let new = latest.borrow_and_update().clone();
                    let same = new.distributes_the_same(&snapshot) && new.is_as_patient(&snapshot);
                    if !(same && new.among_the_same(&snapshot)) {
                        break;
                    }
                }
                _ = period.tick() => if due.is_empty() {
                    anew = Some(Instant::now());
                },
                // The sender lives in `leader`.
                _ = relabelled.changed() => {
                    let now = leader.namespaces.selection(&snapshot.namespaces);
                    if now.gains_over(&selection) {
                        anew = anew.or_else(|| Some(Instant::now() + RELABEL_PAUSE));
                    }
                    selection = now;
                }
                () = sleep_until(anew.unwrap_or_else(Instant::now)), if anew.is_some() => {
                    mark_all(&due, &snapshot);
                    break;
                }
            }
        }
        previous = Some(snapshot.clone());
    }
}

/// The passes that a change makes necessary. When shards only went, the watch on unowned objects finds
/// theirs: no object of another shard moves then.
fn mark(due: &Due, previous: Option<&Snapshot>, snapshot: &Snapshot) {
    match previous {
        Some(previous) if previous.distributes_the_same(snapshot) => {
            if snapshot.adds_to(previous) {
                due.mark(snapshot.mains.iter().map(|main| main.resource.id.clone()), &[Pass::Objects]);
            }
        }
        _ => mark_all(due, snapshot),
    }
}

fn mark_all(due: &Due, snapshot: &Snapshot) {
    due.mark(snapshot.mains.iter().map(|main| main.resource.id.clone()), &[Pass::Objects, Pass::Children]);
}

/// What is remembered beyond the work on one snapshot.
struct Kept {
    drains: Drains,
    begun: Begun,
    claims: Claims,
    looks: Looks,
}

/// Works until it is dropped.
async fn work_on(
    leader: &Leader,
    snapshot: &Arc<Snapshot>,
    kept: &Kept,
    (writes, faults): (&Writes, &Faults),
    due: &Due,
) -> Infallible {
    if snapshot.distributed().next().is_none() || snapshot.hash_ring.shards().is_empty() {
        // Nothing to distribute, or nobody to distribute to: objects stay as they are.
        faults.clear();
        return std::future::pending().await;
    }
    let resources = snapshot.distributed().map(|main| {
        let scope = Scope {
            client: leader.client.clone(),
            watches: leader.watches.clone(),
            snapshot: snapshot.clone(),
            main: main.clone(),
            leases: leader.leases.clone(),
            namespaces: leader.namespaces.clone(),
            drains: kept.drains.clone(),
            fences: leader.fences.clone(),
            notices: leader.notices.clone(),
            begun: kept.begun.clone(),
            claims: kept.claims.clone(),
            looks: kept.looks.clone(),
            writes: writes.clone(),
            faults: faults.clone(),
            metrics: leader.metrics.clone(),
        };
        Box::pin(async move {
            tokio::select! {
                never = assign(&scope) => never,
                never = passes(&scope, due) => never,
                never = look_again(&scope) => never,
            }
        })
    });
    select_all(resources).await.0
}

#[cfg(test)]
mod tests;
