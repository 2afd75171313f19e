//! Objects that their shard has not let go of within the ring's deadline.
//!
//! Where the API server's fence is around them they are taken from it: its writes are refused once they are another's.
//! Where it is not, as in namespaces that have left the ring, they are reported, and stay: what the shard does can't be
//! stopped, so nobody else may begin.

use std::{convert::Infallible, time::Duration};

use futures::TryStreamExt;
use kube::api::ListParams;
use ringside_ring::decide::{Action, Covered, How};
use ringside_runtime::explain::explain;
use tokio::time::{Instant, sleep, sleep_until};

use super::{BATCH, Queue, Scope, children::list};
use crate::{notices::Notice, target::Target};

/// How soon it is looked again: what may not be taken from its shard waits for somebody to do something about that, and what
/// is in time is counted. A look is a list of all that drain.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon it is looked again after something was late: the worker needs a moment for what it was given.
const SOON: Duration = Duration::from_secs(1);

/// Looks after drains whenever the oldest of them has taken a while.
///
/// That is before the deadline already: where no children move first, the webhook gives an object that was let go of to its
/// next shard in that same write, and nothing else shows that it drains no longer.
pub(super) async fn overdue(scope: &Scope, queue: &Queue) -> Infallible {
    let resource = &scope.main.resource.id;
    loop {
        // Read each time: with another one this goes on, and no pause is so long that it would be missed for long.
        let deadline = scope.drain_deadline();
        // No drain that begins later is late before that.
        let due = scope.drains.oldest(resource).unwrap_or_else(Instant::now) + deadline.min(AGAIN);
        if due > Instant::now() {
            sleep_until(due).await;
            continue;
        }
        let pause = match look(scope, queue).await {
            Ok(0) => {
                let late_at = scope.drains.oldest(resource).map(|oldest| oldest + deadline);
                let rest = late_at.and_then(|late_at| late_at.checked_duration_since(Instant::now()));
                rest.filter(|rest| !rest.is_zero()).map_or(AGAIN, |rest| rest.min(AGAIN))
            }
            Ok(_) => SOON,
            Err(error) => {
                let (ring, error) = (&scope.snapshot.ring, explain(&error));
                tracing::warn!(%ring, %resource, error, "can't list objects that their shards don't release; trying again");
                AGAIN
            }
        };
        sleep(pause).await;
    }
}

/// Looks at all that drain; queues what can be taken from its shard, and returns how many that are.
async fn look(scope: &Scope, queue: &Queue) -> Result<usize, kube::Error> {
    let (resource, start) = (&scope.main.resource.id, Instant::now());
    let (mut found, mut queued) = (0_usize, 0_usize);
    let limit = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    let draining = limit.labels(&scope.snapshot.labels.drain);
    let mut pages = std::pin::pin!(list(scope, &scope.main.resource, None, draining));
    while let Some(page) = pages.try_next().await? {
        for target in page {
            let (Some(shard), Some(id)) = (scope.shard_of(&target), target.drain.as_deref()) else { continue };
            scope.drains.remember(resource, &target, shard.as_str(), id);
            found += 1;
            match scope.decide(&target, Covered::InRing) {
                Action::Assign { how: How::Forced, .. } if scope.selects(&target).await? => {
                    queued += 1;
                    if queue.send(target).await.is_err() {
                        // The worker ends only together with this.
                        std::future::pending::<()>().await;
                    }
                }
                Action::Assign { how: How::Forced, .. } | Action::Overdue => report(scope, &target),
                _ => {}
            }
        }
    }
    scope.drains.forget_unseen_since(resource, start, found);
    Ok(queued)
}

/// Notes that the object's shard is late and keeps it, for the ring's status, and logs it once.
fn report(scope: &Scope, target: &Target) {
    if scope.drains.report(&target.uid) {
        let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
        let Target { namespace, name, uid, shard, .. } = target;
        tracing::warn!(
            %ring, %resource, namespace, name, uid, shard,
            "a shard does not release an object; it keeps it, as the API server's fence does not cover it"
        );
    }
}

/// Objects were taken from shards that did not let go of them.
pub(super) fn taken(scope: &Scope, objects: &[Target]) {
    let (snapshot, resource) = (&scope.snapshot, &scope.main.resource.id);
    for target in objects {
        let Target { namespace, name, uid, shard, .. } = target;
        tracing::warn!(
            ring = %snapshot.ring, %resource, namespace, name, uid, from = shard,
            "a shard did not release an object in time; the object was taken from it"
        );
    }
    let Some(first) = objects.first() else { return };
    let note = format!(
        "{} objects of '{resource}' were not released within {} s, such as '{}' by shard '{}'; they were taken from it",
        objects.len(),
        scope.drain_deadline().as_secs(),
        first.place(),
        first.shard.as_deref().unwrap_or_default(),
    );
    let event = Notice { warns: true, reason: "DrainForced".to_owned(), action: "Move", note };
    scope.notices.tell(snapshot.reference(), None, event);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::{
        assign::{
            process, queue,
            tests::{CONFIG_MAPS, fenced, object, path, target},
        },
        fixtures::FakeApi,
        namespaces::tests::known,
    };

    #[tokio::test(start_paused = true)]
    async fn what_counts_is_how_long_the_ring_waits_by_now() {
        let api = FakeApi::default();
        let scope = fenced(&api);
        let (resource, labels) = (&scope.main.resource.id, &scope.snapshot.labels);
        let mut drained = object(&scope, "o", Some("a"));
        drained["metadata"]["labels"][&labels.drain] = "m".into();
        api.put(&path(CONFIG_MAPS, "o"), drained.clone());
        scope.drains.remember(resource, &target(&scope, &drained), "a", "m");
        tokio::time::advance(Duration::from_secs(30)).await;
        let (sender, _receiver) = queue();
        for (seconds, taken) in [(31, 0), (29, 1), (31, 0)] {
            let mut newest = (*scope.snapshot).clone();
            newest.spec.drain_deadline_seconds = Some(seconds);
            scope.newest.set(Some(Arc::new(newest)));
            assert_eq!(look(&scope, &sender).await.unwrap(), taken, "{seconds} s");
        }
    }

    /// There is no fence in a namespace that has left the ring.
    #[tokio::test(start_paused = true)]
    async fn what_left_the_ring_with_its_namespace_is_taken_from_nobody_and_reported() {
        for (role, taken) in [("project", true), ("another", false)] {
            let api = FakeApi::default();
            let scope = fenced(&api);
            let scope = Scope { namespaces: known(&api, &[("default", role)]), ..scope };
            let (resource, labels) = (&scope.main.resource.id, &scope.snapshot.labels);
            let mut drained = object(&scope, "o", Some("a"));
            drained["metadata"]["labels"][&labels.drain] = "m".into();
            api.put(&path(CONFIG_MAPS, "o"), drained.clone());
            let target = target(&scope, &drained);
            scope.drains.remember(resource, &target, "a", "m");
            tokio::time::advance(scope.snapshot.spec.drain_deadline()).await;
            let (sender, _receiver) = queue();
            assert_eq!(look(&scope, &sender).await.unwrap(), usize::from(taken), "{role}");
            assert_eq!(scope.drains.figures()[resource].overdue.len(), usize::from(!taken), "{role}");
            if !taken {
                assert_eq!(process(&scope, vec![target]).await, []);
                assert_eq!(api.writes(), Vec::<String>::new());
            }
        }
    }
}
