//! Seats, on a paused clock.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, future::join_all};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::*;

fn xs() -> GroupResource {
    GroupResource { group: String::new(), resource: "xs".into() }
}

fn pace() -> Pace {
    Pace::new(Metrics::default())
}

fn of_all(lasts: Duration) -> Pause {
    Pause { lasts, group: None }
}

/// What an extension of the API server serves.
fn extended() -> GroupResource {
    GroupResource { group: "x.example.com".into(), resource: "zs".into() }
}

/// Takes all seats that there are.
fn fill(lane: &Lane) -> Vec<Seat> {
    std::iter::from_fn(|| lane.seat(Rank::Soon, &xs()).now_or_never()).collect()
}

/// An API server that works on some writes at once, and lets the others wait.
struct Server {
    works_on: Semaphore,
    takes: Duration,
}

impl Server {
    fn new(works_on: usize) -> Arc<Self> {
        Arc::new(Self { works_on: Semaphore::new(works_on), takes: Duration::from_millis(20) })
    }

    async fn write(&self) {
        let _working = self.works_on.acquire().await.unwrap();
        sleep(self.takes).await;
    }
}

/// Many writers for a while.
async fn writers(lane: &Lane, server: &Arc<Server>, resource: &GroupResource) {
    let mut writers = JoinSet::new();
    for _ in 0..100 {
        let (lane, server, resource) = (lane.clone(), server.clone(), resource.clone());
        writers.spawn(async move {
            loop {
                let _seat = lane.seat(Rank::Soon, &resource).await;
                server.write().await;
            }
        });
    }
    sleep(Duration::from_secs(20)).await;
    writers.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_seats_as_the_api_server_works_on_and_a_few_more() {
    let pace = pace();
    let lane = pace.lane();
    let mut seats = Vec::new();
    for works_on in [4, 16, 1, 16] {
        let server = Server::new(works_on);
        writers(&lane, &server, &xs()).await;
        seats.push(lane.limit() - works_on);
    }
    assert!(seats.iter().all(|waiting| (2..=6).contains(waiting)), "{seats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_takes_longer_than_others_is_no_slow_api_server() {
    let pace = pace();
    let lane = pace.lane();
    writers(&lane, &Server::new(20), &xs()).await;
    let before = lane.limit();
    let slow = Arc::new(Server { works_on: Semaphore::new(20), takes: Duration::from_millis(200) });
    let ys = GroupResource { group: String::new(), resource: "ys".into() };
    writers(&lane, &slow, &ys).await;
    assert!(lane.limit() >= before, "{} after {before}", lane.limit());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_api_server_asks_for_is_kept_and_halves_the_seats_once() {
    let pace = pace();
    let lane = pace.lane();
    let seats = lane.limit();
    let (start, pause) = (Instant::now(), Duration::from_secs(3));
    for _ in 0..seats {
        pace.throttled(&of_all(pause));
    }
    assert_eq!(lane.limit(), seats / 2);
    drop(lane.seat(Rank::Soon, &xs()).await);
    assert_eq!(start.elapsed(), pause);
    // Who waits already when it is asked for waits on.
    let taken = fill(&lane);
    let resource = xs();
    let mut next = std::pin::pin!(lane.seat(Rank::Soon, &resource));
    assert!(next.as_mut().now_or_never().is_none());
    pace.throttled(&of_all(pause));
    drop(taken);
    next.await;
    assert_eq!((start.elapsed(), lane.limit()), (2 * pause, seats / 4));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_an_extension_asks_for_holds_up_what_it_serves_and_nothing_else() {
    let mut registry = Registry::default();
    let pace = Pace::new(Metrics::register(&mut registry));
    let lane = pace.lane();
    let (seats, start, lasts) = (lane.limit(), Instant::now(), Duration::from_secs(30));
    let resource = extended();
    // What waits comes first, and is overtaken by what the pause is not about.
    let taken = fill(&lane);
    let mut held = std::pin::pin!(lane.seat(Rank::Soon, &resource));
    let other_resource = xs();
    let mut other = std::pin::pin!(lane.seat(Rank::Drain, &other_resource));
    assert!(held.as_mut().now_or_never().is_none() && other.as_mut().now_or_never().is_none());
    pace.throttled(&Pause { lasts, group: Some(resource.group.clone()) });
    drop(taken);
    assert!(held.as_mut().now_or_never().is_none());
    drop(other.as_mut().now_or_never().expect("it is of another group"));
    assert!(lane.limit() >= seats, "the API server has as much room as before");
    let seats = lane.limit();
    assert_eq!(fill(&lane).len(), seats);
    drop(held.await);
    assert_eq!(start.elapsed(), lasts);
    // One of the API server's own holds up that as well.
    let seats = lane.limit();
    pace.throttled(&of_all(lasts));
    drop(lane.seat(Rank::Soon, &resource).await);
    assert_eq!((start.elapsed(), lane.limit()), (2 * lasts, seats / 2));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains("controller_sharding_throttled_total 2\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_of_a_pause_alone_makes_for_no_more_seats() {
    let pace = pace();
    let (lane, server) = (pace.lane(), Server::new(MOST));
    let seats = lane.limit();
    let resource = extended();
    pace.throttled(&Pause { lasts: Duration::from_secs(1_000), group: Some(resource.group.clone()) });
    let mut held = std::pin::pin!(lane.seat(Rank::Soon, &resource));
    assert!(held.as_mut().now_or_never().is_none());
    for _ in 0..100 {
        let _seat = lane.seat(Rank::Soon, &xs()).await;
        server.write().await;
    }
    assert_eq!(lane.limit(), seats);
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_the_seats_come_back() {
    let pace = pace();
    let (lane, server) = (pace.lane(), Server::new(8));
    writers(&lane, &server, &xs()).await;
    let before = lane.limit();
    pace.throttled(&of_all(Duration::from_secs(1)));
    assert_eq!(lane.limit(), before / 2);
    writers(&lane, &server, &xs()).await;
    assert!(lane.limit() >= before - 1, "{} after {before}", lane.limit());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_asked_to_pause_says_nothing_about_latency() {
    let pace = pace();
    let (lane, server) = (pace.lane(), Server::new(24));
    writers(&lane, &server, &xs()).await;
    let mut seats = fill(&lane);
    pace.throttled(&of_all(Duration::from_millis(1)));
    let after = lane.limit();
    sleep(STUCK / 2).await;
    seats.clear();
    assert_eq!(lane.limit(), after);
}

#[tokio::test(start_paused = true)]
async fn rings_take_turns() {
    let pace = pace();
    let (busy, other) = (pace.lane(), pace.lane());
    let taken = fill(&busy);
    let order = Mutex::new(Vec::new());
    let write = async |lane: &Lane, name: &'static str| {
        let _seat = lane.seat(Rank::Soon, &xs()).await;
        order.lock().push(name);
        sleep(Duration::from_millis(1)).await;
    };
    let (many, few) = ((0..20).map(|_| write(&busy, "busy")), (0..3).map(|_| write(&other, "other")));
    let seats = busy.limit();
    let free = async move { drop(taken) };
    tokio::join!(join_all(many), join_all(few), free);
    let last = order.lock().iter().rposition(|name| *name == "other").unwrap();
    assert!(last < seats, "{:?}", order.lock());
}

#[tokio::test(start_paused = true)]
async fn a_ring_whose_writes_never_end_holds_up_nobody_else() {
    let pace = pace();
    let (stuck, other) = (pace.lane(), pace.lane());
    let begun = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..2 * OF_A_RING {
        let (lane, begun) = (stuck.clone(), begun.clone());
        writers.spawn(async move {
            let mut seat = lane.seat(Rank::Soon, &xs()).await;
            begun.fetch_add(1, Ordering::Relaxed);
            seat.until_stuck().await;
            std::future::pending::<()>().await;
        });
    }
    sleep(STUCK / 2).await;
    for _ in 0..100 {
        timeout(STUCK, other.seat(Rank::Soon, &xs())).await.expect("a seat in time");
        sleep(STUCK / 10).await;
    }
    assert_eq!(begun.load(Ordering::Relaxed), OF_A_RESOURCE);
    let another = GroupResource { group: String::new(), resource: "ys".to_owned() };
    for _ in 0..100 {
        timeout(STUCK, stuck.seat(Rank::Soon, &another)).await.expect("nor another resource of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_not_wait_comes_first_and_finds_a_seat() {
    let pace = pace();
    let lane = pace.lane();
    let seats = lane.limit();
    let mut many: Vec<_> = std::iter::from_fn(|| lane.seat(Rank::Many, &xs()).now_or_never()).collect();
    assert_eq!(many.len(), seats - seats / 4);
    let soon = fill(&lane);
    assert_eq!(soon.len(), seats / 4);
    let resource = xs();
    let [mut drains, mut next, mut first] =
        [Rank::Drain, Rank::Many, Rank::Soon].map(|rank| Box::pin(lane.seat(rank, &resource)));
    for waits in [&mut drains, &mut next, &mut first] {
        assert!(waits.now_or_never().is_none());
    }
    drop(soon);
    assert!(next.as_mut().now_or_never().is_none() && drains.as_mut().now_or_never().is_none());
    assert!(first.as_mut().now_or_never().is_some());
    let _all_but_one = many.split_off(1);
    drop(many);
    let _next = next.now_or_never().expect("before drains");
    assert!(drains.as_mut().now_or_never().is_none());
}

/// What waits there is under way, and takes no seat longer than others do: only its answer tells.
#[tokio::test(start_paused = true)]
async fn what_can_not_wait_waits_also_in_the_api_server() {
    let pace = pace();
    let lane = pace.lane();
    let (shortest, behind) = (Duration::from_millis(5), Duration::from_millis(30));
    let write = async |rank, takes| {
        let _seat = lane.seat(rank, &xs()).await;
        sleep(takes).await;
    };
    write(Rank::Soon, shortest).await;
    assert_eq!(lane.take_longest_wait(), Duration::ZERO);
    write(Rank::Soon, shortest + behind).await;
    write(Rank::Soon, shortest).await;
    assert_eq!(lane.take_longest_wait(), behind);
    // Who can wait may do so, and what is stuck is so for reasons of its own.
    write(Rank::Many, shortest + behind).await;
    write(Rank::Soon, STUCK * 2).await;
    assert_eq!(lane.take_longest_wait(), Duration::ZERO);
    // For the seat, and then there.
    let taken = fill(&lane);
    let resource = xs();
    let mut next = Box::pin(lane.seat(Rank::Soon, &resource));
    assert!(next.as_mut().now_or_never().is_none());
    sleep(behind).await;
    drop(taken);
    lane.take_longest_wait();
    let seat = next.await;
    sleep(shortest + behind).await;
    drop(seat);
    assert_eq!(lane.take_longest_wait(), behind * 2);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_any_more_leaves_no_trace() {
    let pace = pace();
    let lane = pace.lane();
    let taken = fill(&lane);
    for _ in 0..10_000 {
        assert!(lane.seat(Rank::Soon, &xs()).now_or_never().is_none());
    }
    drop(taken);
    assert_eq!(fill(&lane).len(), lane.limit());
    let state = pace.0.state.lock();
    assert!(state.rings.is_empty() && state.turns.is_empty() && state.taken == 0);
}
