//! When a drain is acknowledged, and when not, under a paused clock.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use kube::{
    core::{DynamicObject, ObjectMeta, PartialObjectMeta, PartialObjectMetaExt},
    runtime::watcher,
};
use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use tokio::time::{Instant, timeout};

use ringside_runtime::admin::{Health, Probe};

use super::{
    CONCURRENT, Handover,
    acknowledge::{Acknowledge, Attempt},
    ask::Shown,
    drains::{Drains, Reason, Report},
    follow::Work,
};
use crate::{
    fence::{About, CacheScope, Fence, Target, WriteGuard},
    membership::LeaseTerm,
    request::selector::Selector,
    views::{DrainingObject, Fields, Kind, Scope, View, Views, fixtures},
};

mod ending;
mod following;
mod settling;

const GRACE: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(30);

type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
struct Recorder {
    acknowledged: Arc<Mutex<Vec<(String, String)>>>,
    /// Is called by the next attempt, which then fails.
    failing: Arc<Mutex<Option<Meanwhile>>>,
    /// Why each attempt fails.
    refusing: Arc<Mutex<Option<String>>>,
    /// The questions, by the field selector that they are about, and the answers to come, the last one first.
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<Shown>>>,
}

impl Acknowledge for Recorder {
    async fn attempt(&self, object: &DrainingObject) -> Attempt {
        if let Some(reason) = self.refusing.lock().clone() {
            return Attempt::Again(reason);
        }
        if let Some(meanwhile) = self.failing.lock().take() {
            meanwhile();
            return Attempt::Again("the API server is busy".into());
        }
        self.acknowledged.lock().push((object.name.clone(), object.drain.clone()));
        Attempt::Done
    }

    async fn shown(&self, scope: &Scope, object: &DrainingObject) -> Shown {
        self.asked.lock().push(scope.fields.and_name(&object.name));
        self.answers.lock().pop().unwrap_or(Shown::Yes)
    }
}

struct Scene {
    work: Work<Recorder>,
    recorder: Recorder,
    views: Views,
    drains: Drains,
    handover: Handover,
}

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn at(version: u64) -> ResourceVersion {
    version.to_string().parse().unwrap()
}

fn watch(views: &Views, from: Option<u64>) -> View {
    fixtures::watch(views, things(), from)
}

fn list(views: &Views) -> View {
    views.open(fixtures::scope(things(), None), Kind::List).unwrap()
}

impl Scene {
    fn new() -> Self {
        let (views, drains, recorder) = (Views::new(), Drains::new(), Recorder::default());
        let ring = "example".parse().unwrap();
        let check = Health::new().check("drains", Probe::Ready);
        drains.set_deadline(DEADLINE);
        let handover =
            Handover::new(&ring, "me".parse().unwrap(), views.clone(), Fence::new(false), drains.clone(), GRACE, check);
        handover.fence.listed(&things(), handover.term);
        Self {
            work: Work::new(handover.clone(), things(), "Thing", recorder.clone()),
            recorder,
            views,
            drains,
            handover,
        }
    }

    fn object(&self, name: &str, version: u64, drain: &str) -> PartialObjectMeta<DynamicObject> {
        let keys = &self.handover.labels;
        let labels = BTreeMap::from([(keys.shard.clone(), "me".into()), (keys.drain.clone(), drain.into())]);
        let metadata = ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-{name}")),
            resource_version: Some(version.to_string()),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        metadata.into_response_partial()
    }

    fn drained(&mut self, name: &str, version: u64, drain: &str) {
        let object = self.object(name, version, drain);
        self.work.take(watcher::Event::Apply(object));
    }

    /// Lets the drains go on for a time.
    async fn pass(&mut self, time: Duration) {
        let start = Instant::now();
        let all = async {
            while let Some(ended) = self.work.under_way.next().await {
                self.work.forget(ended.as_ref());
            }
        };
        let _ = timeout(time, all).await;
        tokio::time::sleep_until(start + time).await;
    }

    fn acknowledged(&self) -> Vec<(String, String)> {
        self.recorder.acknowledged.lock().clone()
    }
}

fn ack(name: &str, drain: &str) -> (String, String) {
    (name.to_owned(), drain.to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_the_first_list_shows_was_drained_before_this_hold_on_the_lease_and_all_else_within() {
    use watcher::Event::{Apply, Init, InitApply, InitDone};
    let (scene, term) = (Scene::new(), LeaseTerm::new("me".parse().unwrap(), "s=me".into(), || true));
    let handover = scene.handover.during(&term);
    let mut work = Work::new(handover.clone(), things(), "Thing", scene.recorder.clone());
    let [before, since, missed] = ["before", "since", "missed"].map(|name| scene.object(name, 10, "m1"));
    for event in [Init, InitApply(before.clone()), InitDone, Apply(since.clone())] {
        work.take(event);
    }
    let cache_scope = CacheScope { term, policy: Arc::default() };
    // Also before anything of it goes on.
    assert!(!handover.fence.was_ours(&cache_scope, &things(), "uid-before"));
    // The watch breaks, and lists again.
    for event in [Init, InitApply(before), InitApply(since), InitApply(missed), InitDone] {
        work.take(event);
    }
    let _ = work.under_way.next().now_or_never();
    for (name, within) in [("before", false), ("since", true), ("missed", true)] {
        assert_eq!(handover.fence.lets_go_of(&cache_scope, &format!("uid-{name}")), within, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_acknowledged_after_every_watch_saw_it_go_and_the_grace() {
    let mut scene = Scene::new();
    let (fast, slow) = (watch(&scene.views, Some(5)), watch(&scene.views, None));
    scene.drained("a", 10, "m1");
    fast.advance(&at(10));
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), [], "one watch has not seen it go");
    assert_eq!(scene.drains.all(Instant::now()), (1, 10 * GRACE));
    slow.advance(&at(10));
    scene.pass(GRACE - Duration::from_millis(1)).await;
    assert_eq!(scene.acknowledged(), [], "the grace is not over");
    scene.pass(Duration::from_millis(2)).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
    assert_eq!(scene.drains.all(Instant::now()), (0, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_others_write_begins_no_grace_anew_and_asks_no_more_of_the_watches() {
    let mut scene = Scene::new();
    let _watch = watch(&scene.views, Some(10));
    scene.drained("a", 10, "m1");
    for version in 11..15 {
        scene.pass(GRACE / 5).await;
        scene.drained("a", version, "m1");
    }
    assert_eq!(scene.acknowledged(), []);
    scene.pass(GRACE / 5 + Duration::from_millis(1)).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")], "the watch at 10 is past the drain at 10");
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_the_drain_asks_for_is_kept_to_where_it_is_longer() {
    for (drain, grace) in [("m.1ms", GRACE), ("m.5000ms", Duration::from_secs(5))] {
        let mut scene = Scene::new();
        scene.drained("a", 10, drain);
        scene.pass(grace - Duration::from_millis(1)).await;
        assert_eq!(scene.acknowledged(), []);
        scene.pass(Duration::from_millis(2)).await;
        assert_eq!(scene.acknowledged(), [ack("a", drain)]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_move_is_another_drain_and_one_that_is_gone_is_none() {
    let mut scene = Scene::new();
    let watch = watch(&scene.views, Some(10));
    scene.drained("a", 10, "m1");
    scene.drained("b", 10, "m1");
    scene.pass(GRACE / 2).await;
    scene.drained("a", 20, "m2");
    let gone = scene.object("b", 21, "m1");
    scene.work.take(watcher::Event::Delete(gone));
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), [], "the watch is not past the second drain");
    watch.advance(&at(20));
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m2")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_opened_from_before_the_drain_during_the_grace_holds_it() {
    let mut scene = Scene::new();
    scene.drained("a", 10, "m1");
    scene.pass(GRACE / 2).await;
    let old = watch(&scene.views, Some(9));
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), []);
    old.advance(&at(10));
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_opened_from_before_the_drain_while_waiting_for_a_seat_holds_it() {
    let mut scene = Scene::new();
    let seats = scene.handover.seats.clone();
    let all = seats.acquire_many(u32::try_from(CONCURRENT).unwrap()).await.unwrap();
    scene.drained("a", 10, "m1");
    scene.pass(2 * GRACE).await;
    let old = watch(&scene.views, Some(9));
    drop(all);
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), []);
    assert_eq!(seats.available_permits(), CONCURRENT, "who waits for a watch holds no seat");
    old.advance(&at(10));
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_opened_from_before_the_drain_holds_the_next_attempt_too() {
    let mut scene = Scene::new();
    let opened: Arc<Mutex<Option<View>>> = Arc::default();
    let (views, keep) = (scene.views.clone(), opened.clone());
    *scene.recorder.failing.lock() = Some(Box::new(move || {
        *keep.lock() = Some(list(&views));
    }));
    scene.drained("a", 10, "m1");
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), []);
    opened.lock().take();
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_still_drained_after_its_work_has_ended_is_work_again() {
    let mut scene = Scene::new();
    scene.drained("a", 10, "m1");
    scene.pass(2 * GRACE).await;
    scene.drained("a", 20, "m1");
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1"), ack("a", "m1")]);
}

#[tokio::test(start_paused = true)]
async fn a_new_list_forgets_what_it_does_not_name() {
    let mut scene = Scene::new();
    scene.drained("a", 10, "m1");
    scene.drained("b", 11, "m1");
    scene.work.take(watcher::Event::Init);
    let still = scene.object("b", 12, "m1");
    scene.work.take(watcher::Event::InitApply(still));
    scene.work.take(watcher::Event::InitDone);
    scene.pass(4 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("b", "m1")]);
}

/// As the sharder does behind the API server's fence, when a list in pages holds a drain for too long.
#[tokio::test(start_paused = true)]
async fn what_is_taken_without_an_acknowledgement_no_later_page_shows() {
    for listed_again in [false, true] {
        let mut scene = Scene::new();
        let page = |views: &Views| views.open(fixtures::scope(things(), None), Kind::Page(at(9)));
        let first = page(&scene.views).unwrap();
        scene.drained("a", 10, "m1");
        scene.pass(4 * GRACE).await;
        assert_eq!(scene.acknowledged(), [], "held by the page");
        drop(page(&scene.views).unwrap());
        let taken = scene.object("a", 11, "m1");
        let events = match listed_again {
            true => vec![watcher::Event::Init, watcher::Event::InitDone],
            false => vec![watcher::Event::Delete(taken)],
        };
        events.into_iter().for_each(|event| scene.work.take(event));
        assert!(page(&scene.views).is_err(), "listed again: {listed_again}");
        drop(first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_past_its_deadline_is_reported_once() {
    let mut scene = Scene::new();
    let _list = list(&scene.views);
    scene.drained("a", 10, "m1");
    scene.drained("b", 11, "m1");
    scene.pass(DEADLINE / 2).await;
    assert!(scene.drains.report(Instant::now()).is_empty());
    scene.pass(DEADLINE).await;
    let [Report { reason: Reason::Held, line, .. }] = &scene.drains.report(Instant::now())[..] else { panic!("one") };
    for part in ["2 drained objects", "longer than 30s", "things.x.io ns/", "drained 45s ago", "watch or list"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(scene.drains.report(Instant::now()).is_empty());
    assert_eq!(scene.drains.refused(Instant::now()).0, 0);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_is_refused_for_good_is_counted_and_told_and_leaves_the_fence_closed() {
    let mut scene = Scene::new();
    let fence = scene.handover.fence.clone();
    *scene.recorder.refusing.lock() = Some("spec.size: Invalid value".into());
    scene.drained("a", 10, "m1");
    scene.pass(2 * DEADLINE).await;
    assert_eq!(scene.drains.refused(Instant::now()), (1, 2 * DEADLINE));
    let [Report { reason: Reason::Refused, line, .. }] = &scene.drains.report(Instant::now())[..] else {
        panic!("one")
    };
    assert!(line.contains("ns/a") && line.contains("spec.size: Invalid value"), "{line}");
    assert!(scene.drains.report(Instant::now()).is_empty(), "of each once");
    assert!(fence.has_moved("uid-a"), "the controller has seen it go, and no shard works on it");

    // One that is told as held already is told once more, with what the API server says.
    let list = list(&scene.views);
    scene.drained("b", 11, "m1");
    scene.pass(DEADLINE).await;
    let told = |scene: &Scene| scene.drains.report(Instant::now()).iter().map(|it| it.reason).collect::<Vec<_>>();
    assert_eq!(told(&scene), [Reason::Held]);
    drop(list);
    scene.pass(2 * GRACE).await;
    assert_eq!(told(&scene), [Reason::Refused]);

    *scene.recorder.refusing.lock() = None;
    scene.pass(DEADLINE).await;
    let mut acknowledged = scene.acknowledged();
    acknowledged.sort();
    assert_eq!(acknowledged, [ack("a", "m1"), ack("b", "m1")]);
    assert_eq!(scene.drains.refused(Instant::now()).0, 0);
}

/// Its shard may not write the object, say. What the fence was closed for is asked about, until the labels say whose it is.
#[tokio::test(start_paused = true)]
async fn a_drain_that_is_taken_back_is_over_and_the_next_one_is_work_again() {
    let mut scene = Scene::new();
    let fence = scene.handover.fence.clone();
    *scene.recorder.refusing.lock() = Some("missing permission".into());
    scene.drained("a", 10, "m1");
    scene.pass(DEADLINE).await;
    assert_eq!(scene.drains.all(Instant::now()).0, 1);
    let back = scene.object("a", 20, "m1");
    scene.work.take(watcher::Event::Delete(back));
    *scene.recorder.refusing.lock() = None;
    scene.pass(DEADLINE).await;
    assert_eq!((scene.drains.all(Instant::now()).0, scene.acknowledged()), (0, vec![]));
    assert!(fence.has_moved("uid-a"), "the labels are asked for");
    let term = LeaseTerm::new("me".parse().unwrap(), "s=me".into(), || true);
    let cache_scope = CacheScope { term, policy: Arc::default() };
    let target = Target { resource: things(), namespace: Some("ns".into()), name: Some("a".into()) };
    let asked = fence.asking();
    fence.record_owned(&cache_scope, &target, &"uid-a".into(), None, asked);
    assert!(!fence.has_moved("uid-a"), "it is this shard's");
    scene.drained("a", 30, "m2");
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m2")]);
}

fn about(name: &str) -> About {
    let target = Target { resource: things(), namespace: Some("ns".into()), name: Some(name.into()) };
    About { target: Some(target), uids: std::collections::HashSet::new() }
}

/// A write that is sent, and answered when it is dropped.
fn write(fence: &Fence, name: &str) -> WriteGuard {
    let write_guard = fence.enter(about(name));
    write_guard.sent();
    write_guard.answered();
    write_guard
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_holds_the_acknowledgement_and_none_begins_after_it() {
    let mut scene = Scene::new();
    let fence = scene.handover.fence.clone();
    let writing = write(&fence, "a");
    scene.drained("a", 10, "m1");
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), []);
    drop(writing);
    scene.pass(GRACE - Duration::from_millis(1)).await;
    assert_eq!(scene.acknowledged(), [], "the grace begins with its end");
    assert!(!fence.has_moved("uid-a"));
    scene.pass(Duration::from_millis(2)).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
    assert!(fence.has_moved("uid-a"), "the fence is closed");
}

#[tokio::test(start_paused = true)]
async fn a_request_while_the_acknowledgement_waits_for_a_seat_holds_it() {
    let mut scene = Scene::new();
    let seats = scene.handover.seats.clone();
    let all = seats.acquire_many(u32::try_from(CONCURRENT).unwrap()).await.unwrap();
    scene.drained("a", 10, "m1");
    scene.pass(2 * GRACE).await;
    let writing = write(&scene.handover.fence, "a");
    drop(all);
    scene.pass(10 * GRACE).await;
    assert_eq!(scene.acknowledged(), []);
    drop(writing);
    scene.pass(2 * GRACE).await;
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_failed_is_not_held_by_what_is_refused_meanwhile() {
    let mut scene = Scene::new();
    let fence = scene.handover.fence.clone();
    let late = fence.clone();
    *scene.recorder.failing.lock() = Some(Box::new(move || drop(late.enter(about("a")))));
    scene.drained("a", 10, "m1");
    scene.pass(GRACE + Duration::from_secs(1)).await;
    assert!(fence.has_moved("uid-a"));
    assert_eq!(scene.acknowledged(), [ack("a", "m1")]);
}
