//! One batch of unowned objects: children first, then their owners.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use ringside_ring::handover::Step;

use super::{
    PARALLEL_WRITES, Scope,
    children::move_children,
    failures::Failures,
    plan::{Move, moves},
    write::{Outcome, assign, write},
};
use crate::{faults::Task, target::Target};
use ringside_runtime::explain::explain;

/// Gives every object of the batch that needs one an owner; returns those that must be tried again.
pub(crate) async fn process(scope: &Scope, batch: Vec<Target>) -> Vec<Target> {
    let (batch, mut again) = selected(scope, batch).await;
    let moves = moves(batch, |target| scope.next_step(target), |uid| scope.drains.previous(uid));
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
    let outcomes: Vec<_> = writes.collect().await;
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
            Ok(false) => {}
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
    let from: BTreeSet<String> = moves.iter().filter_map(|one| one.target.shard.clone()).collect();
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
    let may_go = |one: &Move| one.target.shard.as_ref().is_none_or(|from| absent.contains(from));
    let (go, wait): (Vec<_>, Vec<_>) = moves.into_iter().partition(may_go);
    (go, absent, wait.into_iter().map(|one| one.target).collect())
}

/// From here on the children may have been sent ahead. Where they were sent elsewhere before, nobody knows who has them.
fn begin(scope: &Scope, moves: &mut [Move]) {
    if scope.main.controlled.is_empty() {
        return;
    }
    for one in moves {
        if !scope.begun.begin(&one.target.uid, &one.to) {
            one.from = None;
        }
    }
}

/// Returns whether the object was written to, or the object when that failed.
async fn give(scope: &Scope, one: Move, absent: &BTreeSet<String>) -> Result<bool, (Target, kube::Error)> {
    let Move { target, .. } = one;
    let labels = &scope.snapshot.labels;
    let api = scope.main.resource.objects(&scope.client, target.namespace.as_deref());
    let decide = |target: &Target| match scope.next_step(target) {
        Step::Assign { to } => Some(assign(labels, target, &to)),
        // One that was labelled for somebody else meanwhile comes again by the watch.
        Step::Move { to } => {
            target.shard.as_ref().filter(|from| absent.contains(*from)).map(|_| assign(labels, target, &to))
        }
        Step::Keep | Step::AwaitAcknowledgement | Step::NoShard | Step::Drain { .. } => None,
    };
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    match write(&api, labels, target.clone(), decide).await {
        Ok(Outcome::Written(target)) => {
            scope.drains.forget(&target.uid);
            scope.begun.end(&target.uid);
            if target.shard.is_some() {
                scope.metrics.moved(ring, resource);
            } else {
                scope.metrics.assigned(ring, resource);
            }
            Ok(true)
        }
        Ok(Outcome::Needless) => {
            scope.drains.forget(&target.uid);
            Ok(false)
        }
        Err(error) => Err((target, error)),
    }
}

/// Returns the objects that could not be written to.
fn report(scope: &Scope, outcomes: Vec<Result<bool, (Target, kube::Error)>>) -> Vec<Target> {
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let (mut assigned, mut failed, mut failures) = (0_usize, Vec::new(), Failures::default());
    for outcome in outcomes {
        match outcome {
            Ok(done) => assigned += usize::from(done),
            Err((target, error)) => {
                failed.push(target);
                failures.add(error);
            }
        }
    }
    if assigned > 0 {
        tracing::info!(%ring, %resource, assigned, "gave objects to shards");
    }
    tell(scope, failures, "can't assign objects; trying again");
    failed
}

fn tell(scope: &Scope, failures: Failures, what: &'static str) {
    let resource = &scope.main.resource.id;
    if let Some(first) = failures.tell(&scope.snapshot.ring, resource, what) {
        scope.faults.failed(resource, Task::Assign, &first);
    }
}

#[cfg(test)]
mod tests;
