//! How often objects move while a Deployment or a StatefulSet rolls: by the hash ring alone, with what is known of Pods that are
//! about to be replaced, and at the least. Prints the three.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "what was counted")]

use std::{collections::BTreeSet, num::NonZeroU32, ops::Range, sync::Arc};

use ringside_ring::{
    HashRing, Members, PartitionKey, ShardName,
    decide::{Action, Covered, Family, Object, View, decide},
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

/// What goes from old Pods `0..replicas` to new ones `replicas..2 * replicas`.
struct Roll {
    replicas: usize,
    events: Vec<Event>,
    /// Of the old Pods, and of the new ones.
    names: Vec<ShardName>,
}

impl Roll {
    /// A Deployment: each round it ends as many old Pods as may be missing, and makes as many new ones as there may be too
    /// many, which then become ready (Kubernetes, "Rolling update": `maxUnavailable` is rounded down, `maxSurge` up).
    fn of_deployment(replicas: usize, percent: usize) -> Self {
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
        // Nothing of the number shows.
        let name = |pod: usize| format!("web-{:x}", pod * 2_654_435_761 % 4_294_967_296).parse().unwrap();
        Self { replicas, events, names: (0..2 * replicas).map(name).collect() }
    }

    /// A StatefulSet: each Pod is ended and made again under its name, the one with the largest ordinal first, and none before
    /// the one before it is ready (Kubernetes, "StatefulSets", "Rolling Updates").
    fn of_stateful_set(replicas: usize) -> Self {
        let pods = (0..replicas).rev();
        let events = pods.flat_map(|pod| [Event::Leaves(pod), Event::Joins(replicas + pod)]).collect();
        let name = |pod: usize| format!("web-{}", pod % replicas).parse().unwrap();
        Self { replicas, events, names: (0..2 * replicas).map(name).collect() }
    }

    fn before(&self) -> Range<usize> {
        0..self.replicas
    }

    fn after(&self) -> Range<usize> {
        self.replicas..2 * self.replicas
    }

    /// The shards of these Pods; `known`: whether it is known which of them are about to be replaced.
    fn members(&self, pods: &BTreeSet<usize>, known: bool) -> Members {
        let all: Members = pods.iter().map(|pod| (self.names[*pod].clone(), ShardState::Ready)).collect();
        let is_rolling = known && pods.iter().any(|pod| self.after().contains(pod));
        let outgoing = pods.iter().filter(|pod| is_rolling && self.before().contains(pod));
        all.replacing(outgoing.map(|pod| self.names[*pod].clone()))
    }

    /// How often objects move in all.
    fn moves(&self, known: bool) -> usize {
        let mut pods: BTreeSet<usize> = self.before().collect();
        let mut world = World::start(&self.members(&pods, known));
        for event in &self.events {
            match event {
                Event::Joins(pod) => assert!(pods.insert(*pod)),
                Event::Leaves(pod) => assert!(pods.remove(pod)),
            }
            world.settle(&self.members(&pods, known));
        }
        let ring = HashRing::new(self.names[self.after()].iter().cloned(), TOKENS);
        for (key, owner) in world.keys.iter().zip(&world.owners) {
            assert_eq!(owner.as_deref(), ring.owner(key).map(ShardName::as_str), "each is at home in the end");
        }
        world.moves
    }

    /// What no order can be below: each object leaves its Pod once, and once more where the Pod that it is going to in the end
    /// was not there at that time, as no object may be without an owner.
    fn least(&self) -> usize {
        let at = |event: Event| self.events.iter().position(|one| *one == event).unwrap();
        let ring = |pods: Range<usize>| HashRing::new(self.names[pods].iter().cloned(), TOKENS);
        let (first, last) = (ring(self.before()), ring(self.after()));
        let pod_of = |ring: &HashRing, key: &PartitionKey, mut pods: Range<usize>| {
            let owner = ring.owner(key).unwrap();
            pods.find(|pod| self.names[*pod] == *owner).unwrap()
        };
        let needed = |key: &PartitionKey| {
            let (from, to) = (pod_of(&first, key, self.before()), pod_of(&last, key, self.after()));
            if at(Event::Joins(to)) < at(Event::Leaves(from)) { 1 } else { 2 }
        };
        keys().iter().map(needed).sum()
    }
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
        let view = View::new(members, Arc::new(HashRing::new(members.available().cloned(), TOKENS)));
        for (key, owner) in self.keys.iter().zip(&mut self.owners) {
            loop {
                let (key, holder) = (key.point(), view.holder(owner.as_deref()));
                let object = Object { key, holder, drain: None, covered: Covered::InRing };
                match decide(&object, Family::default(), &view).named(&view) {
                    Action::Assign { to, .. } => {
                        *owner = Some(to.to_string());
                        self.moves += 1;
                    }
                    // Its shard releases it; it is assigned next.
                    Action::Drain { .. } => *owner = None,
                    _ => break,
                }
            }
        }
    }
}

#[test]
fn deployments_and_stateful_sets_roll_as_kubernetes_says() {
    use Event::{Joins, Leaves};
    let events = Roll::of_deployment(3, 25).events;
    assert_eq!(events, [Joins(3), Leaves(0), Joins(4), Leaves(1), Joins(5), Leaves(2)], "one more, none less");
    let events = Roll::of_deployment(8, 25).events;
    assert_eq!(events[..6], [Leaves(0), Leaves(1), Joins(8), Joins(9), Joins(10), Joins(11)]);
    let set = Roll::of_stateful_set(2);
    assert_eq!(set.events, [Leaves(1), Joins(3), Leaves(0), Joins(2)], "one less, none more");
    assert_eq!(set.names[set.before()], set.names[set.after()]);
}

#[test]
fn while_a_deployment_rolls_objects_move_hardly_more_often_than_they_must() {
    for replicas in [3, 4, 8, 20] {
        let roll = Roll::of_deployment(replicas, 25);
        let (alone, known, least) = (roll.moves(false), roll.moves(true), roll.least());
        eprintln!(
            "{replicas} replicas, maxSurge and maxUnavailable 25 %, {OBJECTS} objects: {known} moves; at least {least}; by the hash ring alone {alone}"
        );
        assert!(known >= least);
        assert!(known * 100 <= least * 120, "{known} moves, {least} are needed");
        assert!(known < alone);
    }
}

/// What belongs to a Pod is elsewhere while that Pod is away, and the others stay until it is back: by consistent hashing nothing
/// moves between shards that stay.
#[test]
fn while_a_stateful_set_rolls_each_object_moves_out_and_home_and_no_more() {
    for replicas in [2, 3, 4, 8, 20] {
        let roll = Roll::of_stateful_set(replicas);
        let (alone, known, least) = (roll.moves(false), roll.moves(true), roll.least());
        eprintln!(
            "{replicas} replicas of a StatefulSet, {OBJECTS} objects: {alone} moves by the hash ring alone; at least {least}; were it known who is about to be replaced, {known}"
        );
        assert_eq!(least, 2 * OBJECTS, "the name that is its home in the end is the one that is away");
        assert_eq!(alone, least);
        assert_eq!(known, least, "there is nothing to be saved");
    }
}
