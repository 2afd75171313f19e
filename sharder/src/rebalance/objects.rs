//! The pass over the objects of a main resource.

use futures::TryStreamExt;
use kube::api::ListParams;
use rand::distr::{Alphanumeric, SampleString};
use ringside_ring::{handover::Step, patch};
use tokio::time::{Instant, sleep};

use super::write_all;
use crate::{
    assign::{
        BATCH, Scope,
        children::list,
        write::{Outcome, write},
    },
    target::Target,
};

/// Characters of a drain label's value: no two moves share one.
const MOVE_ID_LENGTH: usize = 16;
/// How many times as long as a drain the writes take that follow from it, several of them at a time.
const FOLLOWING: u32 = 2;

/// Looks at every object, page by page, and drains those that belong to another shard; returns the first refusal.
/// Memory is a page.
///
/// Those without owner are left to the watch: it began with all of them, and the worker would meet each twice.
pub(super) async fn pass(scope: &Scope) -> Result<Option<kube::Error>, kube::Error> {
    let start = Instant::now();
    let resource = &scope.main.resource.id;
    let (mut seen, mut drained, mut refused) = (0_usize, 0_usize, None);
    let whereabouts_unknown = !scope.main.controlled.is_empty() && !scope.begun.knows(resource);
    let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    let mut pages = std::pin::pin!(list(scope, &scope.main.resource, None, parameters));
    while let Some(page) = pages.try_next().await? {
        let mut drains = Vec::new();
        for target in page {
            if !scope.selects(&target).await? {
                continue;
            }
            seen += 1;
            if whereabouts_unknown && scope.next_step(&target) != Step::Keep {
                // It will be moved, and where a leader before may have sent its children by then is not known.
                scope.begun.scatter(resource, &target);
            }
            match (scope.next_step(&target), target.shard.clone(), target.drain.as_deref()) {
                (Step::Drain { .. }, Some(shard), _) => drains.push((target, shard)),
                (Step::AwaitAcknowledgement | Step::Force { .. }, Some(shard), Some(id)) => {
                    scope.drains.remember(resource, &target.uid, &shard, id);
                }
                _ => {}
            }
        }
        let drains = drains.into_iter().map(|(target, shard)| paced(drain(scope, target, shard)));
        let (count, first) = write_all(scope, resource, drains, 1, "can't drain objects").await?;
        drained += count;
        refused = refused.or(first);
    }
    scope.drains.forget_unseen_since(resource, start);
    let (ring, took) = (&scope.snapshot.ring, start.elapsed());
    tracing::info!(%ring, %resource, objects = seen, drained, ?took, "looked through all objects");
    Ok(refused)
}

/// Lets so much time pass after a drain as it takes the API server to carry out what follows from it: the acknowledgement,
/// the children, the assignment, and what the next shard writes. Were all drained at once, each would be without an owner
/// until all others had one.
async fn paced<T>(drain: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let outcome = drain.await;
    sleep(start.elapsed() * FOLLOWING).await;
    outcome
}

/// The value of a drain label.
pub(crate) fn move_id() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), MOVE_ID_LENGTH)
}

/// Asks the shard to let go; returns whether that was needed.
async fn drain(scope: &Scope, target: Target, shard: String) -> Result<bool, kube::Error> {
    let labels = &scope.snapshot.labels;
    let id = move_id();
    let api = scope.main.resource.objects(&scope.client, target.namespace.as_deref());
    let decide = |target: &Target| match (scope.next_step(target), target.shard.as_deref()) {
        (Step::Drain { .. }, Some(from)) => Some(patch::drain(labels, &target.uid, from, &id)),
        _ => None,
    };
    // Remembered before it is asked: the acknowledgement may come at once.
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    scope.drains.remember(resource, &target.uid, &shard, &id);
    let (namespace, name, uid) = (target.namespace.clone(), target.name.clone(), target.uid.clone());
    match write(&scope.writes, &api, labels, target, decide).await {
        Ok(Outcome::Written(target)) => {
            scope.metrics.drained(ring, resource);
            tracing::debug!(%ring, %resource, namespace, name, uid, from = target.shard, id, "asked a shard to let go of an object");
            Ok(true)
        }
        Ok(Outcome::Needless(_) | Outcome::Gone) => {
            scope.drains.forget(&uid);
            Ok(false)
        }
        Err(error) => {
            scope.drains.forget(&uid);
            Err(error)
        }
    }
}
