//! When an object counts as quiet, under a paused clock.
#![allow(clippy::unwrap_used)]

use futures::FutureExt;
use tokio::time::{advance, timeout};

use super::{writes::OUTLIVES, *};

const GRACE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(1);

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn object(name: &str) -> Moving {
    Moving { resource: things(), namespace: Some("ns".into()), name: name.into(), uid: format!("uid-{name}").into() }
}

fn named(name: &str) -> About {
    About { target: Some(Target::of(&object(name))), owners: Vec::new() }
}

fn all(namespace: Option<&str>) -> About {
    let target = Target { resource: things(), namespace: namespace.map(str::to_owned), name: None };
    About { target: Some(target), owners: Vec::new() }
}

fn owned_by(uid: &str) -> About {
    About { target: None, owners: vec![uid.into()] }
}

fn drain(fence: &Fence, name: &str) -> Guard {
    fence.drained(object(name), &"7".parse().unwrap(), GRACE)
}

async fn is_quiet_within(guard: &Guard, time: Duration) -> bool {
    timeout(time, guard.quiet()).await.is_ok()
}

fn answered(mut ticket: Ticket) {
    ticket.settled();
}

#[tokio::test(start_paused = true)]
async fn a_write_holds_the_drain_until_it_is_answered_and_the_grace_begins_anew() {
    for about in [named("a"), all(None), all(Some("ns")), owned_by("uid-a")] {
        let fence = Fence::new();
        let before = fence.enter(about.clone());
        let guard = drain(&fence, "a");
        assert!(!is_quiet_within(&guard, 10 * GRACE).await, "it began before the drain: {about:?}");
        answered(before);
        let mut quiet = Box::pin(guard.quiet());
        assert!((&mut quiet).now_or_never().is_none());
        advance(GRACE - MOMENT).await;
        answered(fence.enter(about.clone()));
        advance(GRACE - MOMENT).await;
        assert!((&mut quiet).now_or_never().is_none(), "one came in between: {about:?}");
        advance(2 * MOMENT).await;
        assert!(quiet.now_or_never().is_some(), "{about:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_waits_for_holds_the_drain_while_it_may_still_be_carried_out() {
    let fence = Fence::new();
    drop(fence.enter(named("a")));
    advance(MOMENT).await;
    let guard = drain(&fence, "a");
    assert_eq!(fence.numbers().writes, 1);
    assert!(!is_quiet_within(&guard, OUTLIVES - 2 * MOMENT).await);
    assert!(is_quiet_within(&guard, GRACE).await);
    assert_eq!(fence.numbers().writes, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_writes_beyond_those_that_are_told_apart_hold_every_drain() {
    let fence = Fence::new();
    for _ in 0..5_000 {
        drop(fence.enter(named("other")));
    }
    assert!(fence.numbers().writes < 5_000);
    let guard = drain(&fence, "a");
    assert!(!is_quiet_within(&guard, OUTLIVES - MOMENT).await);
    assert!(is_quiet_within(&guard, GRACE).await);
}

#[tokio::test(start_paused = true)]
async fn what_concerns_others_holds_nobody() {
    let fence = Fence::new();
    let guard = drain(&fence, "a");
    let mut elsewhere = all(Some("other"));
    let _open = [named("b"), elsewhere.clone(), owned_by("uid-b")].map(|about| fence.enter(about));
    elsewhere.target.as_mut().unwrap().resource.group = "y.io".into();
    let _other = fence.enter(elsewhere);
    assert!(is_quiet_within(&guard, GRACE + MOMENT).await);
}

#[tokio::test(start_paused = true)]
async fn the_fence_closes_only_while_it_is_quiet_and_then_for_owners_too() {
    let fence = Fence::new();
    let guard = drain(&fence, "a");
    guard.quiet().await;
    let late = fence.enter(About::default());
    assert!(late.also_about(&["uid-a".into()]).is_ok(), "it is not closed yet");
    assert!(!guard.close());
    answered(late);
    guard.quiet().await;
    assert!(guard.close());
    drop(guard);
    let refused = fence.enter(About::default()).also_about(&["uid-b".into(), "uid-a".into()]);
    assert_eq!(*refused.unwrap_err(), object("a"));
    assert_eq!(fence.moved_by_name(&Target::of(&object("a"))), Some(object("a")));
}

#[tokio::test(start_paused = true)]
async fn what_was_not_let_go_or_is_drained_again_is_not_closed() {
    let fence = Fence::new();
    let guard = drain(&fence, "a");
    guard.quiet().await;
    assert!(guard.close());
    guard.reopen();
    assert_eq!(fence.moved_by_uid("uid-a"), None);
    assert!(guard.close());
    let again = drain(&fence, "a");
    assert_eq!(fence.moved_by_uid("uid-a"), None, "it came back");
    // The first drain's end is not the second's.
    drop(guard);
    let _open = fence.enter(named("a"));
    assert!(!is_quiet_within(&again, 2 * GRACE).await);
}

#[tokio::test(start_paused = true)]
async fn the_floor_is_the_highest_version_that_was_fenced() {
    let fence = Fence::new();
    for version in ["9", "10", "7"] {
        drop(fence.drained(object("a"), &version.parse().unwrap(), GRACE));
    }
    assert_eq!(fence.floor(&things()), Some("10".parse().unwrap()));
    let others = GroupResource { group: String::new(), resource: "things".into() };
    assert_eq!(fence.floor(&others), None);
}

#[test]
fn of_too_many_moved_objects_the_oldest_are_forgotten_and_counted() {
    let mut moved = Moved::default();
    for number in 0..5_000 {
        moved.remember(object(&number.to_string()));
        // Remembered anew, which makes it the youngest.
        moved.remember(object("a"));
    }
    assert!(moved.by_uid("uid-a").is_some() && moved.by_uid("uid-4999").is_some());
    assert!(moved.by_uid("uid-0").is_none() && moved.by_name(&Target::of(&object("0"))).is_none());
    assert_eq!(u64::try_from(moved.count()).unwrap() + moved.evicted(), 5_001);
    let moved = Fence(Arc::new(Mutex::new(Registry { moved, ..Registry::default() })));
    assert!(moved.numbers().moved < 5_000 && moved.numbers().moved_evicted > 0);
}
