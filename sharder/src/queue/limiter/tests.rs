//! Permits, on a paused clock.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicUsize;

use futures::{FutureExt, future::join_all};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    sync::oneshot::Receiver,
    task::JoinSet,
    time::{advance, sleep, timeout},
};

use super::{flows::MAX_WITH_SLOW, *};

mod histories;
mod storm;

fn limiter() -> Limiter {
    Limiter::new(Metrics::default(), MAX_PERMITS)
}

fn resource(group: &str, resource: &str) -> GroupResource {
    GroupResource { group: group.into(), resource: resource.into() }
}

fn secrets() -> GroupResource {
    resource("", "secrets")
}

/// What an extension of the API server serves.
fn extended() -> GroupResource {
    resource("x.example.com", "things")
}

/// A pause of all writes, by an answer to what is sent now.
fn of_all(lasts: Duration) -> Pause {
    Pause { lasts, group: None, sent: Instant::now() }
}

/// Takes all permits that there are.
fn fill(ring: &RingLimiter) -> Vec<Permit> {
    std::iter::from_fn(|| ring.permit(Priority::Between, &secrets()).now_or_never()).collect()
}

/// Asks for a permit, as a write that is not waited for.
fn ask(ring: &RingLimiter, priority: Priority, resource: &GroupResource) -> Receiver<Permit> {
    let (sender, receiver) = oneshot::channel();
    let flow = FlowId { ring: ring.ring, resource: resource.clone() };
    ring.limiter.0.flows.lock().add(flow, priority, sender);
    ring.limiter.serve();
    receiver
}

/// Uses all permits at once, so many times, while others wait; each write is answered like this.
async fn rounds(ring: &RingLimiter, count: usize, answer: Answer) {
    for _ in 0..count {
        let mut asked: Vec<_> = (0..2 * MAX_PERMITS).map(|_| ask(ring, Priority::Between, &secrets())).collect();
        let permits: Vec<_> = asked.iter_mut().filter_map(|asked| asked.try_recv().ok()).collect();
        advance(SHORT).await;
        permits.into_iter().for_each(|permit| permit.answered(answer));
    }
}

const SHORT: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn limit_grows_by_one_a_round_of_good_answers_up_to_the_most() {
    let ring = limiter().ring();
    let mut limits = Vec::new();
    for _ in 0..4 {
        limits.push(ring.limit());
        rounds(&ring, 1, Answer::Good).await;
    }
    assert_eq!(limits, [8, 9, 10, 11]);
    rounds(&ring, 100, Answer::Good).await;
    assert_eq!(ring.limit(), MAX_PERMITS);
}

#[tokio::test(start_paused = true)]
async fn limit_grows_to_what_was_asked_for_and_no_further() {
    for most in [2, 4, 12] {
        let ring = Limiter::new(Metrics::default(), most).ring();
        assert_eq!(ring.limit(), most.min(8));
        rounds(&ring, 20, Answer::Good).await;
        assert_eq!(ring.limit(), most);
        rounds(&ring, 1, Answer::TimedOut).await;
        assert_eq!(ring.limit(), (most / 2).max(2));
    }
}

#[tokio::test(start_paused = true)]
async fn limit_stays_while_permits_are_left_or_writes_are_refused_or_slow() {
    let ring = limiter().ring();
    for _ in 0..100 {
        ring.permit(Priority::Between, &secrets()).await.answered(Answer::Good);
    }
    rounds(&ring, 10, Answer::Refused).await;
    for _ in 0..10 {
        let mut permits = fill(&ring);
        join_all(permits.iter_mut().map(Permit::until_slow)).await;
        permits.into_iter().for_each(|permit| permit.answered(Answer::Good));
    }
    assert_eq!(ring.limit(), 8);
}

#[tokio::test(start_paused = true)]
async fn limit_grows_where_lower_priorities_use_all_they_may() {
    let ring = limiter().ring();
    for _ in 0..2 {
        let all = || ring.permit(Priority::Rebalance, &secrets()).now_or_never();
        let permits: Vec<_> = std::iter::from_fn(all).collect();
        assert_eq!(permits.len(), 6);
        permits.into_iter().for_each(|permit| permit.answered(Answer::Good));
    }
    // The first of a round ends while all are used, the others don't.
    for _ in 0..6 {
        let mut permits: Vec<_> =
            std::iter::from_fn(|| ring.permit(Priority::Takeover, &secrets()).now_or_never()).collect();
        permits.pop().unwrap().answered(Answer::Good);
    }
    assert_eq!(ring.limit(), 9);
}

#[tokio::test(start_paused = true)]
async fn timeouts_halve_the_limit_once_a_round_down_to_the_least() {
    let ring = limiter().ring();
    let mut limits = Vec::new();
    for _ in 0..3 {
        let mut permits = fill(&ring);
        join_all(permits.iter_mut().map(Permit::until_slow)).await;
        let before = fill(&ring);
        permits.into_iter().for_each(|permit| permit.answered(Answer::TimedOut));
        // These began before the limit was halved.
        advance(SHORT).await;
        before.into_iter().for_each(|permit| permit.answered(Answer::TimedOut));
        limits.push(ring.limit());
        advance(SHORT).await;
    }
    assert_eq!(limits, [4, 2, 2]);
}

#[test]
fn answer_is_a_timeout_without_answer_or_with_504() {
    let status = |code| kube::Error::Api(kube::core::Status::failure("", "").with_code(code).boxed());
    let answers = [403, 409, 422, 429, 500, 504].map(|code| Answer::of::<()>(&Err(status(code))));
    assert_eq!(answers[..5], [Answer::Refused; 5]);
    let lost = kube::Error::Service("the connection was lost".into());
    assert_eq!([answers[5], Answer::of::<()>(&Err(lost))], [Answer::TimedOut; 2]);
    assert_eq!(Answer::of(&Ok(())), Answer::Good);
}

#[tokio::test(start_paused = true)]
async fn pause_stops_all_writes_and_halves_the_limit_once_a_round() {
    let limiter = limiter();
    let ring = limiter.ring();
    let (start, lasts) = (Instant::now(), Duration::from_secs(3));
    let (late, _) = (of_all(lasts), advance(SHORT).await);
    for _ in 0..8 {
        limiter.throttled(&of_all(lasts));
    }
    assert_eq!(ring.limit(), 4);
    drop(ring.permit(Priority::Between, &secrets()).await);
    assert_eq!(start.elapsed(), SHORT + lasts);
    // The answer to what was sent before, and was queued in the API server for that long.
    limiter.throttled(&late);
    assert_eq!(ring.limit(), 4);
    // What waits already when it is asked for waits on.
    advance(lasts).await;
    let (taken, resource) = (fill(&ring), secrets());
    let mut next = std::pin::pin!(ring.permit(Priority::Between, &resource));
    assert!(next.as_mut().now_or_never().is_none());
    let start = Instant::now();
    limiter.throttled(&of_all(lasts));
    drop(taken);
    next.await;
    assert_eq!((start.elapsed(), ring.limit()), (lasts, 2));
}

#[tokio::test(start_paused = true)]
async fn pause_of_an_extension_stops_its_group_and_leaves_the_limit() {
    let mut registry = Registry::default();
    let limiter = Limiter::new(Metrics::register(&mut registry), MAX_PERMITS);
    let ring = limiter.ring();
    let (start, lasts) = (Instant::now(), Duration::from_secs(30));
    let (resource, other) = (extended(), secrets());
    // What waits comes first, and is overtaken by what the pause is not about.
    let taken = fill(&ring);
    let mut held = std::pin::pin!(ring.permit(Priority::Between, &resource));
    let mut next = std::pin::pin!(ring.permit(Priority::Rebalance, &other));
    assert!(held.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
    limiter.throttled(&Pause { lasts, group: Some(resource.group.clone()), sent: start });
    drop(taken);
    assert!(held.as_mut().now_or_never().is_none());
    drop(next.as_mut().now_or_never().expect("it is of another group"));
    assert_eq!(fill(&ring).len(), 8, "the API server has as much room as before");
    drop(held.await);
    assert_eq!(start.elapsed(), lasts);
    // A pause of all stops that as well.
    limiter.throttled(&of_all(lasts));
    drop(ring.permit(Priority::Between, &resource).await);
    assert_eq!((start.elapsed(), ring.limit()), (2 * lasts, 4));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let told = ["controller_sharding_throttled_total 2\n", "controller_sharding_write_limit 4\n"];
    assert!(told.iter().all(|line| text.contains(line)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn rings_take_turns_whatever_number_of_resources_they_have() {
    let limiter = limiter();
    let (busy, other) = (limiter.ring(), limiter.ring());
    let taken = fill(&busy);
    let order = Mutex::<_>::new(Vec::new());
    let write = async |ring: &RingLimiter, resource: GroupResource, name: &'static str| {
        let _permit = ring.permit(Priority::Between, &resource).await;
        order.lock().push(name);
        sleep(SHORT).await;
    };
    let of_busy = |number: usize| resource("", &format!("kind-{}", number % 4));
    let many = (0..20).map(|number| write(&busy, of_busy(number), "busy"));
    let few = (0..3).map(|_| write(&other, secrets(), "other"));
    tokio::join!(join_all(many), join_all(few), async move { drop(taken) });
    let last = order.lock().iter().rposition(|name| *name == "other").unwrap();
    assert!(last <= 6, "{:?}", order.lock());
}

#[tokio::test(start_paused = true)]
async fn slow_writes_of_one_resource_are_bounded_and_hold_up_no_other() {
    let limiter = limiter();
    let (stuck, other) = (limiter.ring(), limiter.ring());
    let begun = Arc::new(AtomicUsize::new(0));
    let mut writers = JoinSet::new();
    for _ in 0..2 * MAX_PERMITS {
        let (ring, begun) = (stuck.clone(), begun.clone());
        writers.spawn(async move {
            let mut permit = ring.permit(Priority::Between, &secrets()).await;
            begun.fetch_add(1, Ordering::Relaxed);
            permit.until_slow().await;
            std::future::pending::<()>().await;
        });
    }
    sleep(SLOW / 2).await;
    for (ring, resource) in [(&other, secrets()), (&stuck, extended())] {
        for _ in 0..100 {
            timeout(SLOW, ring.permit(Priority::Between, &resource)).await.expect("a permit in time");
            sleep(SLOW / 10).await;
        }
    }
    assert_eq!(begun.load(Ordering::Relaxed), MAX_WITH_SLOW);
}

#[tokio::test(start_paused = true)]
async fn between_comes_first_and_finds_a_quarter_of_the_permits_free() {
    let ring = limiter().ring();
    let mut many: Vec<_> = std::iter::from_fn(|| ring.permit(Priority::Takeover, &secrets()).now_or_never()).collect();
    assert_eq!(many.len(), 6);
    let between = fill(&ring);
    assert_eq!(between.len(), 2);
    let resource = secrets();
    let mut waiting = PRIORITIES.map(|priority| Box::pin(ring.permit(priority, &resource)));
    // They ask in the opposite order.
    assert!(waiting.iter_mut().rev().all(|permit| permit.now_or_never().is_none()));
    drop(between);
    let [between, takeover, rebalance, repair] = &mut waiting;
    assert!([takeover, rebalance, repair].into_iter().all(|permit| permit.now_or_never().is_none()));
    drop(between.now_or_never().expect("it comes first"));
    many.truncate(5);
    let mut order = Vec::new();
    for _ in 1..PRIORITIES.len() {
        for (priority, permit) in PRIORITIES.into_iter().zip(&mut waiting).skip(1) {
            if !order.contains(&priority)
                && let Some(permit) = permit.now_or_never()
            {
                order.push(priority);
                drop(permit);
                break;
            }
        }
    }
    assert_eq!(order, PRIORITIES[1..]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_waits_leave_no_trace() {
    let limiter = limiter();
    let ring = limiter.ring();
    let taken = fill(&ring);
    for _ in 0..10_000 {
        assert!(ring.permit(Priority::Between, &secrets()).now_or_never().is_none());
    }
    drop(taken);
    assert_eq!(fill(&ring).len(), ring.limit());
    let flows = limiter.0.flows.lock();
    assert!(flows.flows.is_empty() && flows.used == 0);
}
