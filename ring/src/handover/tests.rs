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
    Write::Update { old, new, writer: None, manager: None }
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
fn what_another_shard_has_stays_there_while_its_home_comes_and_goes() {
    let (members, ring) = world();
    let members = members.with_unstable(["a".parse().unwrap()].into());
    let (key, to): (_, ShardName) = (key_of("a", &ring), "a".parse().unwrap());
    let step = |object| next_step(object, Patience::Left, &key, &members, &ring);
    assert_eq!((step(owned("b")), step(owned("a"))), (Step::Keep, Step::Keep));
    assert_eq!((step(NOBODY), step(owned("gone"))), (Step::Assign { to: to.clone() }, Step::Move { to }));
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
fn what_left_the_ring_is_let_go_of_by_its_shard_before_its_labels_come_off() {
    let (members, _) = world();
    let step = |object, patience| next_withdrawal(object, patience, &members);
    assert_eq!(step(NOBODY, Patience::Left), Withdrawal::Complete);
    assert_eq!(step(owned("b"), Patience::Over), Withdrawal::Drain, "nobody asked for it yet");
    assert_eq!(step(draining("b"), Patience::Left), Withdrawal::AwaitAcknowledgement);
    assert_eq!(step(draining("b"), Patience::Needed), Withdrawal::AwaitAcknowledgement);
    assert_eq!(step(draining("b"), Patience::Over), Withdrawal::Release);
    for nobodys in [owned("gone"), draining("never-was"), Ownership { shard: None, drain: Some("left over") }] {
        assert_eq!(step(nobodys, Patience::Left), Withdrawal::Release);
    }
}

/// A shard whose Lease expires is passed over by what has no owner, and nothing leaves its shard for it.
#[test]
fn nothing_goes_to_a_shard_whose_lease_has_expired_while_another_is_ready() {
    let (members, ring) = world();
    let key = key_of("b", &ring);
    let a: ShardName = "a".parse().unwrap();
    let step = |object, members: &Members| next_step(object, Patience::Left, &key, members, &ring);
    for object in [NOBODY, owned("gone"), draining("gone")] {
        assert!(
            matches!(step(object, &members), Step::Assign { to } | Step::Move { to } if to == a),
            "{object:?} belongs to b, which is uncertain"
        );
    }
    assert_eq!(step(owned("a"), &members), Step::Keep, "until it is known whether b is back");
    assert_eq!(step(owned("b"), &members), Step::Keep);
    let all_late: Members = ["a", "b"].map(|shard| (shard.parse().unwrap(), ShardState::Expired)).into_iter().collect();
    assert_eq!(step(NOBODY, &all_late), Step::Assign { to: "b".parse().unwrap() }, "an owner is better than none");
}

/// The hash ring stays what it is: who is passed over for a while gets its own back.
#[test]
fn a_shard_without_a_working_controller_is_asked_for_all_that_it_has() {
    use crate::{controller::Controller, members::Member, weight::Weight};
    let (_, ring) = world();
    let [key_a, key_b] = ["a", "b"].map(|shard| key_of(shard, &ring));
    let with = |a, b| -> Members {
        let member = |controller| Member { state: ShardState::Ready, weight: Weight::ONE, controller };
        [("a", a), ("b", b)].map(|(shard, it)| (shard.parse().unwrap(), member(it))).into_iter().collect()
    };
    let step = |object, key, members: &Members| next_step(object, Patience::Left, key, members, &ring);
    let b: ShardName = "b".parse().unwrap();
    let absent = with(Controller::Absent, Controller::Working);
    for members in [absent.clone(), absent.replacing([b.clone()])] {
        assert_eq!(step(owned("a"), &key_a, &members), Step::Drain { to: b.clone() });
        assert_eq!(step(NOBODY, &key_a, &members), Step::Assign { to: b.clone() });
        assert_eq!(step(owned("b"), &key_a, &members), Step::Keep, "until a works again");
        assert_eq!(step(draining("a"), &key_a, &members), Step::AwaitAcknowledgement);
    }
    let back = with(Controller::Working, Controller::Working);
    assert_eq!(step(owned("b"), &key_a, &back), Step::Drain { to: "a".parse().unwrap() });
    let none = with(Controller::Absent, Controller::Absent);
    for (owner, key) in [("a", &key_a), ("a", &key_b), ("b", &key_a)] {
        assert_eq!(step(owned(owner), key, &none), Step::Keep, "nobody works elsewhere");
    }
    assert_eq!(step(NOBODY, &key_b, &none), Step::Assign { to: b }, "an owner is better than none");
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
        let write = Write::Update { old: draining("a"), new: NOBODY, writer, manager: None };
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
    let foreign = Write::Update { old: draining("a"), new: NOBODY, writer: Some("b"), manager: Some(ACKNOWLEDGER) };
    for waits in [true, false] {
        assert_eq!(review(foreign, waits), Verdict::Restore(draining("a")));
    }
}

/// A controller that PUTs its own object from a template while it is drained.
#[test]
fn a_drain_that_carries_a_grace_is_acknowledged_by_the_field_manager_of_the_proxy_alone() {
    let by = |drain, manager| {
        let old = Ownership { drain: Some(drain), ..draining("a") };
        review(Write::Update { old, new: NOBODY, writer: Some("a"), manager }, true)
    };
    let kept = Ownership { drain: Some("move-1.1000ms"), ..draining("a") };
    for manager in [None, Some(""), Some("the-controller")] {
        assert_eq!(by("move-1.1000ms", manager), Verdict::Restore(kept), "{manager:?}");
        assert_eq!(by("move-1", manager), Verdict::Leave, "a shard that promised none, by {manager:?}");
    }
    assert_eq!(by("move-1.1000ms", Some(ACKNOWLEDGER)), Verdict::Leave);
}

#[test]
fn the_webhook_assigns_what_is_created_without_an_owner() {
    assert_eq!(review(Write::Create { new: NOBODY }, true), Verdict::Assign);
    assert_eq!(review(Write::Create { new: owned("a") }, true), Verdict::Leave);
    // The sharder's own assignment.
    assert_eq!(review(update(NOBODY, owned("a")), true), Verdict::Leave);
    assert_eq!(review(update(owned("a"), draining("a")), true), Verdict::Leave);
}

/// Carries out what is decided about an object until nothing is left to do; returns who has it, and how often it moved.
fn settle(
    mut shard: Option<String>,
    key: &PartitionKey,
    members: &Members,
    ring: &HashRing,
) -> (Option<String>, usize) {
    let mut moves = 0;
    loop {
        let object = Ownership { shard: shard.as_deref(), drain: None };
        match next_step(object, Patience::Left, key, members, ring) {
            // Its shard lets go.
            Step::Drain { .. } => {
                shard = None;
                moves += 1;
            }
            Step::Assign { to } => shard = Some(to.to_string()),
            Step::Move { to } => {
                shard = Some(to.to_string());
                moves += 1;
            }
            Step::Keep | Step::AwaitAcknowledgement | Step::NoShard | Step::Force { .. } => return (shard, moves),
        }
    }
}

proptest! {
    /// An object that was placed while Leases were late moves once at most when that is decided, whatever is decided.
    #[test]
    fn what_went_past_a_late_shard_moves_once_more_at_most(
        states in proptest::collection::vec(0_usize..3, 2..6),
        decided in proptest::collection::vec(any::<bool>(), 6),
        name in "[a-z]{1,8}",
    ) {
        let name_of = |i: usize| -> ShardName { format!("shard-{i}").parse().unwrap() };
        let members: Members = states.iter().enumerate().map(|(i, state)| (name_of(i), ShardState::ALL[*state])).collect();
        let ring = HashRing::new(members.available().cloned(), std::num::NonZeroU32::new(20).unwrap());
        let key = PartitionKey::of("", "ConfigMap", "", &name);
        let (placed, moves) = settle(None, &key, &members, &ring);
        let state = members.state(placed.as_deref().unwrap()).unwrap();
        prop_assert!(state == ShardState::Ready || states.iter().all(|state| *state != 0), "given to one that is {state}");
        prop_assert_eq!(moves, 0);
        // Each late shard is back, or dead.
        let after: Members = members.iter().zip(&decided).map(|((shard, state), back)| {
            let state = if state == ShardState::Ready || *back { ShardState::Ready } else { ShardState::Dead };
            (shard.clone(), state)
        }).collect();
        prop_assume!(after.available().next().is_some());
        let ring = HashRing::new(after.available().cloned(), std::num::NonZeroU32::new(20).unwrap());
        let (kept, moves) = settle(placed, &key, &after, &ring);
        prop_assert!(moves <= 1, "{moves} moves");
        prop_assert_eq!(kept.as_deref(), ring.owner(&key).map(ShardName::as_str));
    }

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
        waits: bool,
    ) {
        let old = owned(&owner);
        let new = Ownership { shard: None, drain: drain.as_deref() };
        let write = Write::Update { old, new, writer: writer.as_deref(), manager: Some(ACKNOWLEDGER) };
        prop_assert_eq!(review(write, waits), Verdict::Restore(old));
    }
}
