//! Tests of which Leases make shards, with time as an argument.

#![allow(clippy::unwrap_used)]

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use ringside_ring::{
    labels::{LEASE_ADMITTED, LEASE_INSTANCE, LEASE_RING_GENERATION},
    lease::annotation,
    placement::DEFAULT_TOKENS_PER_SHARD,
};

use super::*;
use crate::leases::{
    book::{
        OfRing,
        tests::{KIND, at, in_namespace, labelled, lease, list, weighing},
    },
    plan::{Action, plan},
};

fn ring() -> RingName {
    "example".parse().unwrap()
}

/// A book that has seen these Leases, and the answers about these namespaces.
fn asked(leases: impl IntoIterator<Item = Lease>, answers: &[(&str, bool)]) -> Book {
    let mut book = Book::new(true, DEFAULT_TOKENS_PER_SHARD);
    book.confine([(ring(), OfRing::default())].into(), at(0));
    list(&mut book, leases, at(0));
    answer(&mut book, answers, 0);
    book.know_all();
    book
}

fn answer(book: &mut Book, answers: &[(&str, bool)], second: u64) {
    let answers = answers.iter().map(|(namespace, granted)| (Some(*granted), (*namespace).to_owned()));
    book.granted(answers.collect(), at(second));
}

fn elsewhere(name: &str, holder: &str, version: u64) -> Lease {
    in_namespace(lease(name, holder, u32::try_from(version).unwrap(), version), "x")
}

fn behind_proxy(mut lease: Lease, instance: &str) -> Lease {
    lease.metadata.annotations.get_or_insert_default().insert(LEASE_INSTANCE.to_owned(), instance.to_owned());
    lease
}

fn shards(book: &Book, second: u64) -> Vec<String> {
    let members = book.members(at(second), at(0)).unwrap().remove(&ring()).unwrap_or_default();
    members.available().map(ToString::to_string).collect()
}

fn keys(book: &Book, shard: &str) -> Option<Vec<String>> {
    let keys = book.to_hold(&ring(), shard, at(100))?;
    Some(keys.into_iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect())
}

/// What a user who may create Leases in a namespace of theirs could do.
#[test]
fn a_foreign_lease_neither_shuts_a_shard_nor_gets_objects_nor_blocks_takeovers() {
    let admitted = {
        let mut lease = behind_proxy(lease("a", "a", 0, 1), "i");
        let told = [(LEASE_ADMITTED, "i"), (LEASE_RING_GENERATION, "")];
        lease.metadata.annotations.as_mut().unwrap().extend(told.map(|(mark, it)| (mark.to_owned(), it.to_owned())));
        labelled(lease, "ready")
    };
    let foreign = [elsewhere("a", "a", 1), elsewhere("ghost", "ghost", 1), labelled(elsewhere("gone", "", 1), "ready")];
    let book = asked(foreign.into_iter().chain([admitted]), &[("default", true), ("x", false)]);
    assert_eq!(shards(&book, 0), ["a"]);
    assert!(plan(&book, at(1), at(0)).0.is_empty(), "nothing is written, the admitted instance among it");
    assert_eq!(keys(&book, "gone").unwrap(), ["default/gone"], "the foreign one is not to be held");
    let faults: Vec<_> = book.faults(&ring(), at(0)).collect();
    assert!(
        faults.len() == 1 && faults[0].contains("namespace 'x'") && faults[0].ends_with(": a, ghost"),
        "{faults:?}"
    );
    assert_eq!(book.namespaces_of(&ring()).unwrap(), ["default".to_owned()].into());
}

#[test]
fn a_name_that_a_native_shard_holds_elsewhere_is_not_taken_over_without_a_lease() {
    let answers = [("default", true), ("x", false)];
    let mut book = asked([lease("b", "b", 0, 1), elsewhere("a", "a", 1)], &answers);
    assert_eq!(keys(&book, "a"), None, "it may work on what names it");
    book.holds.want((ring(), "a".to_owned()), at(0));
    let told: Vec<_> = book.faults(&ring(), at(0)).collect();
    assert!(told[0].starts_with("objects of shard 'a' are not taken over"), "{told:?}");
    // Where the ring has a Lease of this name, what others make elsewhere does not matter.
    let released = || labelled(lease("a", "", 0, 2), "ready");
    book.seen(released(), at(1));
    assert_eq!(keys(&book, "a").unwrap(), ["default/a"]);
    // One behind a proxy ends by itself.
    let proxied = behind_proxy(elsewhere("c", "c", 1), "i");
    assert_eq!(keys(&asked([lease("b", "b", 0, 1), proxied], &answers), "c").unwrap(), ["default/c"]);
    book.gone(KIND, &released(), at(2));
    book.gone(KIND, &elsewhere("a", "a", 1), at(3));
    assert_eq!(keys(&book, "a").unwrap(), ["default/a"]);
}

#[test]
fn a_namespace_that_the_status_lists_counts_until_it_is_listed_no_more() {
    let mut book = asked([lease("a", "a", 0, 1), elsewhere("b", "b", 1)], &[("default", true), ("x", false)]);
    let listed = |book: &mut Book, namespaces: &[&str], second| {
        let listed = Some(namespaces.iter().map(|it| (*it).to_owned()).collect());
        book.confine([(ring(), OfRing { listed, ..OfRing::default() })].into(), at(second));
    };
    assert_eq!(shards(&book, 0), ["a"]);
    listed(&mut book, &["default", "x"], 1);
    assert_eq!(shards(&book, 1), ["a", "b"], "the leader knows better");
    answer(&mut book, &[("x", false)], 59);
    assert!(book.namespaces_of(&ring()).unwrap().contains("x"));
    answer(&mut book, &[("x", false)], 60);
    assert_eq!(book.namespaces_of(&ring()).unwrap(), ["default".to_owned()].into());
    assert_eq!(shards(&book, 60), ["a", "b"], "not before its proxies are told");
    listed(&mut book, &["default"], 61);
    assert_eq!(
        book.members(at(61), at(0)).unwrap()[&ring()].state("b"),
        Some(ringside_ring::lease::ShardState::Expired)
    );
    book.expire(at(81));
    assert_eq!(shards(&book, 81), ["a"], "it had the time to notice");
}

#[test]
fn no_namespace_is_listed_before_it_is_asked_about() {
    let mut book = asked([], &[]);
    assert_eq!(book.namespaces_of(&ring()), None, "a ring without shards excludes none");
    book.seen(lease("a", "a", 0, 1), at(1));
    assert_eq!(
        (shards(&book, 1), book.namespaces_of(&ring())),
        (vec![], None),
        "its proxy is not to close for a moment"
    );
    assert!(!book.unknown_for(&ring(), "a", at(1)).is_zero(), "and it may work");
    answer(&mut book, &[("default", true)], 1);
    assert_eq!(
        (shards(&book, 1), book.namespaces_of(&ring())),
        (vec!["a".to_owned()], Some(["default".to_owned()].into()))
    );
}

/// Leases of so many shards, one younger than the other.
fn many(count: usize, weight: &str) -> Vec<Lease> {
    let made = |number: usize| {
        let mut lease = weighing(lease(&format!("s-{number:04}"), &format!("s-{number:04}"), 0, 1), weight);
        let second = i64::try_from(number).unwrap();
        lease.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        lease
    };
    (0..count).map(made).collect()
}

#[test]
fn the_youngest_leases_beyond_the_bound_make_no_shards() {
    let (answers, mut leases) = ([("default", true)], many(102, "10"));
    // They come in any order.
    leases.reverse();
    let mut book = asked(leases, &answers);
    let all = shards(&book, 0);
    assert_eq!((all.len(), &*all[0], &*all[99]), (100, "s-0000", "s-0099"), "4,000,000 tokens");
    let told: Vec<_> = book.faults(&ring(), at(0)).collect();
    assert!(told[0].contains("the youngest Leases make no shards: default/s-0100, default/s-0101"), "{told:?}");
    let released = labelled(lease("s-0000", "", 0, 2), "ready");
    book.seen(released, at(1));
    assert_eq!(shards(&book, 1).last().unwrap(), "s-0100", "there is room for one more");
    let book = asked(many(1_001, "0"), &answers);
    assert_eq!(shards(&book, 0).len(), 1_000);
}

/// An older shard that gets more weight.
#[test]
fn a_shard_that_comes_to_be_beyond_the_bound_ends_before_its_objects_are_taken() {
    let mut leases = many(100, "10");
    leases[0] = weighing(leases[0].clone(), "1");
    leases.push(weighing(lease("native", "native", 0, 1), "1"));
    leases.push(behind_proxy(weighing(lease("young", "young", 0, 1), "1"), "i"));
    let later = |lease: &mut Lease, second| {
        lease.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    };
    later(&mut leases[100], 1_000);
    later(&mut leases[101], 1_001);
    let (heavier, young) = (weighing(leases[0].clone(), "10"), leases[101].clone());
    let next = |mut lease: Lease, version: u64| {
        lease.metadata.resource_version = Some(version.to_string());
        lease
    };
    let mut book = asked(leases, &[("default", true)]);
    assert_eq!(shards(&book, 0).len(), 102);
    book.seen(next(heavier, 2), at(1));
    let members = book.members(at(1), at(0)).unwrap().remove(&ring()).unwrap();
    let weight = |of: &str| members.weighted().find(|(shard, _)| shard.as_str() == of).unwrap().1;
    assert_eq!(weight("young").to_string(), "0", "it has no tokens, and may work");
    let tells = plan(&book, at(1), at(0)).0.into_iter().filter(|todo| todo.action == Action::Tell);
    assert_eq!(tells.map(|todo| todo.key.name).collect::<Vec<_>>(), ["young"]);
    book.expire(at(50));
    assert_eq!((keys(&book, "young"), keys(&book, "native")), (None, None), "they may work");
    // It reads that it is not admitted, and renews over that.
    let mut told = young.clone();
    told.metadata.annotations.as_mut().unwrap().insert(LEASE_ADMITTED.to_owned(), "none".to_owned());
    book.seen(next(told.clone(), 3), at(51));
    let mut renewed = told;
    renewed.spec = lease("young", "young", 9, 4).spec;
    book.seen(next(renewed, 4), at(52));
    assert_eq!(
        annotation(&book.leases[&LeaseKey { namespace: "default".into(), name: "young".into() }].lease, LEASE_ADMITTED),
        Some("none")
    );
    assert_eq!(keys(&book, "young").unwrap(), ["default/young"]);
    assert_eq!(keys(&book, "native"), None);
}

/// Leases that are deleted, and made again under other names.
#[test]
fn vanished_shards_count_for_the_bound() {
    let (first, second) = (many(100, "10"), many(200, "10").split_off(100));
    let mut book = asked(first.clone(), &[("default", true)]);
    for lease in first {
        book.gone(KIND, &lease, at(1));
    }
    for lease in second {
        book.seen(lease, at(2));
    }
    assert_eq!(shards(&book, 2).len(), 100);
    book.expire(at(30));
    assert_eq!(shards(&book, 30).first().unwrap(), "s-0100");
}
