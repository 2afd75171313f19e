//! Objects that their shard has not let go of within the ring's deadline.
//!
//! Where the API server's fence is around them they are taken from it: its writes are refused once they are another's.
//! Where it is not they are reported, and stay: what the shard does can't be stopped, so nobody else may begin.

use std::{convert::Infallible, time::Duration};

use futures::TryStreamExt;
use kube::api::ListParams;
use ringside_ring::handover::Patience;
use ringside_runtime::explain::explain;
use tokio::time::{Instant, sleep, sleep_until};

use super::{BATCH, Queue, Scope, children::list};
use crate::target::Target;

/// How soon it is looked again after what is late and may not be taken: such an object waits for somebody to do something about its shard, and a
/// look is a list of all that drain.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon it is looked again otherwise: the worker needs a moment for what it was given.
const SOON: Duration = Duration::from_secs(1);

/// The first of those that nobody may take from their shard, and how many there are.
#[derive(Default)]
struct Held {
    first: Option<Target>,
    objects: usize,
}

/// Looks after drains whenever the oldest of them is past the deadline.
pub(super) async fn overdue(scope: &Scope, queue: &Queue) -> Infallible {
    let (resource, deadline) = (&scope.main.resource.id, scope.snapshot.spec.drain_deadline());
    loop {
        // No drain that begins later is late before that.
        let due = scope.drains.oldest(resource).unwrap_or_else(Instant::now) + deadline;
        if due > Instant::now() {
            sleep_until(due).await;
            continue;
        }
        let pause = match look(scope, queue).await {
            Ok(held) => {
                tell(scope, &held).await;
                if held.objects == 0 { SOON } else { AGAIN }
            }
            Err(error) => {
                let (ring, error) = (&scope.snapshot.ring, explain(&error));
                tracing::warn!(%ring, %resource, error, "can't look for objects that their shards don't let go of; trying again");
                AGAIN
            }
        };
        sleep(pause).await;
    }
}

/// Looks at all that drain; queues what can be taken from its shard.
async fn look(scope: &Scope, queue: &Queue) -> Result<Held, kube::Error> {
    let (resource, start, mut held) = (&scope.main.resource.id, Instant::now(), Held::default());
    let limit = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    let draining = limit.labels(&scope.snapshot.labels.drain);
    let mut pages = std::pin::pin!(list(scope, &scope.main.resource, None, draining));
    while let Some(page) = pages.try_next().await? {
        for target in page {
            let (Some(shard), Some(id)) = (scope.shard_of(&target), target.drain.as_deref()) else { continue };
            if !scope.selects(&target).await? {
                continue;
            }
            scope.drains.remember(resource, &target.uid, shard.as_str(), id);
            match scope.patience(&target) {
                Patience::Left => {}
                Patience::Over => {
                    if queue.send(target).await.is_err() {
                        // The worker ends only together with this.
                        std::future::pending::<()>().await;
                    }
                }
                Patience::Needed => held.take(scope, target),
            }
        }
    }
    scope.drains.forget_unseen_since(resource, start);
    Ok(held)
}

impl Held {
    fn take(&mut self, scope: &Scope, target: Target) {
        if scope.drains.report(&target.uid) {
            let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
            let Target { namespace, name, uid, shard, .. } = &target;
            tracing::warn!(
                %ring, %resource, namespace, name, uid, shard,
                "a shard does not let go of an object; it keeps it, as the API server's fence is not around it"
            );
        }
        self.objects += 1;
        self.first.get_or_insert(target);
    }
}

async fn tell(scope: &Scope, held: &Held) {
    let (snapshot, resource) = (&scope.snapshot, &scope.main.resource.id);
    scope.metrics.overdue(&snapshot.ring, resource, held.objects);
    let Some(first) = &held.first else { return };
    let (shard, deadline) = (first.shard.as_deref().unwrap_or_default(), snapshot.spec.drain_deadline());
    let note = format!(
        "{} objects of '{resource}' were not let go of within {} s, such as '{}' by shard '{shard}'; they stay with it: \
         look at its proxy, end its pod, or let the API server fence the ring (fence: APIServer)",
        held.objects,
        deadline.as_secs(),
        first.place(),
    );
    scope.notices.warn(snapshot, "DrainOverdue", "Drain", note).await;
}

/// Objects were taken from shards that did not let go of them.
pub(super) async fn taken(scope: &Scope, objects: Vec<Target>) {
    let (snapshot, resource) = (&scope.snapshot, &scope.main.resource.id);
    for target in &objects {
        let Target { namespace, name, uid, shard, .. } = target;
        tracing::warn!(
            ring = %snapshot.ring, %resource, namespace, name, uid, from = shard,
            "a shard did not let go of an object in time; the object was taken from it"
        );
    }
    let Some(first) = objects.first() else { return };
    let note = format!(
        "{} objects of '{resource}' were not let go of within {} s, such as '{}' by shard '{}'; they were taken from it",
        objects.len(),
        snapshot.spec.drain_deadline().as_secs(),
        first.place(),
        first.shard.as_deref().unwrap_or_default(),
    );
    scope.notices.warn(snapshot, "DrainForced", "Move", note).await;
}
