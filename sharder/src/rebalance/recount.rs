//! Another count after moves whose end nobody here sees.
//!
//! Where no children move first, the webhook gives an object that is let go of to its next shard in that very write. So the
//! leader only sees that it drains no longer, when it looks at all that do, and what it counted before is old once the last one
//! has moved.

use std::convert::Infallible;

use super::Pass;
use crate::assign::Scope;

/// Has the objects counted anew whenever all that drained have moved. Who was asked to no avail drained nothing: what is refused
/// would be asked, and all objects be looked through, without an end.
pub(crate) async fn recount(scope: &Scope) -> Infallible {
    let resource = &scope.main.resource.id;
    if scope.snapshot.spec.asks_for_fence() || !scope.main.controlled.is_empty() {
        return std::future::pending().await;
    }
    let mut changes = scope.drains.changes();
    let mut draining = false;
    loop {
        changes.borrow_and_update();
        let before = std::mem::replace(&mut draining, scope.drains.any(resource));
        if before && !draining {
            scope.due.mark([resource.clone()], &[Pass::Objects]);
        }
        // The sender is the scope's.
        let _ = changes.changed().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use http::{Method, StatusCode};
    use ringside_ring::cluster_ring::GroupResource;
    use tokio::{
        task::yield_now,
        time::{Instant, sleep},
    };

    use super::*;
    use crate::{
        assign::{
            assign,
            tests::{CONFIG_MAPS, fenced, name_of, object, path, scope},
        },
        fixtures::FakeApi,
        rebalance::passes,
        target::Target,
    };

    #[tokio::test(start_paused = true)]
    async fn objects_are_counted_anew_when_the_last_one_has_moved_that_the_webhook_places() {
        let api = FakeApi::default();
        let mut childless = scope(&api);
        childless.main.controlled.clear();
        for (scope, counted) in [(childless, true), (scope(&api), false), (fenced(&api), false)] {
            let (due, resource) = (&scope.due, scope.main.resource.id.clone());
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
                never = recount(&scope) => match never {},
                () = story => {}
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_to_be_drained_has_the_objects_looked_through_once() {
        for status in [StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR] {
            let api = FakeApi::default();
            let mut scope = scope(&api);
            scope.main.controlled.clear();
            let name = name_of("a", &scope);
            api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("b")));
            api.intercept(move |asked, _| (asked.method == Method::PATCH).then_some(status));
            scope.due.mark([scope.main.resource.id.clone()], &[Pass::Objects]);
            tokio::select! {
                never = recount(&scope) => match never {},
                never = passes(&scope) => match never {},
                never = assign(&scope) => match never {},
                () = sleep(Duration::from_secs(120)) => {}
            }
            assert_eq!(api.writes().len(), 1, "{status}: it is asked again by the next pass");
        }
    }
}
