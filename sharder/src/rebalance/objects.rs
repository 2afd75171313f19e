//! The pass over the objects of a main resource.

use futures::{StreamExt, TryStreamExt, stream};
use kube::api::ListParams;
use rand::distr::{Alphanumeric, SampleString};
use ringside_ring::{handover::Step, patch};
use tokio::time::Instant;

use crate::{
    assign::{
        BATCH, PARALLEL_WRITES, Scope,
        children::list,
        write::{Outcome, write},
    },
    target::Target,
};
use ringside_runtime::explain::{code, explain};

/// Characters of a drain label's value: no two moves share one.
const MOVE_ID_LENGTH: usize = 16;

/// Looks at every object, page by page, and drains those that belong to another shard. Memory is a page.
///
/// Those without owner are left to the watch: it began with all of them, and the worker would meet each twice.
pub(super) async fn pass(scope: &Scope) -> Result<(), kube::Error> {
    let start = Instant::now();
    let (mut seen, mut drained) = (0_usize, 0_usize);
    let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    let mut pages = std::pin::pin!(list(scope, &scope.main.resource, None, parameters));
    while let Some(page) = pages.try_next().await? {
        let mut drains = Vec::new();
        for target in page {
            if !scope.selects(&target).await? {
                continue;
            }
            seen += 1;
            match (scope.next_step(&target), target.shard.clone()) {
                (Step::Drain { .. }, Some(shard)) => drains.push((target, shard)),
                (Step::AwaitAcknowledgement, Some(shard)) => scope.drains.remember(&target.uid, &shard),
                _ => {}
            }
        }
        let writes = stream::iter(drains).map(|(target, shard)| drain(scope, target, shard));
        drained +=
            writes.buffer_unordered(PARALLEL_WRITES).try_fold(0, |sum, one| async move { Ok(sum + one) }).await?;
    }
    scope.drains.forget_unseen_since(start);
    let (ring, resource, took) = (&scope.snapshot.ring, &scope.main.resource.id, start.elapsed());
    tracing::info!(%ring, %resource, objects = seen, drained, ?took, "looked through all objects");
    Ok(())
}

/// Asks the shard to let go; returns how many objects were drained: one or none.
async fn drain(scope: &Scope, target: Target, shard: String) -> Result<usize, kube::Error> {
    let labels = &scope.snapshot.labels;
    let id = Alphanumeric.sample_string(&mut rand::rng(), MOVE_ID_LENGTH);
    let api = scope.main.resource.objects(&scope.client, target.namespace.as_deref());
    let decide = |target: &Target| match (scope.next_step(target), target.shard.as_deref()) {
        (Step::Drain { .. }, Some(from)) => Some(patch::drain(labels, &target.uid, from, &id)),
        _ => None,
    };
    // Remembered before it is asked: the acknowledgement may come at once.
    scope.drains.remember(&target.uid, &shard);
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let (namespace, name, uid) = (target.namespace.clone(), target.name.clone(), target.uid.clone());
    match write(&api, labels, target, decide).await {
        Ok(Outcome::Written(target)) => {
            scope.metrics.drained(ring, resource);
            tracing::debug!(%ring, %resource, namespace, name, uid, from = target.shard, id, "asked a shard to let go of an object");
            Ok(1)
        }
        Ok(Outcome::Needless) => {
            scope.drains.forget(&uid);
            Ok(0)
        }
        Err(error) => {
            scope.drains.forget(&uid);
            tracing::warn!(%ring, %resource, namespace, name, uid, error = %explain(&error), "can't drain an object");
            // One that the API server refuses stays with its shard until the next pass: it must not hold up the others.
            if code(&error).is_some() { Ok(0) } else { Err(error) }
        }
    }
}
