//! When a shard has left, under a paused clock.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use ringside_runtime::admin::{Health, Probe};

use super::*;
use crate::{controller::Mode, election::waits::Waits, handover::Drained, views::Views};

const WITHIN: Duration = Duration::from_secs(20);

/// A shard with a working controller.
struct Scene {
    leave: Leave,
    controller: Controller,
    drains: Drains,
    /// Objects that are left.
    left: AtomicUsize,
}

impl Scene {
    fn new(left: usize) -> Self {
        let check = Health::new().check("controller", Probe::Note);
        let views = (Views::new(), Waits::default());
        let controller = Controller::new(Mode::Always, Duration::from_secs(15), views, false, check);
        Self { leave: Leave::new(), controller, drains: Drains::new(), left: AtomicUsize::new(left) }
    }

    /// Does `what` while the Lease is held.
    async fn while_held<T>(&self, what: impl Future<Output = T>) -> T {
        let is_any_left = async || self.left.load(Ordering::Relaxed) > 0;
        tokio::select! {
            never = self.leave.give_away(&self.controller, &self.drains, is_any_left) => match never {},
            done = what => done,
        }
    }

    /// The sharder asks for an object every second, until none is left.
    async fn drain_all(&self) {
        while self.left.load(Ordering::Relaxed) > 0 {
            let drain = self.drains.begin(Arc::new(drained()), Instant::now());
            sleep(Duration::from_secs(1)).await;
            self.left.fetch_sub(1, Ordering::Relaxed);
            drop(drain);
        }
    }
}

fn drained() -> Drained {
    Drained {
        resource: GroupResource { group: String::new(), resource: "things".into() },
        namespace: Some("default".into()),
        name: "a".into(),
        uid: "u".into(),
        kind: "Thing".into(),
        drain: "m".into(),
        labels: BTreeMap::new(),
        version: "1".parse::<ResourceVersion>().unwrap(),
        is_exact: true,
    }
}

#[tokio::test(start_paused = true)]
async fn controller_works_until_the_last_object_is_handed_over() {
    let (scene, start) = (Scene::new(8), Instant::now());
    let both = async { tokio::join!(scene.leave.begin(WITHIN), scene.leave.ended(), scene.drain_all()) };
    let (begun, waited, ()) = scene.while_held(both).await;
    assert_eq!((begun, waited), (Outcome::Empty, Outcome::Empty));
    assert!((8..10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(scene.controller.said(), Some("leaving"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_that_nobody_asks_for() {
    let (scene, start) = (Scene::new(1), Instant::now());
    assert_eq!(scene.while_held(scene.leave.begin(WITHIN)).await, Outcome::NotAskedFor);
    assert!((5..7).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(scene.leave.ended().await, Outcome::NotAskedFor, "for who comes later too");
}

#[tokio::test(start_paused = true)]
async fn time_ends_it_also_without_the_lease() {
    let (scene, start) = (Scene::new(100), Instant::now());
    let both = async { tokio::join!(scene.leave.begin(WITHIN), scene.drain_all()).0 };
    let first = tokio::select! { biased; outcome = scene.while_held(scene.leave.ended()) => outcome, _ = both => Outcome::Stays };
    assert_eq!((first, start.elapsed()), (Outcome::OutOfTime, WITHIN));
    let (scene, start) = (Scene::new(1), Instant::now());
    assert_eq!((scene.leave.begin(WITHIN).await, start.elapsed()), (Outcome::OutOfTime, WITHIN));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_restarts_alone_waits_for_nothing() {
    let (scene, start) = (Scene::new(3), Instant::now());
    assert_eq!(scene.while_held(scene.leave.ended()).await, Outcome::Stays);
    assert_eq!(start.elapsed(), BEGINS_WITHIN);
    assert_eq!(scene.controller.said(), Some("working"));
}

#[test]
fn only_the_pod_itself_can_have_its_replica_leave() {
    for (peer, local) in [
        ("127.0.0.1:1", true),
        ("[::1]:1", true),
        ("[::ffff:127.0.0.1]:1", true),
        ("10.1.2.3:1", false),
        ("[fd00::1]:1", false),
    ] {
        assert_eq!(is_local(peer.parse().unwrap()), local, "{peer}");
    }
}
