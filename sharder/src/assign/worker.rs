//! The worker of a resource: takes unowned objects from the queue, in batches.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    BATCH, Scope,
    batch::{Done, carry_out},
};
use crate::{faults::Task, target::Target};

/// How soon objects that could not be written to are tried again, at first and at last.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Batches at once. While one waits for answers the next objects to come needn't wait for it; and not one each, as a list
/// of children costs the same for one owner as for many.
const BATCHES: usize = 3;

/// Works until objects were lost track of that nobody would bring again: then there must be a new beginning.
///
/// A batch is what has arrived while others were worked on: an object that comes alone does not wait for company, and many
/// share the list of their children. Nothing is lost when it is dropped: the watch of its successor begins with all
/// objects that are still unowned.
pub(crate) async fn work(scope: &Scope, mut queue: mpsc::Receiver<Target>) {
    let mut again: Vec<Target> = Vec::new();
    let mut pause = RETRY[0];
    let (mut due, mut anew): (Instant, Option<Instant>) = (Instant::now(), None);
    let mut batches = FuturesUnordered::new();
    let mut busy = Busy::default();
    let start = |batch: Vec<Target>, retrying| {
        let uids: Vec<_> = batch.iter().map(|target| target.uid.clone()).collect();
        carry_out(scope, batch).map(move |done| (uids, done, retrying))
    };
    loop {
        let free = batches.len() < BATCHES;
        let mut batch = Vec::new();
        let (uids, Done { again: failed, given }, retried) = tokio::select! {
            // Whatever fails, new objects are taken: theirs may be another fate.
            taken = queue.recv_many(&mut batch, BATCH), if free => {
                if taken == 0 {
                    // The feeders end only together with this.
                    std::future::pending::<()>().await;
                }
                batches.push(start(busy.take(batch), false));
                continue;
            }
            () = sleep_until(due), if free && !again.is_empty() => {
                batches.push(start(busy.take(std::mem::take(&mut again)), true));
                continue;
            }
            () = sleep_until(anew.unwrap_or(due)), if anew.is_some() => return,
            Some(ended) = batches.next() => ended,
        };
        let changed = busy.end(&uids, &given);
        if !changed.is_empty() {
            batches.push(start(busy.take(changed), false));
        }
        if failed.is_empty() {
            if retried {
                pause = RETRY[0];
            }
            if again.is_empty() && anew.is_none() && batches.is_empty() {
                scope.faults.works(&scope.main.resource.id, Task::Assign);
            }
            continue;
        }
        if again.is_empty() {
            due = Instant::now() + pause;
            pause = (pause * 2).min(RETRY[1]);
        }
        again.extend(failed);
        // Failures are bounded as well.
        let surplus = again.len().saturating_sub(BATCH);
        if surplus > 0 {
            again.drain(..surplus);
            anew.get_or_insert(Instant::now() + RETRY[1]);
        }
    }
}

/// The objects that are being worked on. The watch shows them again meanwhile, as they are written to.
#[derive(Default)]
struct Busy {
    uids: HashSet<String>,
    /// What was seen last of those that changed.
    changed: HashMap<String, Target>,
}

impl Busy {
    /// Of what was seen, what nobody works on; the rest waits.
    fn take(&mut self, seen: Vec<Target>) -> Vec<Target> {
        let mut free: HashMap<String, Target> = HashMap::new();
        for target in seen {
            let of = if self.uids.contains(&target.uid) { &mut self.changed } else { &mut free };
            of.insert(target.uid.clone(), target);
        }
        self.uids.extend(free.keys().cloned());
        free.into_values().collect()
    }

    /// Work on these has ended. Returns what has changed meanwhile, but for what has an owner now.
    fn end(&mut self, uids: &[String], given: &HashSet<String>) -> Vec<Target> {
        let mut changed = Vec::new();
        for uid in uids {
            self.uids.remove(uid);
            changed.extend(self.changed.remove(uid).filter(|_| !given.contains(uid)));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Method, StatusCode};

    use super::*;
    use crate::{
        assign::{
            queue,
            tests::{CONFIG_MAPS, object, path, scope},
        },
        fixtures::FakeApi,
    };

    fn is_owned(api: &FakeApi, scope: &Scope, name: &str) -> bool {
        api.get(&path(CONFIG_MAPS, name)).unwrap()["metadata"]["labels"][&scope.snapshot.labels.shard].is_string()
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_tried_again_without_holding_up_what_comes_after() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let stuck = path(CONFIG_MAPS, "stuck");
        let away = stuck.clone();
        api.intercept(move |asked, _| {
            (asked.method == Method::PATCH && asked.path == away).then_some(StatusCode::SERVICE_UNAVAILABLE)
        });
        let (sender, receiver) = queue();
        let worker_scope = scope.clone();
        let worker = tokio::spawn(async move { work(&worker_scope, receiver).await });
        for name in ["stuck", "later"] {
            let object = object(&scope, name, None);
            api.put(&path(CONFIG_MAPS, name), object.clone());
            let object: crate::resources::Object = serde_json::from_value(object).unwrap();
            sender.send(Target::of(&object.metadata, &scope.snapshot.labels)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(is_owned(&api, &scope, "later") && !is_owned(&api, &scope, "stuck"));
        api.intercept(|_, _| None);
        tokio::time::sleep(RETRY[1]).await;
        assert!(is_owned(&api, &scope, "stuck"));
        assert_eq!(scope.faults.of(&scope.snapshot), Vec::<String>::new());
        let asked = api.asked().len();
        tokio::time::sleep(RETRY[1] * 2).await;
        assert_eq!(api.asked().len(), asked, "nothing is left to do");
        worker.abort();
    }

    #[test]
    fn what_changes_while_it_is_worked_on_is_looked_at_after_that_unless_it_was_given() {
        let seen = |uid: &str, version: &str| Target {
            uid: uid.into(),
            resource_version: version.into(),
            ..Target::default()
        };
        let mut busy = Busy::default();
        assert_eq!(busy.take(vec![seen("a", "1"), seen("a", "2")]), [seen("a", "2")], "each once, as it was seen last");
        assert_eq!(busy.take(vec![seen("b", "3")]), [seen("b", "3")]);
        assert_eq!(busy.take(vec![seen("a", "4"), seen("b", "5")]), []);
        let uids = ["a".to_owned(), "b".to_owned()];
        assert_eq!(busy.end(&uids, &["b".to_owned()].into()), [seen("a", "4")]);
        assert_eq!(busy.take(vec![seen("b", "6")]), [seen("b", "6")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_next_does_not_wait_for_what_is_being_written() {
        let api = FakeApi::default();
        let mut scope = scope(&api);
        scope.main.controlled.clear();
        api.slow_writes(Duration::from_secs(10));
        let (sender, receiver) = queue();
        let worker_scope = scope.clone();
        let worker = tokio::spawn(async move { work(&worker_scope, receiver).await });
        for name in ["first", "next"] {
            let object = object(&scope, name, None);
            api.put(&path(CONFIG_MAPS, name), object.clone());
            let object: crate::resources::Object = serde_json::from_value(object).unwrap();
            sender.send(Target::of(&object.metadata, &scope.snapshot.labels)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(is_owned(&api, &scope, "first") && is_owned(&api, &scope, "next"));
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_fail_hold_up_nobody_and_are_brought_again() {
        let api = FakeApi::default();
        let mut scope = scope(&api);
        scope.main.controlled.clear();
        api.intercept(|asked, _| {
            (asked.method == Method::PATCH && asked.path.contains("stuck")).then_some(StatusCode::FORBIDDEN)
        });
        let (sender, receiver) = queue();
        let worker_scope = scope.clone();
        let start = Instant::now();
        let worker = tokio::spawn(async move { work(&worker_scope, receiver).await });
        let stuck = (0..=BATCH).map(|i| format!("stuck-{i}"));
        for name in stuck.chain(["later".to_owned()]) {
            let object = object(&scope, &name, None);
            api.put(&path(CONFIG_MAPS, &name), object.clone());
            let object: crate::resources::Object = serde_json::from_value(object).unwrap();
            sender.send(Target::of(&object.metadata, &scope.snapshot.labels)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(is_owned(&api, &scope, "later"));
        assert_eq!(scope.faults.of(&scope.snapshot).len(), 1, "they are told in the status");
        worker.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), RETRY[1].as_secs(), "the watch begins anew, with all of them");
    }
}
