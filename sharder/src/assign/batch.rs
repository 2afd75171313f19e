//! One batch of unowned objects: children first, then their owners.

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
    let writes = stream::iter(go).map(|one| give(scope, one)).buffer_unordered(PARALLEL_WRITES);
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

/// Returns whether the object was written to, or the object when that failed.
async fn give(scope: &Scope, one: Move) -> Result<bool, Target> {
    let Move { target, .. } = one;
    let labels = &scope.snapshot.labels;
    let api = scope.main.resource.objects(&scope.client, target.namespace.as_deref());
    let decide = |target: &Target| match scope.next_step(target) {
        Step::Assign { to } | Step::Move { to } => Some(assign(labels, target, &to)),
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
