//! One batch of unowned objects: children first, then their owners.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use ringside_ring::handover::Step;

use super::{
    PARALLEL_WRITES, Scope,
    children::move_children,
    failures::Failures,
    overdue,
    plan::{Move, moves},
    revisit::read,
    write::{Outcome, assign, write},
};
use crate::{faults::Task, target::Target};
use ringside_runtime::explain::explain;

/// What came of an object.
#[derive(Debug, Default)]
struct Given {
    /// Whether it was written to.
    written: bool,
    /// The object as it was, when it was taken from a shard that did not let go.
    taken: Option<Box<Target>>,
    /// The object, when its children may not be where it is.
    apart: Option<Target>,
}

/// Gives every object of the batch that needs one an owner, and brings children back to those that stay with theirs;
/// returns those that must be tried again.
pub(crate) async fn process(scope: &Scope, batch: Vec<Target>) -> Vec<Target> {
    let (batch, mut again) = selected(scope, batch).await;
    let stays = |target: &Target| scope.shard_of(target).filter(|_| scope.begun.has(&target.uid));
    let moves = moves(batch, |target| scope.next_step(target), |uid| scope.drains.previous(uid), stays);
    let (mut moves, absent, wait) = confirmed(scope, moves).await;
    again.extend(wait);
    if moves.is_empty() {
        return again;
    }
    begin(scope, &mut moves);
    let failed = match move_children(scope, &moves).await {
        Ok(failed) => failed,
        Err(error) => {
            let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
            scope.faults.failed(resource, Task::Assign, &error);
            let error = explain(&error);
            tracing::warn!(%ring, %resource, objects = moves.len(), error, "can't list children; their owners wait");
            again.extend(moves.into_iter().map(|one| one.target));
            return again;
        }
    };
    let (wait, go): (Vec<_>, Vec<_>) = moves.into_iter().partition(|one| failed.contains(&one.target.uid));
    again.extend(wait.into_iter().map(|one| one.target));
    let writes = stream::iter(go).map(|one| give(scope, one, &absent)).buffer_unordered(PARALLEL_WRITES);
    let mut outcomes: Vec<_> = writes.collect().await;
    let given = outcomes.iter_mut().filter_map(|outcome| outcome.as_mut().ok());
    overdue::taken(scope, given.filter_map(|given| given.taken.take()).map(|taken| *taken).collect()).await;
    again.extend(report(scope, outcomes));
    again
}

/// The objects in namespaces of the ring, and those where that can't be told at the moment.
async fn selected(scope: &Scope, batch: Vec<Target>) -> (Vec<Target>, Vec<Target>) {
    let (mut selected, mut unknown) = (Vec::with_capacity(batch.len()), Vec::new());
    let mut failures = Failures::default();
    for target in batch {
        match scope.selects(&target).await {
            Ok(true) => selected.push(target),
            Ok(false) => {
                scope.begun.end(&target.uid, true);
            }
            Err(error) => {
                failures.add(error);
                unknown.push(target);
            }
        }
    }
    tell(scope, failures, "can't read the namespaces of objects; they wait");
    (selected, unknown)
}

/// The moves that may be carried out, the shards that are confirmed to be absent, and the objects that wait.
///
/// A move asks nobody, so the API server is asked whether the shard is really not there: once for each shard
/// of the batch. If it is there after all, a new snapshot is on its way, which ends this work.
async fn confirmed(scope: &Scope, moves: Vec<Move>) -> (Vec<Move>, BTreeSet<String>, Vec<Target>) {
    let ring = &scope.snapshot.ring;
    let leaves = |one: &Move| one.target.shard.clone().filter(|_| scope.shard_of(&one.target).is_none());
    let from: BTreeSet<String> = moves.iter().filter_map(leaves).collect();
    let mut absent = BTreeSet::new();
    for shard in from {
        match scope.leases.confirm(&scope.client, ring, &shard).await {
            Ok(false) => {
                absent.insert(shard);
            }
            Ok(true) => {}
            Err(error) => {
                scope.faults.failed(&scope.main.resource.id, Task::Assign, &error);
                tracing::warn!(%ring, shard, error = %explain(&error), "can't read the Lease of a shard; its objects wait");
            }
        }
    }
    let may_go = |one: &Move| leaves(one).is_none_or(|from| absent.contains(&from));
    let (go, wait): (Vec<_>, Vec<_>) = moves.into_iter().partition(may_go);
    (go, absent, wait.into_iter().map(|one| one.target).collect())
}

/// From here on the children may have been sent ahead. Where they were sent elsewhere before, nobody knows who has them.
fn begin(scope: &Scope, moves: &mut [Move]) {
    if scope.main.controlled.is_empty() {
        return;
    }
    for one in moves {
        if !scope.begun.begin(&scope.main.resource.id, &one.target, &one.to) {
            one.from = None;
        }
    }
}

/// Returns what came of the object, or the object when that failed.
async fn give(scope: &Scope, one: Move, absent: &BTreeSet<String>) -> Result<Given, (Target, kube::Error)> {
    let forced = matches!(scope.next_step(&one.target), Step::Force { .. });
    if scope.shard_of(&one.target).is_some() && !forced {
        return stay(scope, one).await;
    }
    let Move { target, to, from } = one;
    let labels = &scope.snapshot.labels;
    let api = scope.main.resource.objects(&scope.client, target.namespace.as_deref());
    let decide = |target: &Target| match scope.next_step(target) {
        Step::Assign { to } | Step::Force { to } => Some(assign(labels, target, &to)),
        // One that was labelled for somebody else meanwhile comes again by the watch.
        Step::Move { to } => {
            target.shard.as_ref().filter(|from| absent.contains(*from)).map(|_| assign(labels, target, &to))
        }
        Step::Keep | Step::AwaitAcknowledgement | Step::NoShard | Step::Drain { .. } => None,
    };
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let outcome = match write(&scope.writes, &api, labels, target.clone(), decide).await {
        Ok(outcome) => outcome,
        Err(error) => return Err((target, error)),
    };
    scope.drains.forget(&target.uid);
    let found = |uid: &str| scope.begun.end(uid, from.is_none());
    match outcome {
        Outcome::Written(target) => {
            let taken = (forced && target.drain.is_some()).then(|| target.clone());
            if taken.is_some() {
                scope.metrics.forced(ring, resource);
            } else if target.shard.is_some() {
                scope.metrics.moved(ring, resource);
            } else {
                scope.metrics.assigned(ring, resource);
            }
            let owner = |target: Target| Target { shard: Some(to.to_string()), drain: None, ..target };
            Ok(Given { written: true, taken, apart: (!found(&target.uid)).then(|| owner(*target)) })
        }
        Outcome::Gone => {
            scope.begun.end(&target.uid, true);
            Ok(Given::default())
        }
        Outcome::Needless(target) => {
            // Somebody else gave it a shard; one that is not available is the watch's to tell.
            let with = scope.shard_of(&target);
            let apart = with.is_some_and(|with| scope.begun.has(&target.uid) && (with != to || !found(&target.uid)));
            Ok(Given { apart: apart.then_some(*target), ..Given::default() })
        }
    }
}

/// The children have come to where the owner was seen; it may have gone on meanwhile.
async fn stay(scope: &Scope, one: Move) -> Result<Given, (Target, kube::Error)> {
    let Some(owner) = read(scope, one.target).await? else { return Ok(Given::default()) };
    let stayed = scope.shard_of(&owner).is_some_and(|shard| shard == one.to);
    let apart = !(stayed && scope.begun.end(&owner.uid, one.from.is_none()));
    Ok(Given { apart: apart.then_some(owner), ..Given::default() })
}

/// Returns the objects that must be tried again.
fn report(scope: &Scope, outcomes: Vec<Result<Given, (Target, kube::Error)>>) -> Vec<Target> {
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let (mut assigned, mut again, mut failures) = (0_usize, Vec::new(), Failures::default());
    for outcome in outcomes {
        match outcome {
            Ok(Given { written, apart, .. }) => {
                assigned += usize::from(written);
                again.extend(apart);
            }
            Err((target, error)) => {
                again.push(target);
                failures.add(error);
            }
        }
    }
    if assigned > 0 {
        tracing::info!(%ring, %resource, assigned, "gave objects to shards");
    }
    tell(scope, failures, "can't assign objects; trying again");
    again
}

fn tell(scope: &Scope, failures: Failures, what: &'static str) {
    let resource = &scope.main.resource.id;
    if let Some(first) = failures.tell(&scope.snapshot.ring, resource, what) {
        scope.faults.failed(resource, Task::Assign, &first);
    }
}

#[cfg(test)]
mod tests;
