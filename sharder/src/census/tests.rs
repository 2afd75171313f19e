#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringside_ring::lease::ShardState::{Dead, Ready};
use serde_json::json;

use super::*;
use crate::snapshot::tests::members;

fn websites() -> GroupResource {
    GroupResource { group: "web.example.com".into(), resource: "websites".into() }
}

fn object(uid: &str) -> Object {
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}})).unwrap()
}

fn figures(census: &Census, members: &Members) -> Figures {
    census.figures(members).remove(&websites()).unwrap()
}

fn by_shard(census: &Census, members: &Members) -> Vec<(String, u64)> {
    figures(census, members).shards.unwrap().into_iter().collect()
}

fn counts(of: &[(&str, u64)]) -> Vec<(String, u64)> {
    of.iter().map(|(shard, objects)| ((*shard).to_owned(), *objects)).collect()
}

#[test]
fn a_pass_counts_and_what_is_moved_since_is_added() {
    let (census, resource) = (Census::default(), websites());
    let members = members(&[("a", Ready), ("b", Ready), ("gone", Dead)]);
    let mut pass = census.pass(&resource);
    for shard in [Some("a"), Some("a"), Some("gone"), Some("nonsense"), None] {
        pass.count(&members, shard);
    }
    assert_eq!(figures(&census, &members).shards, None, "it has not ended");
    // It was counted already, as it was when the pass began.
    census.given(&resource, ("1", None), (Some("a"), Some("a")), "b");
    pass.end();
    assert_eq!(by_shard(&census, &members), counts(&[("a", 1), ("b", 1)]));
    assert_eq!(figures(&census, &members).unassigned, 3);
    census.given(&resource, ("2", None), (Some("gone"), Some("gone")), "b");
    census.given(&resource, ("3", None), (None, None), "b");
    census.given(&resource, ("new", None), (Some("nobody knows"), Some("nobody knows")), "b");
    assert_eq!(by_shard(&census, &members), counts(&[("a", 1), ("b", 4)]));
    assert_eq!(figures(&census, &members).unassigned, 1);
}

#[test]
fn a_pass_that_is_broken_off_counts_for_nothing() {
    let (census, resource) = (Census::default(), websites());
    let members = members(&[("a", Ready)]);
    let mut pass = census.pass(&resource);
    pass.count(&members, Some("a"));
    census.given(&resource, ("1", None), (None, None), "a");
    drop(pass);
    assert_eq!(figures(&census, &members).shards, None);
    let mut pass = census.pass(&resource);
    pass.count(&members, Some("a"));
    pass.end();
    assert_eq!(by_shard(&census, &members), counts(&[("a", 1)]), "what was moved before it is in it");
}

#[test]
fn what_has_no_owner_is_known_from_the_moment_it_was_seen_until_it_has_one() {
    let (census, resource) = (Census::default(), websites());
    let members = members(&[("a", Ready)]);
    for event in [Event::Init, Event::InitApply(object("1")), Event::InitDone] {
        census.shown(&resource, &event);
    }
    for uid in ["1", "2", "3"] {
        census.waits(&resource, uid);
    }
    let since = figures(&census, &members).unassigned_since.unwrap();
    census.waits(&resource, "1");
    assert_eq!(figures(&census, &members).unassigned_since, Some(since), "it has waited since then");
    census.given(&resource, ("1", None), (None, None), "a");
    census.shown(&resource, &Event::Delete(object("2")));
    assert_eq!(figures(&census, &members).unassigned, 1);
    // While nobody watched, it was given to somebody, or deleted.
    census.shown(&resource, &Event::Init);
    census.waits(&resource, "4");
    census.shown(&resource, &Event::InitDone);
    let now = figures(&census, &members);
    assert_eq!(now.unassigned, 1);
    census.settled(&resource, "4");
    assert_eq!((figures(&census, &members).unassigned, figures(&census, &members).unassigned_since), (0, None));
}

#[test]
fn what_the_leader_before_knew_to_be_without_owner_has_waited_since_then() {
    let (resource, members) = (websites(), members(&[("a", Ready)]));
    let before = SystemTime::now() - Duration::from_secs(3_600);
    let since = |census: &Census| figures(census, &members).unassigned_since;
    let census = Census::after([&resource], Some(before));
    census.shown(&resource, &Event::Init);
    for uid in ["1", "elsewhere", "settled", "late"] {
        census.shown(&resource, &Event::InitApply(object(uid)));
    }
    census.shown(&resource, &Event::InitDone);
    assert_eq!(since(&census), None, "nothing waits yet, as far as this one knows");
    census.waits(&resource, "1");
    assert_eq!(since(&census), Some(before));
    // What comes later is new.
    census.shown(&resource, &Event::Apply(object("2")));
    census.waits(&resource, "2");
    census.settled(&resource, "1");
    assert!(since(&census).unwrap() > before);
    census.settled(&resource, "2");
    // Its turn has not come when the watch begins anew, beside one that is new then.
    census.settled(&resource, "settled");
    census.shown(&resource, &Event::Init);
    for uid in ["3", "settled", "late"] {
        census.shown(&resource, &Event::InitApply(object(uid)));
    }
    census.shown(&resource, &Event::InitDone);
    for uid in ["3", "elsewhere", "settled"] {
        census.waits(&resource, uid);
        assert!(since(&census).unwrap() > before, "{uid}: nor is what another list shows, or what had an owner since");
    }
    census.waits(&resource, "late");
    assert_eq!(since(&census), Some(before));
    // One that was left out of the first list: it was broken off.
    let census = Census::after([&resource], Some(before));
    for event in [Event::Init, Event::Init, Event::InitApply(object("1")), Event::InitDone] {
        census.shown(&resource, &event);
    }
    census.waits(&resource, "1");
    assert_eq!(since(&census), Some(before));
    // One whose resource is not served yet; and one whose resource has left the ring, and comes again.
    let census = Census::after([&resource], Some(before));
    for (named, expected) in [(vec![(resource.clone(), ())], Some(before)), (vec![], None)] {
        census.keep_only(&BTreeSet::new(), &named.into_iter().collect());
        assert_eq!(census.0.lock().before.get(&resource).copied(), expected);
    }
    // Nobody could have them, and so nobody lists them.
    let census = Census::after([&resource], Some(before));
    let mut pass = census.pass(&resource);
    pass.count(&members, None);
    pass.end();
    assert_eq!(figures(&census, &Members::default()).unassigned_since, Some(before));
}

#[test]
fn memory_is_bounded_and_what_is_beyond_is_counted_by_the_passes() {
    let (census, resource) = (Census::default(), websites());
    let members = members(&[("a", Ready)]);
    census.shown(&resource, &Event::InitDone);
    let objects = CAPACITY + 5;
    let mut pass = census.pass(&resource);
    for uid in 0..objects {
        pass.count(&members, None);
        census.waits(&resource, &uid.to_string());
    }
    pass.end();
    assert_eq!(census.0.lock().counts[&resource].unowned.len(), CAPACITY);
    assert_eq!(figures(&census, &members).unassigned, u64::try_from(objects).unwrap());
    census.keep_only(&BTreeSet::new(), &BTreeMap::<_, ()>::new());
    assert!(census.0.lock().counts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_between_two_shards_when_it_was_counted_is_taken_from_nobody() {
    let (census, resource) = (Census::default(), websites());
    let members = members(&[("a", Ready), ("b", Ready)]);
    let tick = async || tokio::time::advance(Duration::from_millis(1)).await;
    census.waits(&resource, "let go before");
    tick().await;
    let mut pass = census.pass(&resource);
    pass.count(&members, None);
    pass.count(&members, Some("a"));
    pass.count(&members, Some("a"));
    tick().await;
    census.waits(&resource, "let go after");
    // One is given while it is counted, one after that. The watch can have shown that before the write has its answer.
    let give = |uid| {
        let since = census.unowned_since(&resource, uid);
        census.shown(&resource, &Event::Delete(object(uid)));
        census.given(&resource, (uid, since), (None, Some("a")), "b");
    };
    give("let go before");
    pass.end();
    give("let go after");
    assert_eq!(by_shard(&census, &members), counts(&[("a", 1), ("b", 2)]));
}

#[test]
fn what_the_last_shard_had_is_nobodys_when_that_goes_and_since_then() {
    let (census, resource) = (Census::default(), websites());
    let with = members(&[("a", Ready)]);
    for event in [Event::Init, Event::InitDone] {
        census.shown(&resource, &event);
    }
    let mut pass = census.pass(&resource);
    pass.count(&with, Some("a"));
    pass.count(&with, Some("a"));
    pass.end();
    assert_eq!((figures(&census, &with).unassigned, figures(&census, &with).unassigned_since), (0, None));
    let without = members(&[("a", Dead)]);
    let first = figures(&census, &without);
    assert_eq!(first.unassigned, 2, "although nobody lists them");
    assert_eq!((first.unassigned_since.is_some(), figures(&census, &without)), (true, first));
    assert_eq!((figures(&census, &with).unassigned, figures(&census, &with).unassigned_since), (0, None));
}
