//! How often objects move while a Deployment rolls: by the hash ring alone, with what is known of Pods that are about to be
//! replaced, and at the least. Prints the three.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "what was counted")]

use std::{collections::BTreeMap, num::NonZeroU32};

use ringside_ring::{
    HashRing, Members, Ownership, PartitionKey, ShardName,
    handover::{Patience, Step, next_step},
    lease::ShardState,
};

const OBJECTS: usize = 2_000;
const TOKENS: NonZeroU32 = NonZeroU32::new(200).unwrap();

/// A Pod that becomes ready, or one that is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Joins(usize),
    Leaves(usize),
}

/// What a Deployment does that goes from old Pods `0..replicas` to new ones `replicas..2 * replicas`: each round it ends as
/// many old ones as may be missing, and makes as many new ones as there may be too many, which then become ready
/// (Kubernetes, "Rolling update": `maxUnavailable` is rounded down, `maxSurge` up).
fn roll(replicas: usize, percent: usize) -> Vec<Event> {
    let (surge, unavailable) = ((replicas * percent).div_ceil(100), replicas * percent / 100);
    let (mut old, mut new, mut events) = (replicas, 0, Vec::new());
    while old > 0 || new < replicas {
        let ending = (old + new).saturating_sub(replicas - unavailable).min(old);
        events.extend((0..ending).map(|i| Event::Leaves(replicas - old + i)));
        old -= ending;
        let starting = (replicas + surge - old - new).min(replicas - new);
        events.extend((0..starting).map(|i| Event::Joins(replicas + new + i)));
        new += starting;
    }
    events
}

fn name(pod: usize) -> ShardName {
    // As a Deployment's Pods have it: nothing of the number shows.
    format!("web-{:x}", pod * 2_654_435_761 % 4_294_967_296).parse().unwrap()
}

fn keys() -> Vec<PartitionKey> {
    (0..OBJECTS).map(|i| PartitionKey::of("web.example.com", "Website", "default", &format!("site-{i}"))).collect()
}

/// The objects' owners, and how often they changed.
struct World {
    keys: Vec<PartitionKey>,
    owners: Vec<Option<String>>,
    moves: usize,
}

impl World {
    fn start(members: &Members) -> Self {
        let keys = keys();
        let mut world = Self { owners: vec![None; keys.len()], keys, moves: 0 };
        world.settle(members);
        world.moves = 0;
        world
    }

    /// Carries out what is decided until nothing is left to do.
    fn settle(&mut self, members: &Members) {
        let ring = HashRing::new(members.available().cloned(), TOKENS);
        for (key, owner) in self.keys.iter().zip(&mut self.owners) {
            loop {
                let object = Ownership { shard: owner.as_deref(), drain: None };
                match next_step(object, Patience::Left, key, members, &ring) {
                    Step::Assign { to } | Step::Move { to } => {
                        *owner = Some(to.to_string());
                        self.moves += 1;
                    }
                    // Its shard lets go; it is assigned next.
                    Step::Drain { .. } => *owner = None,
                    _ => break,
                }
            }
        }
    }
}

fn members(pods: &BTreeMap<usize, ()>, outgoing: impl Fn(usize) -> bool) -> Members {
    let all: Members = pods.keys().map(|pod| (name(*pod), ShardState::Ready)).collect();
    all.replacing(pods.keys().filter(|pod| outgoing(**pod)).map(|pod| name(*pod)))
}

/// How often objects move in all; `known`: whether it is known which Pods are about to be replaced.
fn moves(replicas: usize, percent: usize, known: bool) -> usize {
    let mut pods: BTreeMap<usize, ()> = (0..replicas).map(|pod| (pod, ())).collect();
    let mut world = World::start(&members(&pods, |_| false));
    for event in roll(replicas, percent) {
        match event {
            Event::Joins(pod) => drop(pods.insert(pod, ())),
            Event::Leaves(pod) => drop(pods.remove(&pod)),
        }
        let is_rolling = known && pods.keys().any(|pod| *pod >= replicas);
        world.settle(&members(&pods, |pod| is_rolling && pod < replicas));
    }
    let after = members(&pods, |_| false);
    let ring = HashRing::new(after.available().cloned(), TOKENS);
    for (key, owner) in world.keys.iter().zip(&world.owners) {
        assert_eq!(owner.as_deref(), ring.owner(key).map(ShardName::as_str), "each is at home in the end");
    }
    world.moves
}

/// What no order can be below: each object leaves its Pod once, and once more where the Pod that it is going to in the end was
/// not there at that time, as nobody may be without an owner.
fn least(replicas: usize, percent: usize) -> usize {
    let before = HashRing::new((0..replicas).map(name), TOKENS);
    let after = HashRing::new((replicas..2 * replicas).map(name), TOKENS);
    let events = roll(replicas, percent);
    let at = |event: Event| events.iter().position(|one| *one == event).unwrap();
    let pod_of = |ring: &HashRing, key: &PartitionKey, range: std::ops::Range<usize>| {
        let owner = ring.owner(key).unwrap();
        range.into_iter().find(|pod| name(*pod) == *owner).unwrap()
    };
    let needed = |key: &PartitionKey| {
        let (from, to) = (pod_of(&before, key, 0..replicas), pod_of(&after, key, replicas..2 * replicas));
        if at(Event::Joins(to)) < at(Event::Leaves(from)) { 1 } else { 2 }
    };
    keys().iter().map(needed).sum()
}

#[test]
fn a_deployment_rolls_as_kubernetes_says() {
    use Event::{Joins, Leaves};
    assert_eq!(roll(3, 25), [Joins(3), Leaves(0), Joins(4), Leaves(1), Joins(5), Leaves(2)], "one more, none less");
    let events = roll(8, 25);
    assert_eq!(events[..6], [Leaves(0), Leaves(1), Joins(8), Joins(9), Joins(10), Joins(11)]);
}

#[test]
fn while_a_deployment_rolls_objects_move_hardly_more_often_than_they_must() {
    for replicas in [3, 4, 8, 20] {
        let (alone, known, least) = (moves(replicas, 25, false), moves(replicas, 25, true), least(replicas, 25));
        eprintln!(
            "{replicas} replicas, maxSurge and maxUnavailable 25 %, {OBJECTS} objects: {known} moves; at least {least}; by the hash ring alone {alone}"
        );
        assert!(known >= least);
        assert!(known * 100 <= least * 120, "{known} moves, {least} are needed");
        assert!(known < alone);
    }
}
