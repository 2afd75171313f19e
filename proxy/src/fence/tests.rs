//! When an object counts as quiet, under a paused clock.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use futures::FutureExt;
use tokio::time::{advance, timeout};

use super::*;
use crate::{membership::LeaseTerm, views::fixtures};

const GRACE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(1);

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn object(name: &str) -> Arc<DrainingObject> {
    object_at(name, 7)
}

fn object_at(name: &str, version: u64) -> Arc<DrainingObject> {
    let (name, uid) = (name.to_owned(), format!("uid-{name}").into());
    Arc::new(DrainingObject { name, uid, ..fixtures::drained(things(), Some("ns"), version) })
}

fn named(name: &str) -> About {
    About { target: Some(Target::of(&object(name))), uids: HashSet::new() }
}

fn all(namespace: Option<&str>) -> About {
    let target = Target { resource: things(), namespace: namespace.map(str::to_owned), name: None };
    About { target: Some(target), uids: HashSet::new() }
}

fn owned_by(uid: &str) -> About {
    About { target: None, uids: [uid.into()].into() }
}

fn cache_scope() -> CacheScope {
    CacheScope { term: LeaseTerm::new("me".parse().unwrap(), "s=me".into(), || true), policy: Arc::default() }
}

fn drain(fence: &Fence, name: &str) -> DrainGuard {
    drain_during(0, fence, name)
}

fn drain_during(term: u64, fence: &Fence, name: &str) -> DrainGuard {
    fence.listed(&things(), term);
    fence.drained(object(name), GRACE, term)
}

async fn is_quiet_within(guard: &DrainGuard, time: Duration) -> bool {
    timeout(time, guard.wait_idle()).await.is_ok()
}

fn answered(write_guard: WriteGuard) {
    write_guard.sent();
    write_guard.answered();
    drop(write_guard);
}

fn cancelled(write_guard: WriteGuard) {
    write_guard.sent();
    drop(write_guard);
}

#[tokio::test(start_paused = true)]
async fn a_write_holds_the_drain_until_it_is_answered_and_the_grace_begins_anew() {
    for about in [named("a"), all(None), all(Some("ns")), owned_by("uid-a")] {
        let fence = Fence::new(false);
        let before = fence.enter(about.clone());
        let guard = drain(&fence, "a");
        assert!(!is_quiet_within(&guard, 10 * GRACE).await, "it began before the drain: {about:?}");
        answered(before);
        let mut quiet = Box::pin(guard.wait_idle());
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
    let fence = Fence::new(false);
    drop(fence.enter(named("other")));
    cancelled(fence.enter(named("a")));
    advance(MOMENT).await;
    let guard = drain(&fence, "a");
    assert_eq!(fence.numbers().writes, 1);
    assert!(!is_quiet_within(&guard, REQUEST_LIFETIME + GRACE - 2 * MOMENT).await);
    assert!(is_quiet_within(&guard, GRACE).await);
    assert_eq!(fence.numbers().writes, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_writes_beyond_those_that_are_told_apart_hold_every_drain() {
    let fence = Fence::new(false);
    for _ in 0..5_000 {
        cancelled(fence.enter(named("other")));
    }
    assert!(fence.numbers().writes < 5_000);
    let guard = drain(&fence, "a");
    assert!(!is_quiet_within(&guard, REQUEST_LIFETIME + GRACE - MOMENT).await);
    assert!(is_quiet_within(&guard, GRACE).await);
}

#[tokio::test(start_paused = true)]
async fn what_a_proxy_before_has_sent_holds_every_drain() {
    let fence = Fence::new(true);
    let guard = drain(&fence, "a");
    assert!(!is_quiet_within(&guard, REQUEST_LIFETIME - MOMENT).await);
    assert!(!fence.is_idle(), "if it ends now, the next one has to wait too");
    assert!(fence.has_evicted_recent() && !Fence::new(false).has_evicted_recent());
    assert!(!is_quiet_within(&guard, GRACE).await);
    assert!(fence.is_idle() && !fence.has_evicted_recent());
    assert!(is_quiet_within(&guard, GRACE).await);
}

#[tokio::test(start_paused = true)]
async fn the_grace_begins_where_a_write_that_nobody_waits_for_could_be_carried_out_last() {
    for unknown in [false, true] {
        let fence = Fence::new(unknown);
        if !unknown {
            cancelled(fence.enter(named("a")));
        }
        let guard = drain(&fence, "a");
        advance(REQUEST_LIFETIME + GRACE / 2).await;
        // A look meanwhile changes nothing.
        assert_eq!(fence.numbers().writes, 0);
        assert!(!guard.close());
        advance(GRACE / 2).await;
        assert!(guard.close());
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_ends_with_a_write_that_nobody_waits_for_leaves_something_under_way() {
    let fence = Fence::new(false);
    let write = fence.enter(named("a"));
    assert!(!fence.is_idle());
    write.sent();
    drop(write);
    assert!(!fence.is_idle());
    tokio::time::advance(REQUEST_LIFETIME).await;
    assert!(fence.is_idle());
}

#[tokio::test(start_paused = true)]
async fn what_concerns_others_holds_nobody() {
    let fence = Fence::new(false);
    let guard = drain(&fence, "a");
    let mut elsewhere = all(Some("other"));
    let _open = [named("b"), elsewhere.clone(), owned_by("uid-b")].map(|about| fence.enter(about));
    elsewhere.target.as_mut().unwrap().resource.group = "y.io".into();
    let _other = fence.enter(elsewhere);
    assert!(is_quiet_within(&guard, GRACE + MOMENT).await);
}

#[tokio::test(start_paused = true)]
async fn the_fence_closes_only_while_it_is_quiet_and_then_for_owners_too() {
    let fence = Fence::new(false);
    let guard = drain(&fence, "a");
    guard.wait_idle().await;
    let late = fence.enter(About::default());
    assert!(late.check_and_add(&["uid-a".into()]).is_ok(), "it is not closed yet");
    assert!(!guard.close());
    answered(late);
    guard.wait_idle().await;
    assert!(guard.close());
    drop(guard);
    let refused = fence.enter(About::default()).check_and_add(&["uid-b".into(), "uid-a".into()]);
    assert_eq!(&*refused.unwrap_err().uid, "uid-a");
    assert_eq!(fence.cached_owner(&cache_scope(), &Target::of(&object("a"))), CachedOwner::Moved);
}

#[tokio::test(start_paused = true)]
async fn what_is_drained_again_stays_closed() {
    let fence = Fence::new(false);
    let guard = drain(&fence, "a");
    guard.wait_idle().await;
    assert!(guard.close());
    let again = drain(&fence, "a");
    assert!(fence.has_moved("uid-a"), "the acknowledgement of the first may be on its way");
    fence.record_owned(&cache_scope(), &names(&object("a")), &object("a").uid, None, fence.asking());
    assert!(fence.has_moved("uid-a"), "what is drained does not stay");
    // The first drain's end is not the second's.
    drop(guard);
    let _open = fence.enter(named("a"));
    assert!(!is_quiet_within(&again, 2 * GRACE).await);
}

#[tokio::test(start_paused = true)]
async fn the_floor_is_the_highest_version_that_was_fenced() {
    let fence = Fence::new(false);
    for version in [9, 10, 7] {
        drop(fence.drained(object_at("a", version), GRACE, 0));
    }
    assert_eq!(fence.floor(&things()), Some("10".parse().unwrap()));
    let others = GroupResource { group: String::new(), resource: "things".into() };
    assert_eq!(fence.floor(&others), None);
}

#[test]
fn of_too_many_moved_objects_the_oldest_are_forgotten_and_counted() {
    let fence = Fence::new(false);
    for number in 0..5_000 {
        fence.0.lock().remember(object(&number.to_string()));
        // Remembered again, which makes it the youngest.
        fence.0.lock().remember(object("a"));
    }
    assert!(fence.has_moved("uid-a") && fence.has_moved("uid-4999"));
    assert!(!fence.has_moved("uid-0"));
    assert_eq!(fence.cached_owner(&cache_scope(), &names(&object("0"))), CachedOwner::Unknown);
    let numbers = fence.numbers();
    assert!(numbers.moved < 5_000);
    assert_eq!(u64::try_from(numbers.moved).unwrap() + numbers.moved_evicted, 5_001);
}

#[tokio::test(start_paused = true)]
async fn as_many_acknowledged_moves_are_remembered_as_is_said() {
    let fence = Fence::new(false);
    for number in 0..=4_096 {
        assert_eq!(fence.numbers().moved_evicted, 0, "{number}");
        let guard = drain(&fence, &number.to_string());
        guard.wait_idle().await;
        assert!(guard.close());
    }
    assert_eq!((fence.numbers().moved, fence.numbers().moved_evicted), (4_096, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_nobodys_may_be_what_was_forgotten() {
    let fence = Fence::new(false);
    let release = |name: &str| drop(drain(&fence, name));
    release("long ago");
    advance(REQUEST_LIFETIME).await;
    (0..4_095).for_each(|number| release(&number.to_string()));
    release("in its place");
    assert!(!fence.has_evicted_recent(), "it has an owner again");
    release("one more");
    assert!(fence.has_evicted_recent());
    advance(REQUEST_LIFETIME).await;
    assert!(!fence.has_evicted_recent());
}

#[tokio::test(start_paused = true)]
async fn what_was_let_go_is_not_the_shards_while_its_drain_goes_on_even_if_that_is_forgotten() {
    let (fence, cache_scope) = (Fence::new(false), cache_scope());
    let guard = drain_during(cache_scope.term.number, &fence, "a");
    assert!(fence.lets_go_of(&cache_scope, "uid-a"));
    guard.wait_idle().await;
    assert!(guard.close());
    (0..5_000).for_each(|number| drop(drain(&fence, &number.to_string())));
    assert!(!fence.has_moved("uid-a"));
    assert!(!fence.lets_go_of(&cache_scope, "uid-a") && !fence.was_ours(&cache_scope, &things(), "uid-a"));
    assert_eq!(fence.cached_owner(&cache_scope, &names(&object("a"))), CachedOwner::Unknown);
    // Nor when its drain begins again, as all do where the ring's resources change.
    let guard = drain_during(cache_scope.term.number, &fence, "b");
    drop(guard);
    let _guard = drain_during(cache_scope.term.number, &fence, "b");
    assert!(!fence.lets_go_of(&cache_scope, "uid-b"));
}

fn names(object: &DrainingObject) -> Target {
    Target::of(object)
}

#[test]
fn what_is_known_holds_in_its_era_and_with_its_owners() {
    let (fence, cache_scope) = (Fence::new(false), cache_scope());
    let (root, child, leaf) = (object("root"), object("child"), object("leaf"));
    assert_eq!(fence.cached_owner(&cache_scope, &names(&root)), CachedOwner::Unknown);
    fence.record_owned(&cache_scope, &names(&leaf), &leaf.uid, Some(child.uid.clone()), fence.asking());
    fence.record_owned(&cache_scope, &names(&child), &child.uid, Some(root.uid.clone()), fence.asking());
    assert_eq!(fence.cached_owner(&cache_scope, &names(&leaf)), CachedOwner::Unknown, "who controls it is not known");
    fence.record_owned(&cache_scope, &names(&root), &root.uid, None, fence.asking());
    let all = [&leaf, &child, &root].map(|it| it.uid.clone()).to_vec();
    assert_eq!(fence.cached_owner(&cache_scope, &names(&leaf)), CachedOwner::Ours(all));
    let later = CacheScope { term: cache_scope.term.clone(), policy: Arc::default() };
    assert_eq!(fence.cached_owner(&later, &names(&leaf)), CachedOwner::Unknown, "the ring changed");
    assert_eq!(
        fence.cached_owner(&self::cache_scope(), &names(&leaf)),
        CachedOwner::Unknown,
        "the Lease was lost in between"
    );
}

#[tokio::test(start_paused = true)]
async fn of_what_is_about_to_be_adopted_nothing_is_learned_while_that_may_be_carried_out() {
    let (fence, cache_scope, child) = (Fence::new(false), cache_scope(), object("child"));
    let asked = fence.asking();
    let learn = || fence.record_owned(&cache_scope, &names(&child), &child.uid, None, asked);
    learn();
    fence.owner_changes(&names(&child));
    assert_eq!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Unknown);
    learn();
    assert_eq!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Unknown, "that answer may be of before");
    tokio::time::sleep(super::owner_changes::WRITE_LIFETIME).await;
    learn();
    assert!(matches!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Ours(_)));
}

#[test]
fn what_another_object_of_the_name_controlled_is_not_known_any_more() {
    let (fence, cache_scope, child, owner) = (Fence::new(false), cache_scope(), object("child"), object("owner"));
    let learn = |name: &DrainingObject, uid: &Uid, owner| {
        fence.record_owned(&cache_scope, &names(name), uid, owner, fence.asking());
    };
    learn(&owner, &owner.uid, None);
    learn(&child, &child.uid, Some(owner.uid.clone()));
    assert!(matches!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Ours(_)));
    learn(&owner, &"uid-of-the-next".into(), None);
    assert_eq!(
        fence.cached_owner(&cache_scope, &names(&child)),
        CachedOwner::Unknown,
        "its owner is gone, and it may be another's"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_takes_those_that_it_controls_with_it() {
    let (fence, cache_scope) = (Fence::new(false), cache_scope());
    let (root, child) = (object("root"), object("child"));
    let learn = || {
        fence.record_owned(&cache_scope, &names(&root), &root.uid, None, fence.asking());
        fence.record_owned(&cache_scope, &names(&child), &child.uid, Some(root.uid.clone()), fence.asking());
    };
    learn();
    let guard = drain_during(cache_scope.term.number, &fence, "root");
    assert!(
        matches!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Ours(uids) if uids.len() == 2),
        "not yet"
    );
    let overtaken = fence.asking();
    drop(guard);
    assert_eq!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Moved, "it may have been moved by force");
    fence.record_owned(&cache_scope, &names(&root), &root.uid, None, overtaken);
    assert_eq!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Moved, "that was asked before");
    learn();
    let guard = drain(&fence, "root");
    guard.wait_idle().await;
    assert!(guard.close());
    drop(guard);
    assert_eq!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Moved);
    assert_eq!(fence.standing_of(&cache_scope, &child.uid), CachedOwner::Moved);
    learn();
    assert!(matches!(fence.cached_owner(&cache_scope, &names(&child)), CachedOwner::Ours(_)), "it came back");
    fence.forget(&names(&root));
    assert_eq!(
        fence.cached_owner(&cache_scope, &names(&root)),
        CachedOwner::Unknown,
        "the next of that name is another"
    );
}

#[test]
fn a_circle_of_owners_and_too_many_objects_are_not_known() {
    let (fence, cache_scope) = (Fence::new(false), cache_scope());
    let (one, two) = (object("one"), object("two"));
    fence.record_owned(&cache_scope, &names(&one), &one.uid, Some(two.uid.clone()), fence.asking());
    fence.record_owned(&cache_scope, &names(&two), &two.uid, Some(one.uid.clone()), fence.asking());
    assert_eq!(fence.cached_owner(&cache_scope, &names(&one)), CachedOwner::Unknown);
    for number in 0..20_000 {
        let it = object(&number.to_string());
        fence.record_owned(&cache_scope, &names(&it), &it.uid, None, fence.asking());
    }
    assert_eq!(fence.cached_owner(&cache_scope, &names(&object("0"))), CachedOwner::Unknown);
    assert!(matches!(fence.cached_owner(&cache_scope, &names(&object("19999"))), CachedOwner::Ours(_)));
    let numbers = fence.numbers();
    assert_eq!(numbers.known as u64 + numbers.known_evicted, 20_002);
}
