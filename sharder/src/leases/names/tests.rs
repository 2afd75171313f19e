//! Tests of names that several Leases have, with time as an argument.

#![allow(clippy::unwrap_used)]

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use ringside_ring::{Moment, Weight, labels::LEASE_RING_GENERATION, lease::ShardState};

use super::*;
use crate::leases::{
    book::{
        Book, Change, OfRing,
        tests::{KIND, at, book, labelled, lease},
    },
    plan::{Action, plan},
};

/// The Lease of `s-0` in this namespace, created at this second and held by this instance; the instance is none for a shard
/// that knows no admission.
fn named(namespace: &str, created: i64, instance: Option<&str>) -> Lease {
    let mut lease = labelled(lease("s-0", "s-0", 0, 1), "ready");
    lease.metadata.namespace = Some(namespace.to_owned());
    lease.metadata.uid = Some(format!("uid-{namespace}"));
    lease.metadata.creation_timestamp = Some(Time(Timestamp::from_second(created).unwrap()));
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.extend(instance.map(|instance| (LEASE_INSTANCE.to_owned(), instance.to_owned())));
    lease
}

/// The same Lease after a write of the sharder.
fn marked(mut lease: Lease, admitted: &str) -> Lease {
    lease.metadata.annotations.get_or_insert_default().insert(LEASE_ADMITTED.to_owned(), admitted.to_owned());
    next(lease)
}

/// The same Lease after a renewal.
fn renewed(mut lease: Lease) -> Lease {
    let spec = lease.spec.get_or_insert_default();
    let last = spec.renew_time.as_ref().unwrap().0;
    spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
        Timestamp::from_second(last.as_second() + 1).unwrap(),
    ));
    next(lease)
}

fn next(mut lease: Lease) -> Lease {
    let version: u64 = lease.metadata.resource_version.as_ref().unwrap().parse().unwrap();
    lease.metadata.resource_version = Some((version + 1).to_string());
    lease
}

fn ring() -> RingName {
    "example".parse().unwrap()
}

/// What the leader writes, by namespace.
fn told(book: &Book, now: Moment) -> Vec<(String, String)> {
    let tells = plan(book, now, Moment::default()).0.into_iter().filter(|todo| todo.action == Action::Tell);
    tells
        .map(|todo| (todo.key.namespace.clone(), book.marks_for(&book.names(), &todo.key)[LEASE_ADMITTED].clone()))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

fn receives(book: &Book, now: Moment) -> bool {
    book.members(now, Moment::default()).unwrap()[&ring()].may_receive("s-0")
}

#[test]
fn oldest_lease_of_a_name_is_admitted_and_stays_so() {
    let (old, young) = (named("b", 10, Some("u1")), named("a", 20, Some("u2")));
    let mut book = book([old.clone(), young.clone()], at(0));
    assert_eq!(told(&book, at(0)), pairs(&[("a", "u1"), ("b", "u1")]));
    for lease in [marked(old.clone(), "u1"), marked(young, "u1")] {
        book.seen(lease, at(1));
    }
    assert_eq!(told(&book, at(1)), pairs(&[]));
    // An older Lease gets the ring's label later.
    let older = named("c", 5, Some("u3"));
    book.seen(older.clone(), at(2));
    assert_eq!(told(&book, at(2)), pairs(&[("c", "u1")]));
    // A Pod of the same place takes the place of the one before.
    let again = renewed(marked(named("b", 10, Some("u4")), "u1"));
    book.seen(next(again), at(3));
    book.seen(marked(older, "u1"), at(3));
    assert!(told(&book, at(3)).contains(&("c".to_owned(), "u3".to_owned())), "nothing is admitted, so the oldest is");
}

#[test]
fn name_receives_nothing_while_two_of_its_instances_may_work() {
    let (old, young) = (marked(named("b", 10, Some("u1")), "u1"), named("a", 20, Some("u2")));
    let mut book = book([old, young.clone()], at(0));
    assert!(!receives(&book, at(0)) && !book.names().unread(&ring(), LEASE_ADMITTED, None).is_empty());
    let young = marked(young, "u1");
    book.seen(young.clone(), at(1));
    assert!(!receives(&book, at(1)), "it was written, and may not have been read");
    book.seen(renewed(young), at(2));
    assert!(receives(&book, at(2)));
    assert_eq!(book.names().faults(&ring()).len(), 1);
    assert!(book.names().faults(&ring())[0].contains("in the namespaces b, a: the first is admitted"));
}

#[test]
fn state_of_a_name_is_that_of_the_admitted_instance() {
    let (old, young) = (marked(named("b", 10, Some("u1")), "u1"), marked(named("a", 20, Some("u2")), "u1"));
    let mut book = book([old.clone(), young.clone()], at(0));
    book.seen(renewed(young), at(1));
    let mut released = next(old);
    released.spec.as_mut().unwrap().holder_identity = Some(String::new());
    book.seen(released, at(2));
    let members = book.members(at(2), Moment::default()).unwrap();
    assert_eq!(members[&ring()].state("s-0"), Some(ShardState::Dead), "the other one is not at work");
}

#[test]
fn other_instance_waits_until_a_deleted_lease_was_noticed() {
    let (old, young) = (marked(named("b", 10, Some("u1")), "u1"), marked(named("a", 20, Some("u2")), "u1"));
    let mut book = book([old.clone(), young], at(0));
    book.gone(KIND, &old, at(1));
    assert_eq!(told(&book, at(2)), pairs(&[]));
    book.expire(at(21));
    assert_eq!(told(&book, at(8)), pairs(&[("a", "u2")]));
}

fn all_know(book: &Book, generation: &str) -> bool {
    book.names().unread(&ring(), LEASE_RING_GENERATION, Some(generation)).is_empty()
}

#[test]
fn generation_of_the_ring_is_told_to_shards_that_read_it_and_known_by_their_next_renewal() {
    let (ours, native) = (marked(named("a", 10, Some("u1")), "u1"), lease("n", "n", 0, 1));
    let mut book = book([ours.clone(), labelled(native, "ready")], at(0));
    let generation = |it: &str| [(ring(), OfRing { generation: it.to_owned(), ..OfRing::default() })].into();
    assert!(book.confine(generation("2"), at(0)) && !book.confine(generation("2"), at(0)));
    let (todos, _) = plan(&book, at(0), Moment::default());
    let told: Vec<_> = todos.iter().map(|todo| (todo.key.name.as_str(), &todo.action)).collect();
    assert_eq!(told, [("s-0", &Action::Tell)]);
    let marks = book.marks_for(&book.names(), &todos[0].key);
    assert_eq!(marks, [(LEASE_RING_GENERATION, "2".to_owned())].into());
    let mut told = ours;
    told.metadata.annotations.get_or_insert_default().insert(LEASE_RING_GENERATION.to_owned(), "2".to_owned());
    let told = next(told);
    book.seen(told.clone(), at(1));
    assert!(plan(&book, at(1), Moment::default()).0.is_empty() && !all_know(&book, "2"));
    assert_eq!(book.seen(renewed(told), at(2)), Change::Membership);
    assert!(all_know(&book, "2") && !all_know(&book, "3"));
}

#[test]
fn shards_without_instance_are_drained_under_a_shared_name() {
    let held = || [named("a", 10, None), named("b", 20, None)];
    let one = book(held()[..1].to_vec(), at(0));
    assert!(
        receives(&one, at(0))
            && told(&one, at(0)).is_empty()
            && one.names().unread(&ring(), LEASE_ADMITTED, None).is_empty()
    );
    let both = book(held(), at(0));
    assert!(told(&both, at(0)).is_empty() && !receives(&both, at(0)));
    let members = &both.members(at(0), Moment::default()).unwrap()[&ring()];
    assert_eq!(members.weighted().map(|(_, weight)| weight).collect::<Vec<_>>(), [Weight::ZERO]);
    assert!(both.names().faults(&ring())[0].contains("all work"));
    // What can be kept from working gives way to what can't.
    let mixed = book([named("a", 10, Some("u1")), named("b", 20, None)], at(0));
    assert_eq!(told(&mixed, at(0)), pairs(&[("a", "uid-b")]));
}
