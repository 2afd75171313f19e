#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::{lease::ShardState, placement::DEFAULT_TOKENS_PER_SHARD};

const NOBODY: Ownership<'_> = Ownership { shard: None, drain: None };

fn owned(shard: &str) -> Ownership<'_> {
    Ownership { shard: Some(shard), drain: None }
}

fn draining(shard: &str) -> Ownership<'_> {
    Ownership { shard: Some(shard), drain: Some("move-1") }
}

fn update<'a>(old: Ownership<'a>, new: Ownership<'a>) -> Write<'a> {
    Write::Update { old, new, writer: None }
}

/// Two available shards, one dead one, and the ring of the available ones.
fn world() -> (Members, HashRing) {
    let members: Members = [("a", ShardState::Ready), ("b", ShardState::Uncertain), ("gone", ShardState::Dead)]
        .into_iter()
        .map(|(shard, state)| (shard.parse().unwrap(), state))
        .collect();
    let ring = HashRing::new(members.available().cloned(), DEFAULT_TOKENS_PER_SHARD);
    (members, ring)
}

/// A key that belongs to `shard`.
fn key_of(shard: &str, ring: &HashRing) -> PartitionKey {
    (0..)
        .map(|i| PartitionKey::of("", "ConfigMap", "default", &format!("object-{i}")))
        .find(|key| ring.owner(key).unwrap().as_str() == shard)
        .unwrap()
}

#[test]
fn the_sharder_asks_an_available_shard_and_overrules_one_that_is_gone() {
    let (members, ring) = world();
    let key = key_of("a", &ring);
    let to: ShardName = "a".parse().unwrap();
    let step = |object| next_step(object, Patience::Left, &key, &members, &ring);
    assert_eq!(step(NOBODY), Step::Assign { to: to.clone() });
    assert_eq!(step(owned("a")), Step::Keep);
    assert_eq!(step(owned("b")), Step::Drain { to: to.clone() });
    assert_eq!(step(draining("b")), Step::AwaitAcknowledgement);
    assert_eq!(step(draining("a")), Step::AwaitAcknowledgement);
    assert_eq!(step(owned("gone")), Step::Move { to: to.clone() });
    assert_eq!(step(draining("gone")), Step::Move { to: to.clone() });
    assert_eq!(step(owned("never-was")), Step::Move { to: to.clone() });
    assert_eq!(step(Ownership { shard: None, drain: Some("left over") }), Step::Assign { to });
}

#[test]
fn a_late_shard_loses_what_it_was_asked_for_only_where_the_api_server_keeps_it_from_writing() {
    let (members, ring) = world();
    let key = key_of("a", &ring);
    let deadline = Duration::from_secs(60);
    let step = |object, age, fenced| {
        next_step(object, Patience::after(Duration::from_secs(age), deadline, fenced), &key, &members, &ring)
    };
    assert_eq!(step(draining("b"), 59, true), Step::AwaitAcknowledgement);
    assert_eq!(step(draining("b"), 60, true), Step::Force { to: "a".parse().unwrap() });
    assert_eq!(step(draining("b"), 6000, false), Step::AwaitAcknowledgement);
    assert_eq!(step(owned("b"), 6000, true), Step::Drain { to: "a".parse().unwrap() }, "nobody asked for it yet");
    assert_eq!(step(owned("a"), 6000, true), Step::Keep);
}

#[test]
fn without_shards_nothing_is_touched() {
    let ring = HashRing::new([], DEFAULT_TOKENS_PER_SHARD);
    let key = PartitionKey::of("", "ConfigMap", "default", "a");
    for object in [NOBODY, owned("a"), draining("a")] {
        assert_eq!(next_step(object, Patience::Left, &key, &Members::default(), &ring), Step::NoShard);
    }
}

#[test]
fn the_webhook_leaves_an_acknowledgement_to_the_controller_when_children_must_move_first() {
    // By the shard itself, or by somebody of whom nothing is known.
    for writer in [Some("a"), None] {
        let write = Write::Update { old: draining("a"), new: NOBODY, writer };
        assert_eq!(review(write, true), Verdict::Leave);
        assert_eq!(review(write, false), Verdict::Assign);
    }
    // And a user's write in the moment between acknowledgement and assignment is no occasion either.
    let between = update(NOBODY, NOBODY);
    assert_eq!(review(between, true), Verdict::Leave);
    assert_eq!(review(between, false), Verdict::Assign);
}

#[test]
fn the_webhook_puts_dropped_labels_back() {
    // A PUT from a template that knows no labels.
    assert_eq!(review(update(owned("a"), NOBODY), true), Verdict::Restore(owned("a")));
    assert_eq!(review(update(owned("a"), NOBODY), false), Verdict::Restore(owned("a")));
    // Only half of an acknowledgement.
    let half = update(draining("a"), Ownership { shard: None, drain: Some("move-1") });
    assert_eq!(review(half, true), Verdict::Restore(draining("a")));
    // The whole of one, by a Pod that is another one's.
    let foreign = Write::Update { old: draining("a"), new: NOBODY, writer: Some("b") };
    for moves_with_children in [true, false] {
        assert_eq!(review(foreign, moves_with_children), Verdict::Restore(draining("a")));
    }
}

#[test]
fn the_webhook_assigns_what_is_created_without_an_owner() {
    assert_eq!(review(Write::Create { new: NOBODY }, true), Verdict::Assign);
    assert_eq!(review(Write::Create { new: owned("a") }, true), Verdict::Leave);
    // The sharder's own assignment.
    assert_eq!(review(update(NOBODY, owned("a")), true), Verdict::Leave);
    assert_eq!(review(update(owned("a"), draining("a")), true), Verdict::Leave);
}

proptest! {
    /// The first promise, at the place where it is decided: an object of an available shard
    /// is never given to another one without that shard's acknowledgement.
    #[test]
    fn no_step_takes_an_object_from_an_available_shard(
        shard in proptest::option::of("[a-c]|gone|x"),
        drain in proptest::option::of("[a-z]{0,4}"),
        available in proptest::collection::btree_set("[a-c]", 0..4),
        name in "[a-z]{1,8}",
    ) {
        let members: Members = available.iter().map(|s| (s.parse().unwrap(), ShardState::Ready)).collect();
        let ring = HashRing::new(members.available().cloned(), std::num::NonZeroU32::new(10).unwrap());
        let object = Ownership { shard: shard.as_deref(), drain: drain.as_deref() };
        let step = next_step(object, Patience::Left, &PartitionKey::of("", "ConfigMap", "", &name), &members, &ring);
        if shard.as_deref().is_some_and(|shard| members.is_available(shard)) {
            prop_assert!(!matches!(step, Step::Assign { .. } | Step::Move { .. } | Step::NoShard), "{step:?}");
        } else if available.is_empty() {
            prop_assert_eq!(step, Step::NoShard);
        } else {
            prop_assert!(matches!(step, Step::Assign { .. } | Step::Move { .. }), "{step:?}");
        }
    }

    /// And the webhook never lets the shard label of an owner go without a drain.
    #[test]
    fn the_webhook_never_lets_go_of_an_undrained_object(
        owner in "[a-c]",
        drain in proptest::option::of("[a-z]{0,4}"),
        writer in proptest::option::of("[a-c]"),
        moves_with_children: bool,
    ) {
        let old = owned(&owner);
        let new = Ownership { shard: None, drain: drain.as_deref() };
        prop_assert_eq!(review(Write::Update { old, new, writer: writer.as_deref() }, moves_with_children), Verdict::Restore(old));
    }
}
