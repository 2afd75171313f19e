//! The pass over the objects of a main resource.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, SystemTime},
};

use futures::{StreamExt, TryStreamExt, stream::FuturesUnordered};
use ringside_ring::{
    Grace,
    decide::{Action, Covered},
    patch,
};
use tokio::time::Instant;

use crate::{
    assign::{
        Scope,
        failures::Failures,
        write::{Outcome, is_refused, write},
    },
    move_id::{self, move_id},
    queue::limiter::Priority,
    survey::{Way, survey},
    target::Target,
};
use ringside_runtime::explain::code;

/// Objects drained between two looks at all of them: memory must not grow with the objects.
pub(super) const DRAINS: usize = 2_000;

/// So many refusals, and the pass asks nobody any more: it could not tell all of them from what it has not asked for yet.
/// Somebody refuses everything then; what is left waits for the next pass, as what was refused does.
pub(super) const REFUSALS: usize = 2 * DRAINS;

/// Looks at every object, and drains those that belong to another shard, or to the ring no longer; returns the first
/// refusal. It drains when it has looked, as the API server does not wait for one who takes what it streams slowly.
///
/// Those without owner are left to the watch: it began with all of them, and the worker would meet each twice.
pub(super) async fn pass(scope: &Scope, way: Way) -> Result<Option<kube::Error>, kube::Error> {
    let (resource, start) = (&scope.main.resource.id, Instant::now());
    let (mut drained, mut refused, mut failures) = (0_usize, HashSet::new(), Failures::default());
    scope.moves.begin(&scope.drains);
    let (seen, draining) = loop {
        let Look { seen, mut drains, draining, whole } = look(scope, way, &refused).await?;
        let (mut count, mut under_way) = (0, FuturesUnordered::new());
        loop {
            let promised = drains.front().and_then(|(shard, ..)| scope.leases.grace(&scope.snapshot.ring, shard));
            let grace = promised.map_or(Duration::ZERO, Grace::duration);
            let place = scope.moves.place(&scope.drains, grace, under_way.len());
            tokio::select! {
                // What was begun counts as a move before there is a place for the next.
                biased;
                Some((uid, outcome)) = under_way.next() => match outcome {
                    Ok(done) => count += usize::from(done),
                    // It must not hold up the others.
                    Err(error) if code(&error).is_some() => {
                        failures.add(error);
                        refused.insert(uid);
                    }
                    Err(error) => return Err(error),
                },
                () = place, if !drains.is_empty() => {
                    under_way.extend(drains.pop_front().map(|next| ask(scope, next, promised)));
                }
                else => break,
            }
        }
        drained += count;
        if whole {
            break (seen, draining + count);
        }
    };
    let refused = failures.tell(&scope.snapshot.ring, resource, "can't drain objects");
    scope.drains.forget_unseen_since(resource, start, draining);
    let (ring, took) = (&scope.snapshot.ring, start.elapsed());
    tracing::info!(%ring, %resource, objects = seen, drained, ?took, "finished object scan");
    Ok(refused)
}

/// What was seen of the objects.
struct Look {
    seen: usize,
    /// What is to be drained, by its shard.
    drains: VecDeque<(String, Target, Why)>,
    /// What was drained before.
    draining: usize,
    /// Whether that is all.
    whole: bool,
}

/// Looks until it has found enough to drain, besides what was `refused`.
async fn look(scope: &Scope, way: Way, refused: &HashSet<String>) -> Result<Look, kube::Error> {
    let resource = &scope.main.resource.id;
    let may_ask = refused.len() < REFUSALS;
    let whereabouts_unknown = !scope.main.controlled.is_empty() && !scope.begun.knows(resource);
    let mut look = Look { seen: 0, drains: VecDeque::new(), draining: 0, whole: true };
    let objects = scope.main.resource.objects(&scope.watches, None);
    let mut targets = survey(objects, scope.snapshot.labels.clone(), way).await?;
    let mut count = scope.census.pass(resource);
    while let Some(target) = targets.try_next().await? {
        let why = if scope.selects(&target).await? { Why::Move } else { Why::Withdraw };
        if why == Why::Move {
            look.seen += 1;
            count.count(&scope.snapshot.members, target.shard.as_deref());
        }
        let next = scope.decide(&target, why.covered());
        if why == Why::Move && whereabouts_unknown && !matches!(next, Action::Keep | Action::Stay) {
            // It will be moved, and where a leader before may have sent its children by then is not known.
            scope.begun.scatter(resource, &target);
        }
        if why == Why::Move && matches!(next, Action::Keep | Action::Stay) && !scope.is_home(&target) {
            count.away(&target.uid);
        }
        if next == Action::Stay {
            scope.due.hold_back();
        }
        match (&target.shard, &target.drain) {
            (Some(shard), None)
                if may_ask && matches!(next, Action::Drain { .. }) && !refused.contains(&target.uid) =>
            {
                look.drains.push_back((shard.clone(), target, why));
            }
            (Some(shard), Some(id)) if scope.shard_of(&target).is_some() => {
                scope.drains.remember(resource, &target, shard, id);
                look.draining += 1;
            }
            _ => {}
        }
        if look.drains.len() == DRAINS {
            look.whole = false;
            break;
        }
    }
    if look.whole {
        count.end();
    }
    Ok(look)
}

/// Why a shard is asked to let go of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It belongs to another shard.
    Move,
    /// Its namespace is not the ring's any more.
    Withdraw,
}

impl Why {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Move => "belongs to another shard",
            Self::Withdraw => "left the ring",
        }
    }

    /// Whether the shard is to be asked now.
    fn asks(self, scope: &Scope, target: &Target) -> bool {
        matches!(scope.decide(target, self.covered()), Action::Drain { .. })
    }

    const fn covered(self) -> Covered {
        match self {
            Self::Move => Covered::InRing,
            Self::Withdraw => Covered::Leaving,
        }
    }
}

/// Asks the shard to let go; returns the object's uid, and whether that was needed.
async fn ask(
    scope: &Scope,
    (shard, target, why): (String, Target, Why),
    promised: Option<Grace>,
) -> (String, Result<bool, kube::Error>) {
    (target.uid.clone(), drain(scope, (target, shard, why), promised).await)
}

/// Asks the shard to let go; returns whether that was needed.
async fn drain(
    scope: &Scope,
    (target, shard, why): (Target, String, Why),
    promised: Option<Grace>,
) -> Result<bool, kube::Error> {
    let labels = &scope.snapshot.labels;
    let id = Grace::drain_value(&move_id(SystemTime::now()), promised);
    let decide = |target: &Target| {
        let from = target.shard.as_deref().filter(|_| why.asks(scope, target))?;
        Some(patch::drain(labels, &target.uid, from, &id))
    };
    // Remembered before it is asked: the acknowledgement may come at once.
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let asking = scope.drains.asking(resource, &target, &shard, &id);
    let (namespace, name, uid) = (target.namespace.clone(), target.name.clone(), target.uid.clone());
    let (writes, start) = (scope.writes.with_priority(Priority::Rebalance), Instant::now());
    match write(&writes, (&scope.client, &scope.main.resource), labels, target, decide).await {
        Ok(Outcome::Written { on: target, .. }) => {
            asking.answered();
            scope.moves.written(resource, start.elapsed());
            scope.metrics.moves_limit(ring, scope.moves.bound());
            scope.metrics.drained(ring, resource);
            let (id, reason) = (move_id::short(&id), why.as_str());
            tracing::info!(%ring, %resource, namespace, name, uid, from = target.shard, id, reason, "drained object");
            Ok(true)
        }
        Ok(outcome) => {
            asking.answered();
            asked_to_no_avail(scope, &uid, &outcome);
            // The shard that it belongs to may be late since it was looked at.
            if let Outcome::Needless(target) = outcome
                && scope.decide(&target, why.covered()) == Action::Stay
            {
                scope.due.hold_back();
            }
            Ok(false)
        }
        Err(error) => {
            // One that may be carried out has its deadline.
            if is_refused(&error) {
                scope.drains.forget(&uid);
            }
            Err(error)
        }
    }
}

/// Nobody is asked any more to let go of the object, unless somebody is already: by a write of ours that had no answer, or by
/// the leader before.
fn asked_to_no_avail(scope: &Scope, uid: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Needless(now) if let (Some(shard), Some(id)) = (&now.shard, &now.drain) => {
            scope.drains.remember(&scope.main.resource.id, now, shard, id);
        }
        _ => scope.drains.forget(uid),
    }
}
