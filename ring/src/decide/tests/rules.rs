//! The rules one by one.

use super::*;
use crate::{Controller, lease::ShardState, members::Member, placement::DEFAULT_TOKENS_PER_SHARD};

const NOBODY: Ownership<'_> = Ownership { shard: None, drain: None };
const WAITS: Action<ShardName> = Action::Wait(Waiting::Acknowledgement);

fn owned(shard: &str) -> Ownership<'_> {
    Ownership { shard: Some(shard), drain: None }
}

fn draining(shard: &str) -> Ownership<'_> {
    Ownership { shard: Some(shard), drain: Some("move-1") }
}

fn assign(to: ShardName) -> Action<ShardName> {
    Action::Assign { to, how: How::Unassigned }
}

fn take(to: ShardName) -> Action<ShardName> {
    Action::Assign { to, how: How::Takeover }
}

fn drain(from: &str) -> Action<ShardName> {
    Action::Drain { from: from.parse().unwrap() }
}

/// What is decided about an object; `drain` is how far it is where the object is drained.
fn next_of(
    covered: Covered,
    object: Ownership<'_>,
    drain: Drain,
    key: &PartitionKey,
    members: &Members,
    ring: &HashRing,
) -> Action<ShardName> {
    let view = View::new(members, Arc::new(ring.clone()));
    let (key, holder, drain) = (key.point(), view.holder(object.shard), object.drain.map(|_| drain));
    decide(&Object { key, holder, drain, covered }, TOGETHER, &view).named(&view)
}

fn next(
    object: Ownership<'_>,
    drain: Drain,
    key: &PartitionKey,
    members: &Members,
    ring: &HashRing,
) -> Action<ShardName> {
    next_of(Covered::InRing, object, drain, key, members, ring)
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
    let step = |object| next(object, Drain::InTime, &key, &members, &ring);
    assert_eq!(step(NOBODY), assign(to.clone()));
    assert_eq!(step(owned("a")), Action::Keep);
    assert_eq!(step(owned("b")), drain("b"));
    assert_eq!(step(draining("b")), WAITS);
    assert_eq!(step(draining("a")), WAITS);
    assert_eq!(step(owned("gone")), take(to.clone()));
    assert_eq!(step(draining("gone")), take(to.clone()));
    assert_eq!(step(owned("never-was")), take(to.clone()));
    assert_eq!(step(Ownership { shard: None, drain: Some("left over") }), assign(to));
}

#[test]
fn what_another_shard_has_stays_there_while_its_home_comes_and_goes() {
    let (members, ring) = world();
    let members = members.with_unstable(["a".parse().unwrap()].into());
    let (key, to): (_, ShardName) = (key_of("a", &ring), "a".parse().unwrap());
    let step = |object| next(object, Drain::InTime, &key, &members, &ring);
    assert_eq!((step(owned("b")), step(owned("a"))), (Action::Stay, Action::Keep));
    assert_eq!((step(NOBODY), step(owned("gone"))), (assign(to.clone()), take(to)));
}

/// But of a shard whose controller does not work.
#[test]
fn paused_ring_asks_no_shard_to_release() {
    let (members, ring) = world();
    let idle = Member { state: ShardState::Ready, weight: Weight::ONE, controller: Controller::Absent };
    let absent = members.clone().with("b".parse().unwrap(), idle);
    let key = key_of("a", &ring);
    let to: ShardName = "a".parse().unwrap();
    let step = |members: &Members, covered, object: Ownership<'_>| {
        let view = View::new(members, Arc::new(ring.clone())).paused(true);
        let drain = object.drain.map(|_| Drain::Overdue { fenced: true });
        let object = Object { key: key.point(), holder: view.holder(object.shard), drain, covered };
        decide(&object, TOGETHER, &view).named(&view)
    };
    let in_ring = |object| step(&members, Covered::InRing, object);
    assert_eq!((in_ring(owned("b")), in_ring(owned("a"))), (Action::Stay, Action::Keep));
    assert_eq!((in_ring(NOBODY), in_ring(owned("gone"))), (assign(to.clone()), take(to.clone())));
    assert_eq!(in_ring(draining("b")), Action::Assign { to, how: How::Forced }, "that had begun");
    assert_eq!(step(&absent, Covered::InRing, owned("b")), drain("b"), "nothing works on it there");
    assert_eq!(step(&members, Covered::Leaving, owned("b")), Action::Stay);
    assert_eq!(step(&members, Covered::Leaving, draining("b")), Action::Release, "that had begun too");
}

#[test]
fn a_late_shard_loses_what_it_was_asked_for_behind_the_fence_and_gets_it_back_without() {
    let (members, ring) = world();
    let key = key_of("a", &ring);
    let deadline = Duration::from_secs(60);
    let step = |object, age, fenced| {
        next(object, Drain::after(Duration::from_secs(age), deadline, fenced), &key, &members, &ring)
    };
    assert_eq!(step(draining("b"), 59, true), WAITS);
    assert_eq!(step(draining("b"), 60, true), Action::Assign { to: "a".parse().unwrap(), how: How::Forced });
    assert_eq!(step(draining("b"), 6000, false), Action::TakeBack);
    assert_eq!(step(owned("b"), 6000, true), drain("b"), "it was not asked for yet");
    assert_eq!(step(owned("a"), 6000, true), Action::Keep);
}

#[test]
fn a_drain_is_taken_back_only_where_its_shard_works_on_the_whole_family_then() {
    let (members, ring) = world();
    let view = View::new(&members, Arc::new(ring.clone()));
    let holder = view.holder(Some("b"));
    let late = Some(Drain::Overdue { fenced: false });
    let object = Object { key: key_of("a", &ring).point(), holder, drain: late, covered: Covered::InRing };
    assert_eq!(decide(&object, TOGETHER, &view), Action::TakeBack);
    assert_eq!(decide(&object, APART, &view), Action::Overdue, "a child is with another shard");
    assert_eq!(decide(&Object { covered: Covered::Leaving, ..object }, TOGETHER, &view), Action::Overdue);
}

#[test]
fn an_object_goes_to_the_shard_of_a_child_that_is_refused_where_that_can_have_it() {
    let (members, ring) = world();
    let view = View::new(&members, Arc::new(ring));
    let [a, b] = ["a", "b"].map(|shard| view.ring().id(shard).unwrap());
    for (children, gets) in [
        (vec![], a),
        (vec![Some("b")], b),
        (vec![Some("gone"), None], a),
        (vec![Some("gone"), Some("b"), Some("a")], b),
    ] {
        let holders = children.iter().map(|shard| view.holder(*shard));
        assert_eq!(view.receiver_beside(a, holders), gets, "{children:?}");
    }
}

#[test]
fn what_left_the_ring_is_released_by_its_shard_before_its_labels_come_off() {
    let (members, ring) = world();
    let key = key_of("a", &ring);
    let step = |object, drain| next_of(Covered::Leaving, object, drain, &key, &members, &ring);
    assert_eq!(step(NOBODY, Drain::InTime), Action::Keep);
    assert_eq!(step(owned("b"), OVER), drain("b"), "it was not asked for yet");
    assert_eq!(step(draining("b"), Drain::InTime), WAITS);
    assert_eq!(step(draining("b"), Drain::Overdue { fenced: false }), Action::Overdue);
    assert_eq!(step(draining("b"), OVER), Action::Release);
    for free in [owned("gone"), draining("never-was"), Ownership { shard: None, drain: Some("left over") }] {
        assert_eq!(step(free, Drain::InTime), Action::Release);
    }
}

/// A shard whose Lease expires is passed over by what has no owner, and nothing leaves its shard for it.
#[test]
fn nothing_goes_to_a_shard_whose_lease_has_expired_while_another_is_ready() {
    let (members, ring) = world();
    let key = key_of("b", &ring);
    let a: ShardName = "a".parse().unwrap();
    let step = |object, members: &Members| next(object, Drain::InTime, &key, members, &ring);
    for object in [NOBODY, owned("gone"), draining("gone")] {
        assert!(
            matches!(step(object, &members), Action::Assign { to, .. } if to == a),
            "{object:?} belongs to b, which is uncertain"
        );
    }
    assert_eq!(step(owned("a"), &members), Action::Keep, "past b it belongs here, until it is known whether b is back");
    assert_eq!(step(owned("b"), &members), Action::Keep);
    let all_late: Members = ["a", "b"].map(|shard| (shard.parse().unwrap(), ShardState::Expired)).into_iter().collect();
    assert_eq!(step(NOBODY, &all_late), assign("b".parse().unwrap()), "an owner is better than none");
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
    let step = |object, key, members: &Members| next(object, Drain::InTime, key, members, &ring);
    let b: ShardName = "b".parse().unwrap();
    let absent = with(Controller::Absent, Controller::Working);
    for members in [absent.clone(), absent.replacing([b.clone()])] {
        assert_eq!(step(owned("a"), &key_a, &members), drain("a"));
        assert_eq!(step(NOBODY, &key_a, &members), assign(b.clone()));
        assert_eq!(step(owned("b"), &key_a, &members), Action::Keep, "until a works again");
        assert_eq!(step(draining("a"), &key_a, &members), WAITS);
        let late = next(draining("a"), Drain::Overdue { fenced: false }, &key_a, &members, &ring);
        assert_eq!(late, Action::Overdue, "it would be asked for the object again at once");
    }
    let back = with(Controller::Working, Controller::Working);
    assert_eq!(step(owned("b"), &key_a, &back), drain("b"));
    let none = with(Controller::Absent, Controller::Absent);
    for (owner, key, stays) in [("a", &key_a, Action::Keep), ("a", &key_b, Action::Stay), ("b", &key_a, Action::Stay)] {
        assert_eq!(step(owned(owner), key, &none), stays, "no controller works elsewhere");
    }
    assert_eq!(step(NOBODY, &key_b, &none), assign(b), "an owner is better than none");
}

#[test]
fn without_shards_nothing_is_touched() {
    let ring = HashRing::new([], DEFAULT_TOKENS_PER_SHARD);
    let key = PartitionKey::of("", "ConfigMap", "default", "a");
    for object in [NOBODY, owned("a"), draining("a")] {
        assert_eq!(next(object, Drain::InTime, &key, &Members::default(), &ring), Action::NoShard);
    }
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
        match next(object, Drain::InTime, key, members, ring) {
            // Its shard releases it.
            Action::Drain { .. } => {
                shard = None;
                moves += 1;
            }
            Action::Assign { to, how } => {
                shard = Some(to.to_string());
                moves += usize::from(how != How::Unassigned);
            }
            _ => return (shard, moves),
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
        let step = next(object, Drain::InTime, &PartitionKey::of("", "ConfigMap", "", &name), &members, &ring);
        if shard.as_deref().is_some_and(|shard| members.is_available(shard)) {
            prop_assert!(!matches!(step, Action::Assign { .. } | Action::NoShard), "{step:?}");
        } else if available.is_empty() {
            prop_assert_eq!(step, Action::NoShard);
        } else {
            prop_assert!(matches!(step, Action::Assign { .. }), "{step:?}");
        }
    }
}
