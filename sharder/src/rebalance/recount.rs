//! Another count after moves whose end nobody here sees.
//!
//! Where no children move first, the webhook gives an object that is let go of to its next shard in that very write. So the
//! leader only sees that it drains no longer, when it looks at all that do, and what it counted before is old once the last one
//! has moved.

use std::convert::Infallible;

use ringside_ring::cluster_ring::Fence;

use super::{Due, Pass};
use crate::assign::Scope;

/// Has the objects counted anew whenever all that drained have moved.
pub(crate) async fn recount(scope: &Scope, due: &Due) -> Infallible {
    let resource = &scope.main.resource.id;
    if scope.snapshot.spec.fence == Fence::ApiServer || !scope.main.controlled.is_empty() {
        return std::future::pending().await;
    }
    let mut changes = scope.drains.changes();
    let mut draining = false;
    loop {
        changes.borrow_and_update();
        let before = std::mem::replace(&mut draining, scope.drains.oldest(resource).is_some());
        if before && !draining {
            due.mark([resource.clone()], &[Pass::Objects]);
        }
        // The sender is the scope's.
        let _ = changes.changed().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use ringside_ring::cluster_ring::GroupResource;
    use tokio::{task::yield_now, time::Instant};

    use super::*;
    use crate::{
        assign::tests::{fenced, scope},
        fixtures::FakeApi,
        target::Target,
    };

    #[tokio::test(start_paused = true)]
    async fn objects_are_counted_anew_when_the_last_one_has_moved_that_the_webhook_places() {
        let api = FakeApi::default();
        let mut childless = scope(&api);
        childless.main.controlled.clear();
        for (scope, counted) in [(childless, true), (scope(&api), false), (fenced(&api), false)] {
            let (due, resource) = (Due::default(), scope.main.resource.id.clone());
            let other = GroupResource { group: "x.io".into(), resource: "ys".into() };
            let story = async {
                for resource in [&resource, &other] {
                    let target = Target { uid: resource.to_string(), ..Target::default() };
                    scope.drains.remember(resource, &target, "a", "m");
                }
                for (waits, found) in [(1, Instant::now()), (0, Instant::now() + Duration::from_secs(1))] {
                    yield_now().await;
                    assert_eq!(due.of(&resource), []);
                    scope.drains.forget_unseen_since(&resource, found, waits);
                }
                yield_now().await;
                assert_eq!(due.of(&resource).len(), usize::from(counted));
            };
            tokio::select! {
                biased;
                never = recount(&scope, &due) => match never {},
                () = story => {}
            }
        }
    }
}
