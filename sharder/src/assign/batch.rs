//! One batch of unowned objects: children first, then their owners.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use ringside_ring::handover::Step;

use super::{
    PARALLEL_WRITES, Scope,
    children::move_children,
    plan::{Move, moves},
    write::{Outcome, assign, write},
};
use crate::target::Target;
use ringside_runtime::explain::explain;

/// Gives every object of the batch that needs one an owner; returns those that must be tried again.
pub(crate) async fn process(scope: &Scope, batch: Vec<Target>) -> Vec<Target> {
    let (batch, mut again) = selected(scope, batch).await;
    let moves = moves(batch, |target| scope.next_step(target), |uid| scope.drains.previous(uid));
    let (moves, absent, unsure) = confirmed(scope, moves).await;
    again.extend(unsure);
    if moves.is_empty() {
        return again;
    }
    let failed = match move_children(scope, &moves).await {
        Ok(failed) => failed,
        Err(error) => {
            let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
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
    report(scope, &outcomes);
    again.extend(outcomes.into_iter().filter_map(Result::err));
    again
}

/// The objects in namespaces of the ring, and those where that can't be told at the moment.
async fn selected(scope: &Scope, batch: Vec<Target>) -> (Vec<Target>, Vec<Target>) {
    let (mut selected, mut unknown) = (Vec::with_capacity(batch.len()), Vec::new());
    for target in batch {
        match scope.selects(&target).await {
            Ok(true) => selected.push(target),
            Ok(false) => {}
            Err(error) => {
                let namespace = target.namespace.as_deref();
                tracing::warn!(namespace, error = %explain(&error), "can't read a namespace; its objects wait");
                unknown.push(target);
            }
        }
    }
    (selected, unknown)
}

/// The moves that may be carried out, the shards that are confirmed to be absent, and the objects where that can't be
/// told at the moment.
///
/// A move asks nobody, so the API server is asked whether the shard is really not there: once for each shard
/// of the batch. If it is there after all, a new snapshot is on its way.
async fn confirmed(scope: &Scope, moves: Vec<Move>) -> (Vec<Move>, BTreeSet<String>, Vec<Target>) {
    let ring = &scope.snapshot.ring;
    let from: BTreeSet<String> = moves.iter().filter_map(|one| one.target.shard.clone()).collect();
    let (mut absent, mut unsure) = (BTreeSet::new(), BTreeSet::new());
    for shard in from {
        match scope.leases.confirm(&scope.client, ring, &shard).await {
            Ok(false) => {
                absent.insert(shard);
            }
            Ok(true) => {}
            Err(error) => {
                tracing::warn!(%ring, shard, error = %explain(&error), "can't read the Lease of a shard; its objects wait");
                unsure.insert(shard);
            }
        }
    }
    let is_in =
        |shards: &BTreeSet<String>, one: &Move| one.target.shard.as_ref().is_some_and(|from| shards.contains(from));
    let (wait, moves): (Vec<_>, Vec<_>) = moves.into_iter().partition(|one| is_in(&unsure, one));
    let moves = moves.into_iter().filter(|one| one.target.shard.is_none() || is_in(&absent, one)).collect();
    (moves, absent, wait.into_iter().map(|one| one.target).collect())
}

/// Returns whether the object was written to, or the object when that failed.
async fn give(scope: &Scope, one: Move, absent: &BTreeSet<String>) -> Result<bool, Target> {
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
        Err(error) => {
            let (namespace, name, uid) = (target.namespace.as_deref(), &target.name, &target.uid);
            let error = explain(&error);
            tracing::warn!(%ring, %resource, namespace, name, uid, error, "can't assign an object; trying again");
            Err(target)
        }
    }
}

fn report(scope: &Scope, outcomes: &[Result<bool, Target>]) {
    let count = |wanted: bool| outcomes.iter().filter(|outcome| matches!(outcome, Ok(done) if *done == wanted)).count();
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let (assigned, failed) = (count(true), outcomes.len() - count(true) - count(false));
    if assigned + failed > 0 {
        tracing::info!(%ring, %resource, assigned, failed, "gave objects to shards");
    }
}

#[cfg(test)]
mod tests;
