//! Tests of what is observed of Leases, with time as an argument.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ringside_ring::{
    RingKind, RingName,
    labels::{LEASE_CONTROLLER, LEASE_GROUP, LEASE_STATE, LEASE_WEIGHT},
    lease::SHARDER_HOLDER,
};
use serde_json::json;

use super::*;
use crate::leases::plan::plan;

/// The kind of ring whose Leases these are.
pub(crate) const KIND: RingKind = RingKind::ClusterRing;
/// The label of the ring on a Lease.
const LEASE_LABEL: &str = KIND.names().lease_label;

pub(crate) fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

/// A Lease of the ring `example` in namespace `default`, renewed at second `renewed` of its shard's clock.
pub(crate) fn lease(name: &str, holder: &str, renewed: u32, version: u64) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": {LEASE_LABEL: "example"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": format!("2024-01-01T00:00:{renewed:02}.000000Z")},
    }))
    .unwrap()
}

pub(crate) fn labelled(mut lease: Lease, state: &str) -> Lease {
    lease.metadata.labels.as_mut().unwrap().insert(LEASE_STATE.to_owned(), state.to_owned());
    lease
}

/// A book that has seen these Leases in a list at `now`.
pub(crate) fn book(leases: impl IntoIterator<Item = Lease>, now: Moment) -> Book {
    let mut book = Book::default();
    list(&mut book, leases, now);
    book
}

/// All Leases are listed; those of the other kind of ring are none.
pub(crate) fn list(book: &mut Book, leases: impl IntoIterator<Item = Lease>, now: Moment) -> Change {
    let others = book.listed(RingKind::ControllerRing, Vec::new(), now);
    others.max(book.listed(KIND, leases.into_iter().collect(), now))
}

pub(crate) fn weighing(mut lease: Lease, weight: &str) -> Lease {
    lease.metadata.annotations.get_or_insert_default().insert(LEASE_WEIGHT.to_owned(), weight.to_owned());
    lease
}

fn weight(book: &Book, shard: &str) -> Option<String> {
    let rings = book.members(at(0), Moment::default()).unwrap();
    let members = rings.get(&"example".parse::<RingName>().unwrap())?;
    members.weighted().find(|(name, _)| name.as_str() == shard).map(|(_, weight)| weight.to_string())
}

#[test]
fn a_weight_is_told_when_it_changes_and_is_one_when_it_cannot_be_read() {
    let held = |version| lease("a", "a", 0, version);
    let mut book = book([weighing(held(1), "2")], at(0));
    assert_eq!(weight(&book, "a").as_deref(), Some("2"));
    let mut see = |lease, wanted: &str| {
        let change = book.seen(lease, at(1));
        assert_eq!(weight(&book, "a").as_deref(), Some(wanted));
        change
    };
    assert_eq!(see(weighing(held(2), "2"), "2"), Change::Nothing);
    assert_eq!(see(weighing(held(3), "0.5"), "0.5"), Change::Membership);
    assert_eq!(see(weighing(held(4), "half"), "1"), Change::Membership, "people are told");
    assert_eq!(see(held(5), "1"), Change::Membership, "there is nothing to tell any more");
}

#[test]
fn a_shard_whose_lease_vanished_keeps_its_weight() {
    let held = weighing(lease("a", "a", 0, 1), "3");
    let mut book = book([held.clone()], at(0));
    book.gone(KIND, &held, at(1));
    assert_eq!(weight(&book, "a").as_deref(), Some("3"));
}

/// The same Lease of a shard that says so of its controller.
pub(crate) fn saying(mut lease: Lease, controller: &str) -> Lease {
    lease.metadata.annotations.get_or_insert_default().insert(LEASE_CONTROLLER.to_owned(), controller.to_owned());
    lease
}

#[test]
fn a_controller_that_is_absent_or_ends_is_told_and_absence_dated_from_when_it_was_first_seen() {
    let held = |version| lease("a", "a", 0, version);
    let mut book = book([held(1)], at(0));
    let since = |book: &Book| book.iter().next().unwrap().1.absent.map(|(since, _)| since);
    let gives_away = |book: &Book| {
        let rings = book.members(at(0), Moment::default()).unwrap();
        rings[&"example".parse::<RingName>().unwrap()].gives_away("a")
    };
    assert_eq!((since(&book), gives_away(&book)), (None, false));
    for (second, controller, change, wanted) in [
        (2, "absent", Change::Membership, Some(at(2))),
        (3, "absent", Change::Nothing, Some(at(2))),
        (4, "working", Change::Membership, None),
        (5, "leaving", Change::Membership, None),
        (6, "absent", Change::Membership, Some(at(6))),
    ] {
        let renewed = labelled(saying(lease("a", "a", second, u64::from(second)), controller), "ready");
        assert_eq!(book.seen(renewed, at(second.into())), change, "{second}");
        assert_eq!((since(&book), gives_away(&book)), (wanted, controller != "working"), "{second}");
    }
    let again = labelled(saying(lease("a", "a", 6, 6), "absent"), "ready");
    list(&mut book, [again], at(9));
    assert_eq!(since(&book), Some(at(6)), "a list is no news");
}

fn state(book: &Book, shard: &str, now: u64) -> Option<ShardState> {
    book.members(at(now), Moment::default()).unwrap().get(&"example".parse::<RingName>().unwrap())?.state(shard)
}

#[test]
fn nobody_is_known_before_the_first_list_has_ended() {
    let mut book = Book::default();
    book.seen(lease("a", "a", 0, 1), at(0));
    assert_eq!(book.members(at(0), at(0)), None);
    book.listed(KIND, vec![lease("a", "a", 0, 1)], at(0));
    assert_eq!(book.members(at(0), at(0)), None);
    assert_eq!(book.listed(RingKind::ControllerRing, Vec::new(), at(0)), Change::Membership);
    assert_eq!(state(&book, "a", 0), Some(ShardState::Ready));
}

/// The same Lease of a ring of the other kind, in this version.
fn of_other_kind(mut lease: Lease, version: u64) -> Lease {
    let label = RingKind::ControllerRing.names().lease_label;
    lease.metadata.labels = Some([(label.to_owned(), "example".to_owned())].into());
    lease.metadata.resource_version = Some(version.to_string());
    lease
}

/// The Leases that are known, and whether their rings are of the other kind.
fn known(book: &Book) -> Vec<(&str, bool)> {
    book.iter().map(|(key, seen)| (key.name.as_str(), seen.ring.kind() != KIND)).collect()
}

#[test]
fn a_list_says_nothing_of_the_other_kind() {
    let mut book = book([lease("a", "a", 0, 1), lease("b", "b", 0, 1)], at(0));
    let odd = |name: &str| weighing(lease(name, name, 0, 1), "much");
    book.seen(of_other_kind(odd("c"), 1), at(1));
    book.seen(odd("b"), at(1));
    book.listed(KIND, vec![lease("a", "a", 0, 1)], at(1));
    assert_eq!(known(&book), [("a", false), ("c", true)]);
    assert_eq!(book.complaints.keys().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["c"]);
    book.listed(RingKind::ControllerRing, Vec::new(), at(1));
    assert_eq!(known(&book), [("a", false)]);
}

#[test]
fn a_lease_that_changes_its_kind_of_ring_is_not_gone() {
    let (before, after) = (lease("a", "a", 0, 1), of_other_kind(lease("a", "a", 0, 1), 2));
    let mut book = book([before.clone()], at(0));
    assert_eq!(book.seen(after.clone(), at(1)), Change::Membership);
    assert_eq!(book.gone(KIND, &before, at(1)), Change::Nothing);
    book.listed(KIND, vec![before], at(1));
    assert_eq!(known(&book), [("a", true)], "the list is of before");
    assert_eq!(book.gone(RingKind::ControllerRing, &after, at(1)), Change::Membership);
    assert_eq!(known(&book), []);
}

#[test]
fn a_lease_of_a_kind_that_is_not_served_is_none() {
    let mut book = Book::default();
    book.serve(&[KIND]);
    book.listed(KIND, vec![lease("a", "a", 0, 1)], at(0));
    assert_eq!(state(&book, "a", 0), Some(ShardState::Ready), "no other kind is waited for");
    assert_eq!(book.seen(of_other_kind(lease("a", "a", 0, 1), 2), at(1)), Change::Membership);
    assert_eq!(known(&book), []);
}

#[test]
fn a_change_of_the_spec_counts_from_when_it_was_seen() {
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    assert_eq!(state(&book, "a", 10), Some(ShardState::Expired));
    // The shard's clock is an hour behind: what counts is that it renewed.
    assert_eq!(book.seen(labelled(lease("a", "a", 5, 2), "ready"), at(12)), Change::Nothing);
    assert_eq!(state(&book, "a", 21), Some(ShardState::Ready));
}

#[test]
fn the_sharders_own_label_is_no_sign_of_life() {
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    assert_eq!(book.seen(labelled(lease("a", "a", 0, 2), "expired"), at(11)), Change::Nothing);
    assert_eq!(state(&book, "a", 20), Some(ShardState::Uncertain));
}

#[test]
fn a_new_list_is_no_sign_of_life_either() {
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    assert_eq!(list(&mut book, [lease("a", "a", 0, 1)], at(9)), Change::Attention);
    assert_eq!(state(&book, "a", 10), Some(ShardState::Expired));
}

#[test]
fn a_shard_outlives_the_lease_that_it_held() {
    let deleted = |book: &mut Book| book.gone(KIND, &lease("a", "a", 0, 1), at(5));
    let unlabelled = |book: &mut Book| {
        let mut bare = lease("a", "a", 0, 2);
        bare.metadata.labels = None;
        book.seen(bare, at(5))
    };
    let of_another_ring = |book: &mut Book| {
        let mut other = lease("a", "a", 0, 2);
        other.metadata.labels.as_mut().unwrap().insert(LEASE_LABEL.into(), "other".into());
        book.seen(other, at(5))
    };
    let unlisted = |book: &mut Book| list(book, [], at(5));
    let ways: [&dyn Fn(&mut Book) -> Change; 4] = [&deleted, &unlabelled, &of_another_ring, &unlisted];
    for vanish in ways {
        let mut book = book([lease("a", "a", 0, 1)], at(0));
        assert_eq!(vanish(&mut book), Change::Membership);
        assert_eq!(state(&book, "a", 24), Some(ShardState::Expired));
        book.expire(at(24));
        assert_eq!(book.expire(at(24)), (false, Some(at(25))));
        assert!(
            plan(&book, at(24), at(0))
                .0
                .iter()
                .all(|todo| todo.lease.metadata.labels.as_ref().unwrap()[LEASE_LABEL] == "other"),
            "no Lease, nothing to write"
        );
        assert_eq!(book.expire(at(25)), (true, None));
        assert_eq!(state(&book, "a", 25), None);
    }
}

#[test]
fn a_lease_that_its_shard_did_not_hold_takes_it_along() {
    for holder in ["", SHARDER_HOLDER] {
        let mut book = book([lease("a", holder, 0, 1)], at(0));
        assert_eq!(book.gone(KIND, &lease("a", holder, 0, 1), at(5)), Change::Membership);
        assert_eq!(state(&book, "a", 5), None);
        let mut book = super::tests::book([lease("a", holder, 0, 1)], at(0));
        list(&mut book, [], at(5));
        assert_eq!(state(&book, "a", 5), None);
    }
}

#[test]
fn a_lease_that_appears_again_says_what_its_shard_is() {
    for (holder, expected) in [("a", ShardState::Ready), ("", ShardState::Dead)] {
        let mut book = book([lease("a", "a", 0, 1)], at(0));
        book.gone(KIND, &lease("a", "a", 0, 1), at(5));
        book.seen(lease("a", holder, 6, 3), at(6));
        assert_eq!(state(&book, "a", 6), Some(expected));
        assert!(!book.expire(at(6)).0);
        book.gone(KIND, &lease("a", "a", 0, 1), at(7));
        list(&mut book, [lease("a", holder, 6, 3)], at(8));
        assert_eq!(state(&book, "a", 8), Some(expected));
    }
}

#[test]
fn a_lease_made_anew_is_another_shard_that_has_its_full_time() {
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    let mut anew = lease("a", "a", 0, 2);
    anew.metadata.uid = Some("another".into());
    book.seen(anew, at(15));
    assert_eq!(state(&book, "a", 24), Some(ShardState::Ready));
    // The event of the old one's deletion arrives late.
    assert_eq!(book.gone(KIND, &lease("a", "a", 0, 1), at(16)), Change::Nothing);
    assert_eq!(state(&book, "a", 24), Some(ShardState::Ready));
}

#[test]
fn the_past_does_not_bring_a_dead_shard_back() {
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    // The answer to the acquisition overtakes the event of the label that was written before.
    assert_eq!(book.seen(lease("a", SHARDER_HOLDER, 30, 12), at(30)), Change::Membership);
    assert_eq!(book.seen(labelled(lease("a", "a", 0, 9), "uncertain"), at(30)), Change::Nothing);
    assert_eq!(state(&book, "a", 30), Some(ShardState::Dead));
    assert_eq!(list(&mut book, [lease("a", "a", 0, 9)], at(31)), Change::Attention);
    assert_eq!(state(&book, "a", 31), Some(ShardState::Dead));
}

#[test]
fn a_list_does_not_undo_what_was_seen_while_it_was_read() {
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    book.seen(lease("a", SHARDER_HOLDER, 30, 12), at(30));
    list(&mut book, [lease("a", "a", 0, 1)], at(30));
    assert_eq!(state(&book, "a", 30), Some(ShardState::Dead));
}

#[test]
fn only_what_needs_action_wakes_somebody() {
    let mut book = book([], at(0));
    assert_eq!(book.seen(lease("a", "a", 0, 1), at(0)), Change::Membership);
    assert_eq!(book.seen(labelled(lease("a", "a", 0, 2), "ready"), at(0)), Change::Nothing);
    assert_eq!(book.seen(labelled(lease("a", "a", 3, 3), "ready"), at(3)), Change::Nothing);
    // It came back after its label was changed to expired.
    assert_eq!(book.seen(labelled(lease("a", "a", 20, 4), "expired"), at(20)), Change::Attention);
    assert_eq!(book.seen(labelled(lease("a", "", 21, 5), "ready"), at(21)), Change::Membership);
}

#[test]
fn who_places_objects_is_told_when_a_lease_runs_out_and_when_it_is_renewed() {
    let mut book = book([lease("a", "a", 0, 1), lease("b", "b", 0, 1)], at(0));
    assert_eq!(book.expire(at(1)), (false, Some(at(10))));
    assert_eq!(book.seen(labelled(lease("b", "b", 8, 2), "ready"), at(8)), Change::Nothing);
    assert_eq!(book.expire(at(10)), (true, Some(at(18))));
    assert_eq!(book.expire(at(15)), (false, Some(at(18))), "said once");
    let renewed = |second, version| labelled(lease("a", "a", second, version), "ready");
    assert_eq!(book.seen(renewed(16, 3), at(16)), Change::Membership);
    assert_eq!(book.seen(renewed(17, 4), at(17)), Change::Nothing);
    // A list shows all at once after a watch that was away.
    assert_eq!(book.expire(at(40)), (true, None));
    let both = [lease("a", "a", 39, 9), lease("b", "b", 39, 9)];
    assert_eq!(list(&mut book, both.map(|lease| labelled(lease, "ready")), at(41)), Change::Membership);
}

#[test]
fn a_shard_that_another_judge_found_late_is_ready_when_it_renews() {
    for found in ["expired", "uncertain"] {
        let mut book = book([labelled(lease("a", "a", 0, 1), found)], at(0));
        assert_eq!(state(&book, "a", 0), Some(ShardState::Expired));
        book.expire(at(0));
        // The leader judges it again, and labels it ready.
        book.seen(labelled(lease("a", "a", 0, 2), "ready"), at(1));
        assert_eq!(state(&book, "a", 1), Some(ShardState::Expired));
        assert_eq!(book.seen(labelled(lease("a", "a", 2, 3), "ready"), at(2)), Change::Membership);
        assert_eq!(state(&book, "a", 2), Some(ShardState::Ready));
    }
}

#[test]
fn a_name_that_can_not_be_a_shards_is_ignored() {
    let long = "a".repeat(64);
    let mut book = book([lease(&long, &long, 0, 1), lease("a", "a", 0, 1)], at(0));
    assert_eq!(book.iter().count(), 1);
    assert_eq!(book.complaints.len(), 1);
    book.seen(lease(&long, &long, 1, 2), at(1));
    assert_eq!(book.complaints.len(), 1, "complained about once");
}

/// Each Lease's name is that of a Pod: they come and go with every roll-out.
#[test]
fn complaints_are_one_a_lease_and_go_with_it() {
    let odd = |name: &str, weight: &str| weighing(lease(name, name, 0, 1), weight);
    let long = "a".repeat(64);
    let mut book = book([], at(0));
    for weight in ["much", "more"] {
        book.seen(odd("a", weight), at(1));
    }
    book.seen(lease(&long, &long, 0, 1), at(1));
    let complaints = |book: &Book| -> Vec<_> {
        book.complaints
            .iter()
            .map(|(key, fault)| (key.name.len(), fault.split(' ').next().unwrap().to_owned()))
            .collect()
    };
    assert_eq!(complaints(&book).len(), 2);
    assert_eq!(complaints(&book)[0], (1, "'more'".to_owned()));
    book.seen(odd("a", "2"), at(2));
    assert_eq!(complaints(&book).len(), 1, "it was mended");
    book.gone(KIND, &lease(&long, &long, 0, 1), at(3));
    assert_eq!(complaints(&book), []);
    // The watch was away while they went.
    list(&mut book, [odd("b", "much"), odd("c", "much"), lease(&long, &long, 0, 1)], at(4));
    assert_eq!(complaints(&book).len(), 3);
    list(&mut book, [odd("c", "much")], at(5));
    assert_eq!(complaints(&book), [(1, "'much'".to_owned())]);
}

#[test]
fn a_shard_with_leases_in_two_namespaces_is_there_while_one_is_held() {
    let mut other = lease("a", "", 0, 1);
    other.metadata.namespace = Some("other".into());
    let book = book([lease("a", "a", 0, 1), other], at(0));
    assert_eq!(state(&book, "a", 5), Some(ShardState::Ready));
}

pub(crate) fn in_namespace(mut lease: Lease, namespace: &str) -> Lease {
    lease.metadata.namespace = Some(namespace.to_owned());
    lease
}

/// What the leader would do about the Leases of a book, by the names of these.
fn planned(book: &Book, now: u64) -> Vec<String> {
    plan(book, at(now), at(0)).0.into_iter().map(|todo| todo.key.name).collect()
}

fn faults(book: &Book) -> Vec<String> {
    book.faults(&"example".parse().unwrap(), at(0)).collect()
}

fn confined(book: &mut Book, namespaces: &[&str], now: u64) -> bool {
    let namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
    book.confine([("example".parse().unwrap(), OfRing { namespaces, ..OfRing::default() })].into(), at(now))
}

/// A label that all objects of an installation get is on its election lock as well.
#[test]
fn a_lock_of_another_program_is_never_labelled_acquired_or_deleted() {
    let lock = |holder: &str, version| lease("lock", holder, 0, version);
    let mut book = book([lock("operator-0_uuid", 1), lease("a", "a", 0, 1)], at(0));
    for second in [0, 20, 100, 10_000] {
        assert_eq!(state(&book, "lock", second), None);
        assert!(!planned(&book, second).contains(&"lock".to_owned()), "after {second} s");
    }
    assert_eq!(
        faults(&book),
        ["Lease 'default/lock': another program holds it, so it is no shard's: take the ring's label off"]
    );
    assert_eq!(book.seen(lock("operator-1_uuid", 2), at(3)), Change::Nothing, "its renewals wake nobody");
    // It is free for a moment, between two holders.
    book.seen(lock("", 3), at(4));
    assert_eq!((state(&book, "lock", 4), planned(&book, 10_000)), (None, vec!["a".to_owned()]));
    assert_eq!(book.gone(KIND, &lock("", 3), at(5)), Change::Membership);
    assert_eq!((state(&book, "lock", 5), faults(&book)), (None, vec![]));
}

#[test]
fn what_a_shard_has_released_is_collected_by_whoever_leads() {
    // One that begins to watch has not seen who held it.
    for holder in ["", SHARDER_HOLDER] {
        assert_eq!(planned(&book([labelled(lease("a", holder, 0, 1), "ready")], at(0)), 70), ["a"]);
    }
    // An election lock that is free has no sign of a shard.
    let lock = book([lease("a", "", 0, 1)], at(0));
    assert_eq!((planned(&lock, 70), faults(&lock).len()), (vec![], 1));
    // Another program takes the Lease of a shard that was there.
    let mut book = book([lease("a", "a", 0, 1)], at(0));
    assert_eq!(book.seen(lease("a", "thief", 1, 2), at(1)), Change::Membership);
    assert_eq!((state(&book, "a", 1), planned(&book, 71)), (Some(ShardState::Dead), vec!["a".to_owned()]));
}

#[test]
fn only_leases_in_the_namespaces_of_the_ring_are_shards() {
    let elsewhere = |name: &str, holder: &str, renewed| in_namespace(lease(name, holder, renewed, 1), "elsewhere");
    let mut book =
        book([lease("a", "a", 0, 1), elsewhere("b", "b", 0), labelled(elsewhere("gone", "", 0), "ready")], at(0));
    assert_eq!((planned(&book, 0).len(), planned(&book, 1).len()), (2, 3), "a hold would label what is gone");
    assert!(confined(&mut book, &["default"], 0) && !confined(&mut book, &["default"], 0));
    assert_eq!((planned(&book, 0), planned(&book, 9_999)), (vec!["a".to_owned()], vec!["a".to_owned()]));
    assert_eq!(
        faults(&book),
        ["Leases in namespace 'elsewhere' make no shards, as spec.shardNamespaces does not name it: b"]
    );
    // It was a shard, and has the time to notice that it is none any more.
    book.seen(elsewhere("b", "b", 5), at(5));
    assert_eq!(state(&book, "b", 19), Some(ShardState::Expired));
    assert_eq!(book.expire(at(20)), (true, None));
    assert_eq!(state(&book, "b", 20), None);
    // One that comes later is none at any time.
    book.seen(elsewhere("c", "c", 21), at(21));
    book.gone(KIND, &elsewhere("c", "c", 21), at(22));
    assert_eq!(state(&book, "c", 22), None);
    assert!(confined(&mut book, &[], 23));
    assert_eq!((state(&book, "b", 14), faults(&book).len()), (Some(ShardState::Ready), 0));
}

#[test]
fn a_shard_is_of_its_group_until_it_is_gone_also_without_its_lease() {
    let of_group = |version, group: &str| {
        let mut lease = lease("a", "a", 0, version);
        lease.metadata.annotations.get_or_insert_default().insert(LEASE_GROUP.to_owned(), group.to_owned());
        lease
    };
    let groups = |book: &Book| {
        let members = book.members(at(0), Moment::default()).unwrap().remove(&"example".parse::<RingName>().unwrap());
        members.unwrap_or_default().groups().values().cloned().collect::<Vec<_>>()
    };
    let mut book = book([of_group(1, "big")], at(0));
    assert_eq!(groups(&book), ["big"]);
    assert_eq!(book.seen(of_group(2, "small"), at(0)), Change::Membership);
    assert_eq!(groups(&book), ["small"]);
    book.gone(KIND, &of_group(2, "small"), at(1));
    assert_eq!(groups(&book), ["small"], "it may be working");
    book.expire(at(100));
    assert_eq!(groups(&book), [""; 0]);
}

#[test]
fn a_duration_out_of_bounds_is_told_at_once_and_does_not_count() {
    let lasting = |seconds: i32, version| {
        let mut lease = labelled(lease("a", "a", 0, version), "ready");
        lease.spec.as_mut().unwrap().lease_duration_seconds = Some(seconds);
        lease
    };
    let mut book = book([lasting(15, 1)], at(0));
    assert_eq!(faults(&book), [""; 0]);
    assert_eq!(book.seen(lasting(15_000, 2), at(0)), Change::Membership);
    assert_eq!(faults(&book), ["Lease 'default/a': its leaseDurationSeconds is 15000, so 15 counts: write 2 to 120"]);
    assert_eq!(state(&book, "a", 30), Some(ShardState::Uncertain));
    let (todos, _) = plan(&book, at(30), at(0));
    let acquired = crate::leases::plan::acquired(&todos[0].lease, k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(acquired.spec.unwrap().lease_duration_seconds, Some(30));
}
