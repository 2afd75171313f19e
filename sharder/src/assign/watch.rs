//! The watch on the objects that no available shard owns.

use std::convert::Infallible;

use futures::StreamExt;
use kube::runtime::{
    WatchStreamExt,
    watcher::{self, Event, InitialListStrategy, watcher},
};
use ringside_ring::RingLabels;

use super::{Queue, Scope};
use crate::target::Target;
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

/// API servers without `WatchList` answer 422 to `sendInitialEvents`.
fn refuses_streaming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(error) if code(error) == Some(422))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_selector_names_the_available_shards() {
        let labels = RingLabels::of(&"example".parse().unwrap());
        let shards = ["a".parse().unwrap(), "b-1".parse().unwrap()];
        let key = "shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example";
        assert_eq!(unowned(&labels, &shards), format!("{key} notin (a,b-1)"));
    }
}
