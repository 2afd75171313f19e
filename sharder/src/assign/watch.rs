//! The watch on the objects that no available shard owns.

use std::convert::Infallible;

use futures::StreamExt;
use kube::runtime::{
    WatchStreamExt,
    watcher::{self, Event, watcher},
};
use ringside_ring::RingLabels;

use super::{Queue, Scope, carried::Events, revisit::read};
use crate::{faults::Task, resources::Object};
use ringside_runtime::explain::explain_watch;

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
///
/// By list and watch, not by a streaming list: kube-rs begins that at resourceVersion 0, which may show an object as it was
/// before its last move (CONTROL-PLANE, 10). Among other shards than then it would be sent elsewhere, its children first.
pub(crate) async fn feed(scope: &Scope, queue: &Queue) -> Infallible {
    let before = scope.carried.take_watch(&scope.main.resource);
    let retries = scope.carried.retries(&scope.main.resource.id);
    let mut watching = Watching { scope, before, now: None, caught_up: false };
    loop {
        let target = match watching.next().await {
            (Source::Now, event) => {
                tell(scope, &event);
                if let Ok(event) = &event {
                    scope.census.shown(&scope.main.resource.id, event);
                }
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => Some(scope.target(&object)),
                    // Gone, or owned by an available shard now: what failed waits for nothing any more. While it is tried, it
                    // may be that very write which is shown, and as the object was before.
                    Ok(Event::Delete(object)) => Some(scope.target(&object)).filter(|gone| retries.rests(&gone.uid)),
                    Ok(Event::Init) => None,
                    Ok(Event::InitDone) => {
                        (watching.before, watching.caught_up) = (None, true);
                        None
                    }
                    Err(error) => {
                        let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
                        let error = explain_watch(&error);
                        tracing::warn!(%ring, %resource, error, "can't watch for objects without owner; trying again");
                        None
                    }
                }
            }
            // It was decided about by other shards since it was shown: an old view of it would send its children elsewhere.
            (Source::Before, Ok(Event::Apply(object))) => read(scope, scope.target(&object)).await.ok().flatten(),
            (Source::Before, _) => None,
        };
        if let Some(target) = target
            && queue.send(target).await.is_err()
        {
            // The worker ends only together with this.
            std::future::pending::<()>().await;
        }
    }
}

/// A watch for this set of shards, and the one of before until this one has shown all there is. Dropped, it leaves the one
/// that is ahead.
struct Watching<'a> {
    scope: &'a Scope,
    before: Option<Events>,
    now: Option<Events>,
    caught_up: bool,
}

/// Which of the two.
enum Source {
    Before,
    Now,
}

impl Watching<'_> {
    async fn next(&mut self) -> (Source, Result<Event<Object>, watcher::Error>) {
        loop {
            let now = self.now.get_or_insert_with(|| begin(self.scope));
            let before = async {
                match &mut self.before {
                    Some(before) => before.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = now.next() => match event {
                    Some(event) => return (Source::Now, event),
                    None => self.now = None,
                },
                event = before => match event {
                    Some(event) => return (Source::Before, event),
                    None => self.before = None,
                },
            }
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let ahead = if self.caught_up { self.now.take() } else { self.before.take().or_else(|| self.now.take()) };
        if let Some(events) = ahead {
            self.scope.carried.leave_watch(&self.scope.main.resource, events);
        }
    }
}

fn begin(scope: &Scope) -> Events {
    let selector = unowned(&scope.snapshot.labels, scope.snapshot.hash_ring().shards());
    let config = watcher::Config::default().labels(&selector);
    watcher(scope.main.resource.objects(&scope.watches, None), config).default_backoff().boxed()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::{
        assign::{
            queue,
            tests::{CONFIG_MAPS, object, path, scope},
        },
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
    async fn what_has_no_owner_at_the_beginning_is_not_shown_as_it_was_before() {
        let api = FakeApi::default();
        let scope = scope(&api);
        api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", None));
        let (queue, mut receiver) = queue();
        tokio::select! {
            never = feed(&scope, &queue) => match never {},
            seen = receiver.recv() => assert_eq!(seen.unwrap().uid, "uid-o"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        let first = &api.asked()[0].query;
        assert!(!first.contains("watch") && !first.contains("resourceVersion"), "{first}");
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

    #[tokio::test(start_paused = true)]
    async fn the_watch_of_before_goes_on_until_the_new_one_has_caught_up_and_what_it_shows_is_read_again() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let mut acknowledged = object(&scope, "o", None);
        let old = serde_json::from_value(acknowledged.clone()).unwrap();
        acknowledged["metadata"]["resourceVersion"] = "8".into();
        api.put(&path(CONFIG_MAPS, "o"), acknowledged);
        api.intercept(|asked, _| asked.path.ends_with("/configmaps").then_some(http::StatusCode::SERVICE_UNAVAILABLE));
        let (events, before) = futures::channel::mpsc::unbounded();
        scope.carried.leave_watch(&scope.main.resource, before.boxed());
        events.unbounded_send(Ok(Event::Apply(old))).unwrap();
        let (queue, mut receiver) = queue();
        tokio::select! {
            never = feed(&scope, &queue) => match never {},
            seen = receiver.recv() => assert_eq!(seen.unwrap().resource_version, "8"),
        }
        // So it does when the shards change once more before that.
        assert!(!events.is_closed());
        let before = scope.carried.take_watch(&scope.main.resource).unwrap();
        let mut watching = Watching { scope: &scope, before: Some(before), now: None, caught_up: false };
        assert!(matches!(watching.next().await, (Source::Now, Ok(Event::Init))));
        watching.caught_up = true;
        drop(watching);
        let ahead = scope.carried.take_watch(&scope.main.resource).unwrap();
        assert!(events.is_closed(), "the new one is ahead now");
        // A watch on another version of the resource says nothing.
        scope.carried.leave_watch(&scope.main.controlled[0], ahead);
        assert!(scope.carried.take_watch(&scope.main.resource).is_none());
    }
}
