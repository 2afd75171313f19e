#![allow(clippy::unwrap_used)]

use futures::FutureExt as _;
use ringside_ring::{
    ClusterRing,
    cluster_ring::{ClusterRingSpec, RingResource},
};
use ringside_runtime::admin::{Health, Probe};
use tokio::time::sleep;

use super::*;
use crate::{
    policy::{self, Policy},
    views::{
        Kind, View,
        fixtures::{scope, watch},
    },
};

const LEASE: Duration = Duration::from_secs(15);
const MOMENT: Duration = Duration::from_secs(1);

fn resource(name: &str) -> GroupResource {
    GroupResource { group: String::new(), resource: name.into() }
}

fn ring(mains: &[&str]) -> RingState {
    let resources = mains.iter().map(|name| RingResource { resource: (*name).into(), ..RingResource::default() });
    let spec = ClusterRingSpec { resources: resources.collect(), ..ClusterRingSpec::default() };
    RingState::Known(Arc::new(Policy::of(&ClusterRing::new("example", spec).into())))
}

/// A proxy that holds its Lease, in a ring of two resources.
struct Scene {
    controller: Controller,
    views: Views,
    waits: Waits,
    health: Health,
    ring: watch::Sender<RingState>,
}

impl Scene {
    fn new(mode: Mode, restarted: bool) -> Self {
        let (views, health, ring_known) = (Views::new(), Health::new(), policy::ring_state());
        ring_known.send_replace(ring(&["as", "bs"]));
        let (waits, check) = (Waits::default(), health.check("controller", Probe::Note));
        let controller = Controller::new(mode, LEASE, (views.clone(), waits.clone()), restarted, check);
        Self { controller, views, waits, health, ring: ring_known }
    }

    /// Lets so much time pass.
    async fn during(&self, time: Duration) {
        self.held_since(Instant::now(), time).await;
    }

    async fn held_since(&self, began: Instant, time: Duration) {
        tokio::select! {
            never = self.controller.judge(began, self.ring.subscribe()) => match never {},
            () = sleep(time) => {}
        }
    }

    fn watch(&self, name: &str) -> View {
        watch(&self.views, resource(name), Some(1))
    }

    fn said(&self) -> Option<&'static str> {
        self.controller.said()
    }
}

#[tokio::test(start_paused = true)]
async fn controller_works_once_it_watches_every_main_resource() {
    let scene = Scene::new(Mode::Watching, false);
    assert_eq!(scene.said(), Some("absent"), "the proxy starts before it");
    let story = async {
        let _one = scene.watch("as");
        sleep(MOMENT).await;
        assert_eq!(scene.said(), Some("absent"));
        assert_eq!(scene.health.failures(Probe::Note), ["controller: no objects for the shard; no view of: bs"]);
        assert!(scene.health.failures(Probe::Ready).is_empty(), "its pod may have to be ready first");
        let _other = scene.watch("bs");
        sleep(Duration::from_millis(1)).await;
        assert_eq!((scene.said(), scene.controller.absent_for()), (Some("working"), Duration::ZERO));
        sleep(10 * LEASE).await;
        assert_eq!(scene.said(), Some("working"));
        assert!(scene.health.failures(Probe::Note).is_empty());
    };
    let began = Instant::now();
    tokio::select! {
        never = scene.controller.judge(began, scene.ring.subscribe()) => match never {},
        () = story => {}
    }
}

/// As of a definition that is yet to be installed: no replica could work otherwise.
#[tokio::test(start_paused = true)]
async fn of_a_resource_that_is_not_served_there_is_no_view_to_wait_for() {
    let scene = Scene::new(Mode::Watching, false);
    let story = async {
        let _one = scene.watch("as");
        sleep(MOMENT).await;
        assert_eq!(scene.said(), Some("absent"));
        scene.views.is_served(&resource("bs"), false);
        sleep(10 * LEASE).await;
        assert_eq!(scene.said(), Some("working"));
        // It is served from now on, and the controller has its time.
        scene.views.is_served(&resource("bs"), true);
        sleep(LEASE).await;
        assert_eq!(scene.said(), Some("working"));
        sleep(4 * LEASE).await;
        assert_eq!(scene.said(), Some("absent"));
    };
    tokio::select! {
        never = scene.controller.judge(Instant::now(), scene.ring.subscribe()) => match never {},
        () = story => {}
    }
}

#[tokio::test(start_paused = true)]
async fn controller_is_absent_two_durations_after_its_last_view() {
    let scene = Scene::new(Mode::Watching, false);
    let began = Instant::now();
    let both = (scene.watch("as"), scene.watch("bs"));
    scene.held_since(began, 10 * LEASE).await;
    drop(both);
    scene.held_since(began, 2 * LEASE - MOMENT).await;
    assert_eq!(scene.said(), Some("working"), "a restart changes nothing");
    // One of them comes back, and the other does not.
    let one = scene.watch("as");
    scene.held_since(began, 2 * MOMENT).await;
    assert_eq!(scene.said(), Some("absent"));
    scene.held_since(began, LEASE).await;
    assert_eq!(scene.controller.absent_for(), LEASE + MOMENT);
    drop(one);
}

/// As in a crash loop: each start would take objects there, and the next end away.
#[tokio::test(start_paused = true)]
async fn controller_that_comes_back_works_again_only_once_it_stays() {
    let scene = Scene::new(Mode::Watching, false);
    let began = Instant::now();
    let both = || (scene.watch("as"), scene.watch("bs"));
    let first = both();
    scene.held_since(began, MOMENT).await;
    drop(first);
    scene.held_since(began, 3 * LEASE).await;
    for _ in 0..5 {
        let short = both();
        scene.held_since(began, 2 * MOMENT).await;
        drop(short);
        scene.held_since(began, 3 * LEASE).await;
        assert_eq!(scene.said(), Some("absent"));
    }
    let _stays = both();
    scene.held_since(began, 2 * LEASE - MOMENT).await;
    assert_eq!(scene.said(), Some("absent"));
    scene.held_since(began, LEASE).await;
    assert_eq!(scene.said(), Some("absent"), "that counts while it is judged");
    scene.held_since(began, 2 * LEASE + MOMENT).await;
    assert_eq!(scene.said(), Some("working"));
}

#[tokio::test(start_paused = true)]
async fn controller_that_lists_within_each_duration_works() {
    let scene = Scene::new(Mode::Watching, false);
    let list = |name: &str| {
        let view = scene.views.open(scope(resource(name), None), Kind::List).unwrap();
        drop(view.begun());
    };
    let began = Instant::now();
    for _ in 0..10 {
        list("as");
        list("bs");
        scene.held_since(began, LEASE - MOMENT).await;
        assert_eq!(scene.said(), Some("working"));
    }
    list("as");
    scene.held_since(began, LEASE + 2 * MOMENT).await;
    assert_eq!(scene.said(), Some("absent"), "of bs nothing was asked");
}

/// Informers of client-go pause for up to a minute after refusals.
#[tokio::test(start_paused = true)]
async fn controller_that_is_refused_has_the_time_to_try_again() {
    let scene = Scene::new(Mode::Watching, false);
    let began = Instant::now();
    let _stays = scene.watch("as");
    drop(scene.watch("bs"));
    scene.held_since(began, MOMENT).await;
    for _ in 0..3 {
        scene.views.open(scope(resource("bs"), None), Kind::List).unwrap().postponed();
        scene.held_since(began, Duration::from_secs(59)).await;
        assert_eq!(scene.said(), Some("working"));
    }
    scene.held_since(began, 2 * MOMENT).await;
    assert_eq!(scene.said(), Some("absent"));
}

/// As one that lacks a permission: it is answered again and again, and never sees an object.
#[tokio::test(start_paused = true)]
async fn controller_that_only_gets_refusals_does_not_work() {
    for postponed in [false, true] {
        let fresh = Scene::new(Mode::Watching, false);
        let worked = Scene::new(Mode::Watching, false);
        let stays = [&fresh, &worked].map(|scene| scene.watch("as"));
        let began = Instant::now();
        drop(worked.watch("bs"));
        worked.held_since(began, MOMENT).await;
        assert_eq!(worked.said(), Some("working"));
        for _ in 0..40 {
            for scene in [&fresh, &worked] {
                let asks = scene.views.open(scope(resource("bs"), None), Kind::List).unwrap();
                scene.held_since(began, MOMENT / 2).await;
                if postponed {
                    asks.postponed();
                }
                drop(asks);
                scene.held_since(began, MOMENT / 2).await;
            }
        }
        assert_eq!(fresh.said(), Some("absent"));
        assert_eq!(worked.said(), Some(if postponed { "working" } else { "absent" }), "{postponed}");
        drop(stays);
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_lease_or_a_new_resource_leaves_the_controller_its_time() {
    let scene = Scene::new(Mode::Watching, false);
    let both = (scene.watch("as"), scene.watch("bs"));
    scene.during(MOMENT).await;
    drop(both);
    // Without the Lease its requests are refused.
    sleep(10 * LEASE).await;
    assert_eq!(scene.said(), Some("working"));
    let began = Instant::now();
    scene.held_since(began, 2 * LEASE - MOMENT).await;
    assert_eq!(scene.said(), Some("working"));
    let _both = (scene.watch("as"), scene.watch("bs"));
    scene.held_since(began, 4 * LEASE).await;
    tokio::select! {
        never = scene.controller.judge(began, scene.ring.subscribe()) => match never {},
        () = async {
            sleep(MOMENT).await;
            scene.ring.send_replace(ring(&["as", "bs", "cs"]));
            sleep(2 * LEASE - MOMENT).await;
            assert_eq!(scene.said(), Some("working"));
            sleep(2 * MOMENT).await;
            assert_eq!(scene.said(), Some("absent"), "it does not watch all that the ring has now");
        } => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_proxy_leaves_what_the_lease_says_until_it_knows_better() {
    let scene = Scene::new(Mode::Watching, true);
    let began = Instant::now();
    scene.held_since(began, 2 * LEASE - MOMENT).await;
    assert_eq!(scene.said(), None);
    scene.held_since(began, 2 * MOMENT).await;
    assert_eq!(scene.said(), Some("absent"));
    let scene = Scene::new(Mode::Watching, true);
    let _both = (scene.watch("as"), scene.watch("bs"));
    scene.during(MOMENT).await;
    assert_eq!(scene.said(), Some("working"));
}

#[tokio::test(start_paused = true)]
async fn with_the_option_the_controller_works_whatever_it_asks_for() {
    let scene = Scene::new(Mode::Always, false);
    scene.during(10 * LEASE).await;
    assert_eq!(scene.said(), Some("working"));
    assert!(scene.controller.judge(Instant::now(), scene.ring.subscribe()).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn of_an_unknown_ring_nothing_is_said() {
    let scene = Scene::new(Mode::Watching, false);
    let both = (scene.watch("as"), scene.watch("bs"));
    scene.during(MOMENT).await;
    drop(both);
    scene.ring.send_replace(RingState::Unknown("it was deleted".to_owned()));
    scene.during(10 * LEASE).await;
    assert_eq!(scene.said(), Some("working"));
}

/// It watches before it leads, by a lock that is not answered here.
#[tokio::test(start_paused = true)]
async fn controller_that_waits_for_a_lock_of_another_is_absent() {
    let scene = Scene::new(Mode::Watching, false);
    let reads = async |holder: &str, times: u32| {
        for _ in 0..times {
            scene.waits.saw("endpoints ns/lock", holder, false, &["me"]);
            sleep(2 * MOMENT).await;
        }
    };
    let story = async {
        let _views = (scene.watch("as"), scene.watch("bs"));
        sleep(MOMENT).await;
        assert_eq!(scene.said(), Some("working"));
        reads("other_1", 14).await;
        assert_eq!(scene.said(), Some("working"), "a lead may change");
        reads("other_1", 2).await;
        assert_eq!(scene.said(), Some("absent"));
        let told = scene.health.failures(Probe::Note);
        assert!(told[0].contains("waits for endpoints ns/lock, which other_1 holds"), "{told:?}");
        reads("me_1", 1).await;
        assert_eq!(scene.said(), Some("absent"), "it has to stay");
        reads("me_1", 15).await;
        assert_eq!(scene.said(), Some("working"));
        assert!(scene.health.failures(Probe::Note).is_empty());
    };
    tokio::select! {
        never = scene.controller.judge(Instant::now(), scene.ring.subscribe()) => match never {},
        () = story => {}
    }
    // One that waits from the beginning on never counts as working.
    let scene = Scene::new(Mode::Watching, false);
    let story = async {
        for _ in 0..2 {
            scene.waits.saw("endpoints ns/lock", "other_1", false, &["me"]);
            sleep(MOMENT).await;
        }
        let _views = (scene.watch("as"), scene.watch("bs"));
        sleep(20 * MOMENT).await;
        assert_eq!(scene.said(), Some("absent"));
        // The controller asks no more: its lock is unknown by now.
        sleep(3 * LEASE).await;
        assert_eq!(scene.said(), Some("working"));
    };
    tokio::select! {
        never = scene.controller.judge(Instant::now(), scene.ring.subscribe()) => match never {},
        () = story => {}
    }
}
