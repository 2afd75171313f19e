//! When a shard has left, under a paused clock.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::admin::{Health, Probe};
use tower::ServiceExt as _;

use super::*;
use crate::{
    controller::Mode,
    election::waits::Waits,
    views::{Views, fixtures},
};

const WITHIN: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(2);

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
        Self { leave: Leave::new(GRACE), controller, drains: Drains::new(), left: AtomicUsize::new(left) }
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
            let things = GroupResource { group: String::new(), resource: "things".into() };
            let drain = self.drains.begin(fixtures::leaving(things, None, 1), Instant::now());
            sleep(Duration::from_secs(1)).await;
            self.left.fetch_sub(1, Ordering::Relaxed);
            drop(drain);
        }
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
async fn nothing_is_waited_for_that_the_sharder_does_not_ask_for() {
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
async fn no_object_is_idle_for_a_grace_that_outlasts_the_pod() {
    let scene = Scene::new(3);
    assert_eq!(scene.while_held(scene.leave.begin(GRACE)).await, Outcome::GraceTooLong);
    assert_eq!(scene.controller.said(), Some("working"), "the sharder is asked for nothing");
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_waited_for() {
    let (scene, start) = (Scene::new(3), Instant::now());
    scene.leave.without_lease();
    let both = async { tokio::join!(scene.leave.begin(WITHIN), async { scene.leave.without_lease() }).0 };
    assert_eq!((both.await, start.elapsed()), (Outcome::WithoutLease, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_restarts_alone_waits_for_nothing() {
    let (scene, start) = (Scene::new(3), Instant::now());
    assert_eq!(scene.while_held(scene.leave.ended()).await, Outcome::Stays);
    assert_eq!(start.elapsed(), BEGINS_WITHIN);
    assert_eq!(scene.controller.said(), Some("working"));
}

/// A container without the token can't have its replica leave. It may wait for that.
#[tokio::test(start_paused = true)]
async fn it_takes_the_local_token_to_have_a_replica_leave() {
    let scene = Scene::new(0);
    let routes = scene.leave.routes(Arc::new(Token::of("secret")));
    let ask = async |request: http::request::Builder| {
        let answer = routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    let leave = |token: Option<&str>| {
        let request = Request::post("/leave/20");
        match token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    };
    for wrong in [None, Some("other"), Some("")] {
        assert_eq!(scene.while_held(ask(leave(wrong))).await.0, StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
    let (status, said) = scene.while_held(ask(Request::get("/left"))).await;
    assert_eq!((status, said.as_str()), (StatusCode::OK, "this replica was not asked to leave\n"));
    let both = async { tokio::join!(ask(leave(Some("secret.0"))), ask(Request::get("/left"))) };
    let (asked, waited) = scene.while_held(both).await;
    assert_eq!(asked, (StatusCode::OK, "all objects are handed over\n".to_owned()));
    assert_eq!(waited, asked);
}
