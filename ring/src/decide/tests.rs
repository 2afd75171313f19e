#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::{labels::Ownership, members::tests::any_members, partition::PartitionKey, weight::Weight};

mod naive;
mod rules;

use self::naive::{OVER, Step, next_step, receiver};

const TOGETHER: Family = Family { is_apart: false };
const APART: Family = Family { is_apart: true };
const DEADLINE: Duration = Duration::from_secs(60);

/// What the sharder does next with an object that the ring no longer distributes: its namespace or its resource left the
/// ring. Its labels come off in the order of a handover, as its shard may work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withdrawal {
    /// Nothing: it has no labels.
    Complete,
    /// Its shard is available and must first release it: set the drain label.
    Drain,
    /// Nothing yet: its shard was asked to release it and has not acknowledged.
    AwaitAcknowledgement,
    /// No shard of the ring works on it: take the labels off.
    Release,
}

/// Decides what the sharder does next with an object that the ring no longer distributes.
fn next_withdrawal(object: Ownership<'_>, drain: Drain, members: &Members) -> Withdrawal {
    match object {
        Ownership { shard: None, drain: None } => Withdrawal::Complete,
        Ownership { shard: Some(shard), drain: label } if members.is_available(shard) => match label {
            None => Withdrawal::Drain,
            Some(_) if drain == OVER => Withdrawal::Release,
            Some(_) => Withdrawal::AwaitAcknowledgement,
        },
        Ownership { .. } => Withdrawal::Release,
    }
}

/// Any object, with how old its drain is and whether the fence is around it.
fn any_object() -> impl Strategy<Value = (String, Option<String>, Option<String>, u64, bool)> {
    let label = proptest::option::weighted(0.8, "s-[0-4]|other");
    ("[a-z]{1,8}", label, proptest::option::weighted(0.3, "[a-z]{0,3}"), 0_u64..120, any::<bool>())
}

fn ring_of(members: &Members) -> HashRing {
    let weighted = members.weighted().map(|(shard, weight)| (shard.clone(), weight));
    HashRing::weighted(weighted, NonZeroU32::new(20).unwrap())
}

proptest! {
    // What decides between two rules is rare.
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn decisions_are_those_of_the_naive_rules(
        members in any_members(),
        (name, shard, drain, age, fenced) in any_object(),
    ) {
        let (ring, key) = (ring_of(&members), PartitionKey::of("", "ConfigMap", "default", &name));
        let view = View::new(&members, Arc::new(ring.clone()));
        let (object, age) = (Ownership { shard: shard.as_deref(), drain: drain.as_deref() }, Duration::from_secs(age));
        let drain = Drain::after(age, DEADLINE, fenced);
        prop_assert_eq!(drain == Drain::InTime, age < DEADLINE);
        prop_assert_eq!(drain == OVER, age >= DEADLINE && fenced);
        let decide = |covered| {
            let drain = object.drain.map(|_| drain);
            let object = Object { key: key.point(), holder: view.holder(object.shard), drain, covered };
            decide(&object, TOGETHER, &view).named(&view)
        };
        let is_late = drain == Drain::Overdue { fenced: false };
        let is_relieved = shard.as_deref().is_some_and(|shard| members.is_relieved(shard));
        let late = if is_relieved { Action::Overdue } else { Action::TakeBack };
        let waits = || if is_late { late.clone() } else { Action::Wait(Waiting::Acknowledgement) };
        let from = || shard.as_deref().unwrap().parse::<ShardName>().unwrap();
        let is_available = shard.as_deref().is_some_and(|shard| members.is_available(shard));

        let belongs = [ring.owner(&key), receiver(&key, &members, &ring)].into_iter().flatten();
        let is_home = belongs.map(ShardName::as_str).any(|it| shard.as_deref() == Some(it));
        let expected = match next_step(object, drain, &key, &members, &ring) {
            // It is drained, and its shard has it: that counts whether there is another one or not.
            Step::NoShard if is_available && object.drain.is_some() && drain != OVER => waits(),
            Step::NoShard => Action::NoShard,
            Step::Keep if is_home => Action::Keep,
            Step::Keep => Action::Stay,
            Step::AwaitAcknowledgement => waits(),
            Step::Assign { to } => Action::Assign { to, how: How::Unassigned },
            Step::Move { to } => Action::Assign { to, how: How::Takeover },
            Step::Force { to } => Action::Assign { to, how: How::Forced },
            Step::Drain { .. } => Action::Drain { from: from() },
        };
        prop_assert_eq!(decide(Covered::InRing), expected);

        let expected = match next_withdrawal(object, drain, &members) {
            Withdrawal::Complete => Action::Keep,
            Withdrawal::Drain => Action::Drain { from: from() },
            Withdrawal::AwaitAcknowledgement if is_late => Action::Overdue,
            Withdrawal::AwaitAcknowledgement => Action::Wait(Waiting::Acknowledgement),
            Withdrawal::Release => Action::Release,
        };
        prop_assert_eq!(decide(Covered::Leaving), expected);
    }

    /// In a group, objects are placed as if there were no other shards. One that a shard of another group has goes home.
    #[test]
    fn a_group_is_a_ring_of_its_shards_alone(
        members in any_members(),
        grouped in proptest::array::uniform5(any::<bool>()),
        name in "[a-z]{1,8}",
        shard in proptest::option::weighted(0.8, "s-[0-4]"),
    ) {
        let of_group = |(index, _): &(usize, &bool)| format!("s-{index}").parse::<ShardName>().unwrap();
        let groups = grouped.iter().enumerate().filter(|(_, is_of)| **is_of);
        let all = members.with_groups(groups.map(|it| (of_group(&it), "g".to_owned())).collect());
        let key = PartitionKey::of("", "ConfigMap", "default", &name).point();
        for group in [None, Some("g")] {
            let members = all.among(group);
            // Without weight a shard has no place beside others.
            if members.weighted().all(|(_, weight)| weight == Weight::ZERO) {
                continue;
            }
            let among_all = View::new(&members, Arc::new(ring_of(&all)));
            let alone = View::new(&members, Arc::new(ring_of(&members)));
            let decide = |view: &View| {
                let object =
                    Object { key, holder: view.holder(shard.as_deref()), drain: None, covered: Covered::InRing };
                decide(&object, TOGETHER, view).named(view)
            };
            let name = |view: &View, shard: Option<ShardId>| shard.and_then(|shard| view.ring().name(shard).cloned());
            let home = name(&among_all, among_all.home(key));
            prop_assert_eq!(&home, &name(&alone, alone.home(key)));
            let settles = name(&among_all, among_all.settles_at(key));
            prop_assert_eq!(&settles, &name(&alone, alone.settles_at(key)));
            let is_foreign = shard.as_deref().is_some_and(|it| all.is_available(it) && !members.is_available(it));
            if is_foreign {
                let from = shard.as_deref().unwrap().parse().unwrap();
                let expected = match (name(&among_all, among_all.receiver(key)), settles) {
                    (None, _) => Action::NoShard,
                    (Some(_), None) => Action::Stay,
                    (Some(_), Some(_)) => Action::Drain { from },
                };
                prop_assert_eq!(decide(&among_all), expected);
            } else {
                prop_assert_eq!(decide(&among_all), decide(&alone));
            }
        }
    }

    /// Of an owner that a shard has and is not asked for, children elsewhere come to it, wherever it belongs. Where that shard has no
    /// working controller they all move on.
    #[test]
    fn children_come_to_the_shard_of_their_owner_before_that_moves(
        members in any_members(),
        (name, shard, drain, ..) in any_object(),
    ) {
        let view = View::new(&members, Arc::new(ring_of(&members)));
        let key = PartitionKey::of("", "ConfigMap", "default", &name).point();
        let (holder, drain) = (view.holder(shard.as_deref()), drain.map(|_| Drain::InTime));
        let object = Object { key, holder, drain, covered: Covered::InRing };
        let apart = decide(&object, APART, &view);
        match (holder, drain) {
            (Holder::Available(to), None) if !view.is_relieved(to) => prop_assert_eq!(apart, Action::Gather { to }),
            _ => prop_assert_eq!(apart, decide(&object, TOGETHER, &view)),
        }
        for family in [APART, TOGETHER] {
            let withheld = Object { covered: Covered::Withheld, ..object };
            prop_assert_eq!(decide(&withheld, family, &view), Action::Wait(Waiting::Distribution));
        }
    }

    /// Objects come to the shard that their key settles at, whichever shard has them. Nothing is left to do then.
    #[test]
    fn an_object_is_kept_where_its_key_settles(members in any_members(), name in "[a-z]{1,8}") {
        let view = View::new(&members, Arc::new(ring_of(&members)));
        let key = PartitionKey::of("", "ConfigMap", "default", &name).point();
        let Some(home) = view.settles_at(key) else { return Ok(()) };
        for shard in members.available() {
            let holder = view.holder(Some(shard.as_str()));
            let object = Object { key, holder, drain: None, covered: Covered::InRing };
            let from = view.ring().id(shard.as_str()).unwrap();
            let expected = if from == home { Action::Keep } else { Action::Drain { from } };
            prop_assert_eq!(decide(&object, TOGETHER, &view), expected);
        }
        for holder in [Holder::Nobody, Holder::Gone] {
            let object = Object { key, holder, drain: None, covered: Covered::InRing };
            let is_given = matches!(decide(&object, TOGETHER, &view), Action::Assign { to, .. } if to == home);
            prop_assert!(is_given);
        }
    }
}
