//! The watch on the objects that no available shard owns.

use std::convert::Infallible;

use futures::StreamExt;
use kube::runtime::{
    WatchStreamExt,
    watcher::{self, Event, InitialListStrategy, watcher},
};
use ringside_ring::RingLabels;

use super::{Queue, Scope};
use crate::{faults::Task, resources::Object, target::Target};
use ringside_runtime::explain::{code, explain_watch};

/// The objects that none of `available` owns: unassigned ones, and those labelled for nobody.
///
/// `notin` also matches what has no such label at all. 1,500 names are accepted (DESIGN, "Sharder").
pub(crate) fn unowned(labels: &RingLabels, available: &[ringside_ring::ShardName]) -> String {
    let names: Vec<_> = available.iter().map(ringside_ring::ShardName::as_str).collect();
    format!("{} notin ({})", labels.shard, names.join(","))
}

/// Puts every unowned object into the queue, for as long as the set of available shards is the same.
///
/// No store: an object is looked at once and forgotten, however many there are.
pub(crate) async fn feed(scope: &Scope, queue: &Queue) -> Infallible {
    let selector = unowned(&scope.snapshot.labels, scope.snapshot.hash_ring.shards());
    let mut strategy = InitialListStrategy::StreamingList;
    loop {
        let api = scope.main.resource.objects(&scope.watches, None);
        let config = watcher::Config { initial_list_strategy: strategy.clone(), ..watcher::Config::default() };
        let mut events = std::pin::pin!(watcher(api, config.labels(&selector)).default_backoff());
        while let Some(event) = events.next().await {
            tell(scope, &event);
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    let target = Target::of(&object.metadata, &scope.snapshot.labels);
                    if queue.send(target).await.is_err() {
                        // The worker ends only together with this.
                        std::future::pending::<()>().await;
                    }
                }
                // Gone, or owned by an available shard now.
                Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
                Err(error) if strategy == InitialListStrategy::StreamingList && refuses_streaming(&error) => break,
                Err(error) => {
                    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
                    let error = explain_watch(&error);
                    tracing::warn!(%ring, %resource, error, "can't watch for objects without owner; trying again");
                }
            }
        }
        strategy = InitialListStrategy::ListWatch;
    }
}

/// The beginning of a list comes before its request, so it says nothing.
fn tell(scope: &Scope, event: &Result<Event<Object>, watcher::Error>) {
    let resource = &scope.main.resource.id;
    match event {
        Ok(Event::Init) => {}
        Ok(_) => scope.faults.works(resource, Task::Watch),
        Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
            scope.faults.failed(resource, Task::Watch, error);
        }
        Err(_) => {}
    }
}

/// API servers without `WatchList` answer 422 to `sendInitialEvents`.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(error) if code(error) == Some(422))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::{
        assign::{queue, tests::scope},
        fixtures::FakeApi,
    };

    #[test]
    fn the_selector_names_the_available_shards() {
        let labels = RingLabels::of(&"example".parse().unwrap());
        let shards = ["a".parse().unwrap(), "b-1".parse().unwrap()];
        let key = "shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example";
        assert_eq!(unowned(&labels, &shards), format!("{key} notin (a,b-1)"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_is_a_fault() {
        let api = FakeApi::default();
        let scope = scope(&api);
        api.intercept(|_, _| Some(http::StatusCode::FORBIDDEN));
        let (queue, _receiver) = queue();
        let mut faults = scope.faults.changes();
        tokio::select! {
            never = feed(&scope, &queue) => match never {},
            told = faults.wait_for(|refused| !refused.is_empty()) => assert!(told.is_ok()),
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("nobody is told"),
        }
        assert!(
            scope.faults.of(&scope.snapshot)[0]
                .starts_with("objects of 'configmaps' can't be watched: missing permission")
        );
        // What it shows once it works.
        tell(&scope, &Ok(Event::Init));
        assert_eq!(scope.faults.of(&scope.snapshot).len(), 1);
        tell(&scope, &Ok(Event::InitDone));
        assert_eq!(scope.faults.of(&scope.snapshot), Vec::<String>::new());
    }
}
