//! Keeps the objects of one ring with the shards that they belong to: assignment and rebalancing, anew for
//! every set of available shards.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::future::select_all;
use ringside_ring::cluster_ring::GroupResource;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::{
    assign::{Begun, Carried, Foresight, Newest, Scope, assign, writes::Writes},
    census::Census,
    drains::Drains,
    faults::{Faults, Task},
    leader::Leader,
    namespaces::Selection,
    pauses::at,
    queue::moves::Moves,
    rebalance::{Due, Looks, Pass, look_again, look_for_unlabelled, passes, recount},
    snapshot::Snapshot,
};

/// Namespaces that are relabelled together, by whoever rolls out a policy, make for one new beginning.
const RELABEL_PAUSE: Duration = Duration::from_secs(1);
/// How long after something left the ring the webhook may still be labelling it: a review that began before takes 5 s at
/// most, and an API server learns of a namespace's labels, or of the configuration, within a second or so.
const SETTLED: Duration = Duration::from_secs(7);

/// Distributes the objects of one ring, for as long as this replica leads.
///
/// The work on a snapshot is dropped when the shards change, or which objects are given to them: what it was decided on
/// has changed. To begin anew costs reads and lists of all that is in hand: so it goes on where the ring only waits longer
/// for its shards, or less long, or names what is not served. The writes that are under way are waited for. Nothing is lost
/// by that: every write tests what it relies on, the new watches begin with all objects that are without owner, and whose
/// children were sent ahead is remembered. For that reason it also begins anew once a period, unless a pass is still due,
/// which would never end otherwise: then the resources of which none is due are looked through. And it begins anew when
/// namespaces became the ring's or cease to be: whatever was missed, for whatever reason, is found then.
pub(crate) async fn distribute(
    leader: Leader,
    mut latest: watch::Receiver<Arc<Snapshot>>,
    (drains, census): (Drains, Census),
    faults: Faults,
) -> Infallible {
    let (due, writes) = (Due::default(), Writes::among(&leader.writes));
    let kept = Kept::with(drains, census);
    let mut relabelled = leader.namespaces.changes();
    let mut occasions = Occasions::default();
    let mut period = interval_at(Instant::now() + leader.sync_period, leader.sync_period);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut previous: Option<Arc<Snapshot>> = None;
    loop {
        let late = !writes.ended().await;
        let snapshot = latest.borrow_and_update().clone();
        mark(&due, previous.as_deref(), &snapshot);
        // What can't be waited for or remembered, or is not known of a leader before, is looked for among all.
        if !kept.fits(&snapshot, &due) || late {
            mark_all(&due, &snapshot);
        }
        if previous.as_deref().is_none_or(|previous| !previous.distributes_the_same(&snapshot)) {
            occasions.changed(leader.namespaces.selection(&snapshot.namespaces), previous.is_some());
        }
        occasions.anew = None;
        previous = Some(snapshot.clone());
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
                    let same = new.distributes_the_same(&snapshot) && new.fences_alike(&snapshot);
                    if !(same && new.among_the_same(&snapshot)) {
                        break;
                    }
                    // Shards that are late, or ready again; or how long they are waited for.
                    mark(&due, previous.as_deref(), &new);
                    kept.newest.set(Some(new.clone()));
                    previous = Some(new);
                }
                // What waits for its fence is not looked through before that: it holds up nothing else.
                _ = period.tick() => {
                    let done = |resource: &&GroupResource| due.is_done(std::iter::once(*resource));
                    let (done, busy): (Vec<_>, Vec<_>) =
                        snapshot.distributed().map(|main| &main.resource.id).partition(done);
                    if busy.is_empty() {
                        occasions.anew = Some(Instant::now());
                    } else {
                        // One that always fails keeps the others from nothing but their new beginning.
                        due.mark(done.into_iter().cloned(), &[Pass::Objects, Pass::Children]);
                    }
                }
                // The sender lives in `leader`.
                _ = relabelled.changed() => occasions.relabelled(leader.namespaces.selection(&snapshot.namespaces)),
                () = at(occasions.anew) => {
                    mark_all(&due, &snapshot);
                    break;
                }
                () = at(occasions.afterwards) => {
                    occasions.afterwards = None;
                    mark_all(&due, &snapshot);
                }
            }
        }
    }
}

/// When all objects are to be looked through, because what belongs to the ring has changed.
#[derive(Default)]
struct Occasions {
    selection: Selection,
    /// With a new beginning.
    anew: Option<Instant>,
    /// For labels that were given in the moment in which something left the ring.
    afterwards: Option<Instant>,
}

impl Occasions {
    /// The ring is another one, and all objects are looked through at once.
    fn changed(&mut self, selection: Selection, before: bool) {
        self.selection = selection;
        self.afterwards = before.then(|| Instant::now() + SETTLED);
    }

    /// Namespaces have changed.
    fn relabelled(&mut self, selection: Selection) {
        let (gains, loses) = (selection.gains_over(&self.selection), selection.loses_from(&self.selection));
        if gains || loses {
            self.anew = self.anew.or_else(|| Some(Instant::now() + RELABEL_PAUSE));
        }
        if loses {
            self.afterwards = Some(Instant::now() + SETTLED);
        }
        self.selection = selection;
    }
}

/// The passes that a change makes necessary. When shards only went, the watch on unowned objects finds
/// theirs: no object of another shard moves then, but for those that stayed where they were until it was known whether a
/// shard is gone. A ring without shards has no such watch.
fn mark(due: &Due, previous: Option<&Snapshot>, snapshot: &Snapshot) {
    match previous {
        Some(previous) if previous.distributes_the_same(snapshot) && previous.is_vacant() == snapshot.is_vacant() => {
            let decided = previous.is_decided_by(snapshot) && due.take_held_back();
            if decided || snapshot.takes_from_those_of(previous) {
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
    moves: Moves,
    census: Census,
    newest: Newest,
    begun: Begun,
    foresight: Foresight,
    carried: Carried,
    looks: Looks,
}

impl Kept {
    fn with(drains: Drains, census: Census) -> Self {
        Self {
            drains,
            moves: Moves::default(),
            census,
            newest: Newest::default(),
            begun: Begun::default(),
            foresight: Foresight::default(),
            carried: Carried::default(),
            looks: Looks::default(),
        }
    }

    /// Forgets what is not for this snapshot; returns whether what is left is all that there was.
    fn fits(&self, snapshot: &Snapshot, due: &Due) -> bool {
        self.newest.set(None);
        let resources = snapshot.mains.iter().map(|main| &main.resource.id).collect();
        due.keep_only(&resources);
        self.drains.keep_only(&resources);
        self.census.keep_only(&resources, &snapshot.spec.families());
        self.begun.keep_only(&resources);
        self.foresight.keep_only(&resources);
        self.carried.keep_only(&resources);
        self.looks.keep_only(&resources);
        let known = snapshot.distributed().all(|main| self.begun.knows(&main.resource.id));
        !self.begun.overflowed() && known
    }
}

/// Works until it is dropped.
async fn work_on(
    leader: &Leader,
    snapshot: &Arc<Snapshot>,
    kept: &Kept,
    (writes, faults): (&Writes, &Faults),
    due: &Due,
) -> Infallible {
    if snapshot.distributed().next().is_none() {
        faults.clear();
        return std::future::pending().await;
    }
    let is_vacant = snapshot.is_vacant();
    let resources = snapshot.distributed().map(|main| {
        let scope = Scope {
            client: leader.client.clone(),
            watches: leader.watches.clone(),
            snapshot: snapshot.clone(),
            newest: kept.newest.clone(),
            main: main.clone(),
            leases: leader.leases.clone(),
            namespaces: leader.namespaces.clone(),
            drains: kept.drains.clone(),
            moves: kept.moves.clone(),
            census: kept.census.clone(),
            fences: leader.fences.clone(),
            notices: leader.notices.clone(),
            begun: kept.begun.clone(),
            foresight: kept.foresight.clone(),
            carried: kept.carried.clone(),
            looks: kept.looks.clone(),
            due: due.clone(),
            reach: leader.reach.clone(),
            writes: writes.clone(),
            faults: faults.clone(),
            metrics: leader.metrics.clone(),
        };
        Box::pin(async move {
            // Nobody to distribute to: what is the ring's stays as it is.
            for task in [Task::Watch, Task::Assign].into_iter().filter(|_| is_vacant) {
                scope.faults.works(&scope.main.resource.id, task);
            }
            tokio::select! {
                never = assign(&scope), if !is_vacant => never,
                never = passes(&scope) => never,
                never = look_again(&scope) => never,
                never = recount(&scope) => never,
                never = look_for_unlabelled(&scope), if !is_vacant => never,
            }
        })
    });
    select_all(resources).await.0
}

#[cfg(test)]
mod tests;
