//! The worker of a resource: takes unowned objects from the queue, in batches.

use std::{collections::HashSet, time::Duration};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Scope,
    batch::{Done, carry_out, carry_out_anew},
    tasks::{Lane, Tasks},
};
use crate::{faults::Task, pauses::at, queue::limiter::Priority, target::Target};

/// How long the read of an object is waited for of which something failed, at first; then as long as it has waited to be tried
/// again.
const READ: Duration = Duration::from_secs(5);

/// Works until objects were lost track of that nobody would bring again: then there must be a new beginning.
///
/// A batch is what has arrived while others were worked on: an object that comes alone does not wait for company, and many
/// share the list of their children. Nothing is lost when it is dropped: its successor looks at what is left first, and its
/// watch begins with all objects that are still unowned.
pub(crate) async fn work(scope: &Scope, queue: mpsc::Receiver<Target>) {
    let (retries, mut anew) = (scope.carried.retries(&scope.main.resource.id), None);
    retries.resume();
    scope.faults.follow(&scope.main.resource.id, &retries);
    // What shards left behind comes by the hundred.
    let many = Scope { writes: scope.writes.with_priority(Priority::Takeover), ..scope.clone() };
    let (mut tasks, mut batches) = (Tasks::new(scope, queue, &retries), FuturesUnordered::new());
    loop {
        while let Some(batch) = tasks.next_batch() {
            let lane = batch.lane;
            let uids: Vec<_> = batch.targets.iter().map(|target| target.uid.clone()).collect();
            let scope = if lane == Lane::Left { &many } else { scope };
            let patience = retries.pause(&uids).max(READ);
            let work = async move {
                match lane {
                    Lane::Again => carry_out_anew(scope, batch.targets, patience).await,
                    Lane::Known | Lane::Unowned | Lane::Left => carry_out(scope, batch.targets).await,
                }
            };
            batches.push(work.map(move |done| (lane, uids, done)));
        }
        let (lane, uids, Done { again, given }) = tokio::select! {
            // Whatever fails, new objects are taken: theirs may be another fate.
            () = tasks.take_in(), if tasks.has_room() => continue,
            () = at(retries.due()), if tasks.can_retry() => {
                tasks.retry(retries.take_due());
                continue;
            }
            () = at(anew) => return,
            Some(ended) = batches.next() => ended,
        };
        let waits: HashSet<_> = again.iter().map(|target| target.uid.clone()).collect();
        retries.worked(uids.iter().filter(|uid| !waits.contains(*uid)));
        let all_kept = retries.add(again, |target| scope.unknown_for(target));
        // What was shown meanwhile may be one of these.
        tasks.end(lane, &uids, given);
        if waits.is_empty() {
            if retries.is_empty() && anew.is_none() && batches.is_empty() {
                scope.faults.works(&scope.main.resource.id, Task::Assign);
            }
            continue;
        }
        // Failures are bounded as well.
        if !all_kept {
            anew.get_or_insert(Instant::now() + retries.longest());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use http::{Method, StatusCode};
    use serde_json::{Value, json};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::{
        assign::{
            Queue, assign, queue,
            retries::{CAPACITY, LASTS, RETRY, SYNC},
            tests::{CONFIG_MAPS, SECRETS, late, name_of, object, owned, owner_and_child, path, scope, target},
            writes::PATIENCE,
        },
        fixtures::FakeApi,
        rebalance::look_again,
    };

    fn is_owned(api: &FakeApi, scope: &Scope, name: &str) -> bool {
        shard_at(api, scope, &path(CONFIG_MAPS, name)).is_string()
    }

    fn shard_at(api: &FakeApi, scope: &Scope, path: &str) -> Value {
        api.get(path).unwrap()["metadata"]["labels"][&scope.snapshot.labels.shard].clone()
    }

    /// How often it was written to, or tried to be.
    fn patched(api: &FakeApi, path: &str) -> usize {
        api.writes().into_iter().filter(|write| *write == format!("PATCH {path}")).count()
    }

    /// A worker, and its queue.
    fn begin(scope: &Scope) -> (Queue, JoinHandle<()>) {
        let ((sender, receiver), scope) = (queue(), scope.clone());
        (sender, tokio::spawn(async move { work(&scope, receiver).await }))
    }

    /// The same, with who looks again at children.
    fn begin_with_looks(scope: &Scope) -> (Queue, JoinHandle<()>) {
        let ((sender, receiver), scope) = (queue(), scope.clone());
        let both = async move {
            tokio::select! {
                () = work(&scope, receiver) => {}
                never = look_again(&scope) => match never {},
            }
        };
        (sender, tokio::spawn(both))
    }

    /// From now on each patch of the object gives it to shard `a`, which is late then, and is answered like this.
    fn lands(api: &FakeApi, scope: &Scope, path: &str, status: StatusCode) {
        let (newest, path, label) = (scope.newest.clone(), path.to_owned(), scope.snapshot.labels.shard.clone());
        api.intercept(move |asked, objects| {
            let object = objects.get_mut(&path).filter(|_| asked.method == Method::PATCH && asked.path == path)?;
            object["metadata"]["labels"] = json!({ &label: "a" });
            object["metadata"]["resourceVersion"] = json!("12");
            newest.set(Some(late("a")));
            Some(status)
        });
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
        let (sender, worker) = begin(&scope);
        for name in ["stuck", "later"] {
            let object = object(&scope, name, None);
            api.put(&path(CONFIG_MAPS, name), object.clone());
            sender.send(target(&scope, &object)).await.unwrap();
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

    /// The leader has just begun, so the Lease of `unseen` may have been deleted a moment ago.
    #[tokio::test(start_paused = true)]
    async fn objects_of_a_name_without_lease_wait_until_its_shard_is_gone_and_cost_nothing_meanwhile() {
        let api = FakeApi::default();
        let scope = Scope { leases: crate::leases::tests::just_seen(&["a", "b"]), ..scope(&api) };
        let object = object(&scope, "o", Some("unseen"));
        api.put(&path(CONFIG_MAPS, "o"), object.clone());
        let _leading = crate::leases::tests::lead(&api, &scope.leases);
        let (sender, worker) = begin(&scope);
        sender.send(target(&scope, &object)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(shard_at(&api, &scope, &path(CONFIG_MAPS, "o")), "unseen");
        let is_about = |path: &str| !path.ends_with("/namespaces/default") && !path.contains("/leases/");
        let about = api.asked().into_iter().filter(|asked| is_about(&asked.path)).count();
        assert_eq!(about, 0);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_ne!(shard_at(&api, &scope, &path(CONFIG_MAPS, "o")), "unseen");
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_an_owner_by_a_write_without_an_answer_is_read_before_its_children_go_elsewhere() {
        // Not at all, before it is tried again, and afterwards, as a list that began before may be late.
        for shown_again in [None, Some(RETRY[0] / 2), Some(RETRY[0] * 2)] {
            let api = FakeApi::default();
            let scope = scope(&api);
            let (name, main, child) = owner_and_child(&api, &scope, "a", "gone");
            let unowned = object(&scope, &name, None);
            // It lands, the API server ends, and when it is there again the shard is late.
            lands(&api, &scope, &main, StatusCode::INTERNAL_SERVER_ERROR);
            let (sender, worker) = begin(&scope);
            sender.send(target(&scope, &unowned)).await.unwrap();
            if let Some(after) = shown_again {
                tokio::time::sleep(after).await;
                sender.send(target(&scope, &unowned)).await.unwrap();
            }
            tokio::time::sleep(RETRY[1]).await;
            assert_eq!(patched(&api, &child), 1, "it is with its owner, shown again: {shown_again:?}");
            assert_eq!(shard_at(&api, &scope, &child), "a");
            assert_eq!(scope.census.figures(&scope.snapshot.members)[&scope.main.resource.id].unassigned, 0);
            worker.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_failed_and_can_not_be_read_is_tried_again_and_makes_no_other_wait() {
        for hangs in [false, true] {
            let api = FakeApi::default();
            let scope = scope(&api);
            for name in ["x", "y"] {
                api.put(&path(CONFIG_MAPS, name), object(&scope, name, None));
            }
            let (of_y, start) = (path(CONFIG_MAPS, "y"), Instant::now());
            if hangs {
                api.slow(Method::GET, &of_y, READ * 4);
            }
            let mut fails: BTreeSet<_> = ["x", "y"].map(|name| path(CONFIG_MAPS, name)).into();
            api.intercept(move |asked, _| {
                let is_hidden = asked.method == Method::GET && asked.path == of_y && start.elapsed() < RETRY[0] * 4;
                let fails = is_hidden || (asked.method == Method::PATCH && fails.remove(&asked.path));
                fails.then_some(StatusCode::INTERNAL_SERVER_ERROR)
            });
            let (sender, worker) = begin(&scope);
            for name in ["x", "y"] {
                let target = target(&scope, &api.get(&path(CONFIG_MAPS, name)).unwrap());
                sender.send(target).await.unwrap();
            }
            tokio::time::sleep(RETRY[1] / 3).await;
            assert!(is_owned(&api, &scope, "x"), "hangs: {hangs}");
            assert_eq!(is_owned(&api, &scope, "y"), !hangs);
            // It is given more time each time.
            tokio::time::sleep(RETRY[1] * 6).await;
            assert!(is_owned(&api, &scope, "y"), "hangs: {hangs}");
            worker.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_and_is_gone_counts_no_longer() {
        let api = FakeApi::default();
        let scope = scope(&api);
        api.put(&path(CONFIG_MAPS, "x"), object(&scope, "x", None));
        api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::INTERNAL_SERVER_ERROR));
        let (sender, worker) = begin(&scope);
        sender.send(target(&scope, &object(&scope, "x", None))).await.unwrap();
        tokio::time::sleep(RETRY[0] / 2).await;
        let unassigned = || scope.census.figures(&scope.snapshot.members)[&scope.main.resource.id].unassigned;
        assert_eq!(unassigned(), 1);
        api.remove(&path(CONFIG_MAPS, "x"));
        tokio::time::sleep(RETRY[0]).await;
        assert_eq!(unassigned(), 0);
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_write_that_landed_without_an_answer_late_children_are_looked_for() {
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::UNPROCESSABLE_ENTITY] {
            let api = FakeApi::default();
            let scope = scope(&api);
            let name = name_of("a", &scope);
            let (main, child) = (path(CONFIG_MAPS, &name), path(SECRETS, "child"));
            let left = object(&scope, &name, Some("gone"));
            api.put(&main, left.clone());
            let (of_main, labels) = (main.clone(), scope.snapshot.labels.clone());
            api.intercept(move |asked, objects| {
                let assigns = asked.body.to_string().contains("\"a\"");
                let is_assigned = objects[&of_main]["metadata"]["labels"][&labels.shard] == "a";
                (asked.method == Method::PATCH && asked.path == of_main && assigns && !is_assigned).then(|| {
                    objects.get_mut(&of_main).unwrap()["metadata"]["labels"] = json!({ &labels.shard: "a" });
                    status
                })
            });
            let (sender, worker) = begin_with_looks(&scope);
            sender.send(target(&scope, &left)).await.unwrap();
            tokio::time::sleep(RETRY[0] * 2).await;
            assert_eq!(shard_at(&api, &scope, &main), "a");
            api.put(&child, owned(object(&scope, "child", Some("gone")), &name));
            tokio::time::sleep(RETRY[1] * 2).await;
            assert_eq!(shard_at(&api, &scope, &child), "a", "{status}");
            worker.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_is_sent_ahead_too_late_is_brought_back() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (name, main, child) = owner_and_child(&api, &scope, "b", "b");
        let unowned = object(&scope, &name, None);
        scope.newest.set(Some(late("b")));
        // Its patch has no answer, and is carried out when the owner is where the child was, as that shard is in time again.
        let (of_main, of_child, labels) = (main.clone(), child.clone(), scope.snapshot.labels.clone());
        let newest = scope.newest.clone();
        let mut first = true;
        api.intercept(move |asked, objects| {
            if asked.method != Method::PATCH || asked.path != of_child || !std::mem::take(&mut first) {
                return None;
            }
            objects.get_mut(&of_main).unwrap()["metadata"]["labels"] = json!({ &labels.shard: "b" });
            newest.set(None);
            Some(StatusCode::GATEWAY_TIMEOUT)
        });
        let (sender, worker) = begin_with_looks(&scope);
        sender.send(target(&scope, &unowned)).await.unwrap();
        tokio::time::sleep(RETRY[0] * 4).await;
        assert!(!scope.begun.has(&target(&scope, &unowned).uid), "all are together");
        api.put(&child, owned(object(&scope, "child", Some("a")), &name));
        tokio::time::sleep(RETRY[1] * 2).await;
        assert_eq!(shard_at(&api, &scope, &child), "b");
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_begun_anew_waits_for_the_writes_that_were_under_way() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (_, main, child) = owner_and_child(&api, &scope, "a", "gone");
        api.slow(Method::PATCH, &main, RETRY[1] + PATIENCE / 2);
        // More than can be kept in mind.
        for number in 0..=CAPACITY {
            let stuck = format!("stuck-{number}");
            api.put(&path(CONFIG_MAPS, &stuck), object(&scope, &stuck, None));
        }
        let is_stuck = |path: &str| path.contains("/stuck-");
        api.intercept(move |asked, _| {
            (asked.method == Method::PATCH && is_stuck(&asked.path)).then_some(StatusCode::UNPROCESSABLE_ENTITY)
        });
        let worker_scope = scope.clone();
        let worker = tokio::spawn(async move { assign(&worker_scope).await });
        tokio::time::sleep(SYNC / 2).await;
        scope.newest.set(Some(late("a")));
        let lists = || api.asked().iter().filter(|asked| asked.path.ends_with("/configmaps")).count();
        let before = lists();
        tokio::time::sleep(SYNC).await;
        assert!(lists() > before, "it was begun anew");
        assert_eq!((patched(&api, &main), patched(&api, &child)), (1, 1));
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_turns_out_to_have_an_owner_is_not_begun_anew_by_how_it_was() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (name, main, child) = owner_and_child(&api, &scope, "a", "gone");
        let unowned = object(&scope, &name, None);
        // The client repeated the write by itself, and the first one had landed.
        lands(&api, &scope, &main, StatusCode::UNPROCESSABLE_ENTITY);
        let (sender, worker) = begin(&scope);
        for _ in 0..2 {
            sender.send(target(&scope, &unowned)).await.unwrap();
            tokio::time::sleep(RETRY[1]).await;
        }
        assert_eq!(patched(&api, &child), 1);
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_next_does_not_wait_for_what_is_being_written() {
        let api = FakeApi::default();
        let mut scope = scope(&api);
        scope.main.controlled.clear();
        api.slow_writes(Duration::from_secs(10));
        let (sender, worker) = begin(&scope);
        for name in ["first", "next"] {
            let object = object(&scope, name, None);
            api.put(&path(CONFIG_MAPS, name), object.clone());
            sender.send(target(&scope, &object)).await.unwrap();
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
        let ((sender, worker), start) = (begin(&scope), Instant::now());
        let stuck = (0..=CAPACITY).map(|i| format!("stuck-{i}"));
        for name in stuck.chain(["later".to_owned()]) {
            let object = object(&scope, &name, None);
            api.put(&path(CONFIG_MAPS, &name), object.clone());
            sender.send(target(&scope, &object)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(is_owned(&api, &scope, "later"));
        assert_eq!(scope.faults.of(&scope.snapshot).len(), 1, "they are told in the status");
        worker.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), SYNC.as_secs(), "the watch begins anew, with all of them");
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_that_are_refused_hold_up_no_other_object_and_are_seldom_tried() {
        let api = FakeApi::default();
        let mut scope = scope(&api);
        scope.main.controlled.clear();
        api.intercept(|asked, _| {
            (asked.method == Method::PATCH && asked.path.contains("stuck")).then_some(StatusCode::UNPROCESSABLE_ENTITY)
        });
        let (sender, worker) = begin(&scope);
        let put = async |name: String| {
            let object = object(&scope, &name, None);
            api.put(&path(CONFIG_MAPS, &name), object.clone());
            sender.send(target(&scope, &object)).await.unwrap();
        };
        for number in 0..CAPACITY {
            put(format!("stuck-{number}")).await;
        }
        tokio::time::sleep(RETRY[0] * 10).await;
        let before = api.asked().len();
        put("good".to_owned()).await;
        tokio::time::sleep(RETRY[0]).await;
        assert!(is_owned(&api, &scope, "good"));
        assert!(api.asked().len() - before < 10, "{}", api.asked().len() - before);
        tokio::time::sleep(SYNC * 2).await;
        let tries = api.writes().len() / CAPACITY;
        assert!(tries <= 4, "each was tried {tries} times");
        // What is mended is not waited for.
        api.intercept(|_, _| None);
        let mut mended = object(&scope, "stuck-0", None);
        mended["metadata"]["resourceVersion"] = json!("8");
        api.put(&path(CONFIG_MAPS, "stuck-0"), mended.clone());
        sender.send(target(&scope, &mended)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(is_owned(&api, &scope, "stuck-0"));
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_whose_label_is_taken_back_is_written_seldom_although_each_write_is_shown() {
        let api = FakeApi::default();
        let mut scope = scope(&api);
        scope.main.controlled.clear();
        let at = path(CONFIG_MAPS, "o");
        api.put(&at, object(&scope, "o", None));
        api.put_labels_back();
        let (sender, worker) = begin(&scope);
        for _ in 0..1_200 {
            let shown = target(&scope, &api.get(&at).unwrap());
            sender.send(shown).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!((5..15).contains(&patched(&api, &at)), "{}", patched(&api, &at));
        worker.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_refused_for_a_minute_is_told_until_it_is_assigned() {
        for is_child in [false, true] {
            let api = FakeApi::default();
            let scope = scope(&api);
            let (name, main, child) = owner_and_child(&api, &scope, "a", "gone");
            let refused = if is_child { child } else { main.clone() };
            api.intercept(move |asked, _| {
                (asked.method == Method::PATCH && asked.path == refused).then_some(StatusCode::UNPROCESSABLE_ENTITY)
            });
            let (sender, worker) = begin(&scope);
            sender.send(target(&scope, &object(&scope, &name, None))).await.unwrap();
            tokio::time::sleep(LASTS / 2).await;
            assert_eq!(scope.faults.of(&scope.snapshot), Vec::<String>::new());
            tokio::time::sleep(LASTS).await;
            let told = scope.faults.of(&scope.snapshot).join("; ");
            let begins = format!("objects of 'configmaps' can't be labelled, 1 of them, such as 'default/{name}': ");
            assert!(told.starts_with(&begins) && told.contains("422"), "{told}");
            assert_eq!(told.contains("'secrets' that it controls"), is_child, "{told}");
            let (of, why) = scope.faults.take_untold(&scope.snapshot).unwrap();
            assert_eq!((of.kind.as_deref(), of.name.as_deref()), (Some("ConfigMap"), Some(&*name)));
            assert!(why.contains("422"), "{why}");
            api.intercept(|_, _| None);
            tokio::time::sleep(SYNC * 2).await;
            assert!(is_owned(&api, &scope, &name));
            assert_eq!(scope.faults.of(&scope.snapshot), Vec::<String>::new());
            worker.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_refused_and_gone_is_told_no_longer() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let gone = path(CONFIG_MAPS, "x");
        api.put(&gone, object(&scope, "x", None));
        api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::INTERNAL_SERVER_ERROR));
        let (sender, worker) = begin(&scope);
        sender.send(target(&scope, &object(&scope, "x", None))).await.unwrap();
        tokio::time::sleep(LASTS * 2).await;
        assert_eq!(scope.faults.of(&scope.snapshot).len(), 1);
        api.remove(&gone);
        tokio::time::sleep(RETRY[1] * 2).await;
        assert_eq!(scope.faults.of(&scope.snapshot), Vec::<String>::new());
        worker.abort();
    }
}
