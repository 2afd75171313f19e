//! Shards that come back again and again: nothing is moved to them for a while.
//!
//! Known to this process alone: another leader counts again from what it sees, as each replica does.

use std::{collections::BTreeMap, time::Duration};

use ringside_ring::{Moment, RingName};

use super::book::{LeaseKey, Observed};

/// For how long a return counts.
const WITHIN: Duration = Duration::from_secs(600);
/// How many returns make a shard unstable.
const MAX_RETURNS: usize = 2;
/// For how long it is, at first and at last.
const UNSTABLE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(600)];

/// The shards that were without their Lease, or their controller, in the last minutes.
#[derive(Debug, Default)]
pub(super) struct Returns(BTreeMap<(LeaseKey, RingName), Shard>);

#[derive(Debug, Default)]
struct Shard {
    /// When its Lease was last seen without it or its controller, until it returns.
    away: Option<Moment>,
    returns: Vec<Moment>,
    pause: Duration,
    /// Until when it is unstable; `None` while it is not.
    until: Option<Moment>,
}

impl Returns {
    /// A shard's Lease was seen, after it was seen as `before`.
    pub(super) fn seen(&mut self, key: &LeaseKey, seen: &Observed, before: Option<&Observed>, now: Moment) {
        let id = (key.clone(), seen.ring.clone());
        let works = |seen: &Observed| seen.facts.held_by_shard && seen.absent.is_none();
        // A controller that has yet to begin comes back from nowhere.
        if !seen.facts.held_by_shard || !works(seen) && before.is_some_and(works) {
            self.0.entry(id).or_default().away = Some(now);
        } else if works(seen)
            && let Some(shard) = self.0.get_mut(&id)
            && shard.away.take().is_some()
        {
            shard.returns.retain(|at| now < *at + WITHIN);
            shard.returns.push(now);
            if shard.returns.len() >= MAX_RETURNS {
                shard.pause = (shard.pause * 2).clamp(UNSTABLE[0], UNSTABLE[1]);
                shard.until = Some(now + shard.pause);
            }
        }
    }

    /// Notes which shards are stable by now; returns whether there are any that were not.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        let over = self.0.values_mut().filter_map(|shard| shard.until.take_if(|until| *until <= now)).count();
        self.0.retain(|_, shard| {
            shard.until.is_some() || shard.returns.iter().chain(&shard.away).any(|at| now < *at + WITHIN)
        });
        over > 0
    }

    /// When the first is stable again.
    pub(super) fn next(&self) -> Option<Moment> {
        self.0.values().filter_map(|shard| shard.until).min()
    }

    /// Those that are unstable.
    pub(super) fn unstable(&self) -> impl Iterator<Item = &(LeaseKey, RingName)> {
        self.0.iter().filter(|(_, shard)| shard.until.is_some()).map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeMap, sync::Arc};

    use ringside_ring::{
        HashRing, Members, PartitionKey,
        decide::{Action, Covered, Family, Object, View, decide},
        placement::DEFAULT_TOKENS_PER_SHARD,
    };

    use super::*;
    use crate::leases::book::{
        Book,
        tests::{at, book, lease, saying},
    };

    const OBJECTS: usize = 300;

    /// A ring of shards `a`, `b` and `c`, and who has its objects.
    struct World {
        book: Book,
        owners: BTreeMap<usize, String>,
        now: u64,
    }

    impl World {
        fn start() -> Self {
            let leases = ["a", "b", "c"].map(|shard| lease(shard, shard, 0, 1));
            let mut world = Self { book: book(leases, at(0)), owners: BTreeMap::new(), now: 0 };
            world.move_all();
            world
        }

        fn members(&self) -> Members {
            self.book.members(at(self.now), Moment::default()).unwrap().remove(&"example".parse().unwrap()).unwrap()
        }

        /// The Lease of `a` is seen, held or not.
        fn see(&mut self, holder: &str) {
            let seen = lease("a", holder, u32::try_from(self.now % 60).unwrap(), self.now + 1);
            self.book.seen(seen, at(self.now));
        }

        /// All renew, and `a` says so of its controller; returns how many objects moved.
        fn say(&mut self, controller: &str) -> usize {
            for (shard, controller) in [("a", controller), ("b", "working"), ("c", "working")] {
                let seen = lease(shard, shard, u32::try_from(self.now % 60).unwrap(), self.now + 1);
                self.book.seen(saying(seen, controller), at(self.now));
            }
            self.move_all()
        }

        fn pass(&mut self, seconds: u64) {
            self.now += seconds;
            self.book.expire(at(self.now));
        }

        /// Moves what is to be moved; returns how many changed their shard.
        fn move_all(&mut self) -> usize {
            let members = self.members();
            let ring = HashRing::weighted(
                members.weighted().map(|(shard, weight)| (shard.clone(), weight)),
                DEFAULT_TOKENS_PER_SHARD,
            );
            let (view, mut moves) = (View::new(&members, Arc::new(ring)), 0);
            for object in 0..OBJECTS {
                let key = PartitionKey::of("", "ConfigMap", "default", &format!("o-{object}"));
                let (key, holder) = (key.point(), view.holder(self.owners.get(&object).map(String::as_str)));
                let next =
                    decide(&Object { key, holder, drain: None, covered: Covered::InRing }, Family::default(), &view);
                if let Action::Assign { .. } | Action::Drain { .. } = next {
                    moves += 1;
                    let to = view.receiver(key).and_then(|to| view.ring().name(to));
                    self.owners.insert(object, to.unwrap().to_string());
                }
            }
            moves
        }

        /// `a` ends and is back a moment later; returns how many objects moved.
        fn restart(&mut self) -> [usize; 2] {
            self.pass(10);
            self.see("");
            let away = self.move_all();
            self.pass(5);
            self.see("a");
            [away, self.move_all()]
        }

        /// How long it takes until `a` is stable.
        fn until_stable(&mut self) -> u64 {
            let begun = self.now;
            while !self.members().unstable().is_empty() {
                self.pass(1);
            }
            self.now - begun
        }
    }

    #[test]
    fn a_shard_that_crashes_again_and_again_moves_its_share_out_and_back_once() {
        let mut world = World::start();
        let share = world.owners.values().filter(|shard| *shard == "a").count();
        assert_eq!(world.restart(), [share, share], "as in a rolling update");
        assert_eq!(world.restart(), [share, 0]);
        for _ in 0..8 {
            assert_eq!(world.restart(), [0, 0]);
        }
        assert!(world.until_stable() > 500);
        assert_eq!(world.move_all(), share, "it has run for long enough");
    }

    /// Its proxy keeps the Lease meanwhile, and the pauses between its starts get longer.
    #[test]
    fn a_controller_that_crashes_again_and_again_moves_its_share_out_and_back_once() {
        let mut world = World::start();
        let share = world.owners.values().filter(|shard| *shard == "a").count();
        let mut moves = Vec::new();
        for _ in 0..8 {
            // It runs for a minute, and counts as working for the second half.
            world.pass(29);
            let (late, away) = (world.say("working"), world.say("absent"));
            world.pass(301);
            moves.push([late, away, world.say("working")]);
        }
        assert_eq!(moves[..2], [[0, share, share], [0, share, 0]]);
        assert_eq!(moves[2..], [[0; 3]; 6]);
    }

    #[test]
    fn a_controller_that_starts_for_the_first_time_does_not_return() {
        let mut world = World::start();
        let fresh = |controller, version| saying(lease("d", "d", 0, version), controller);
        for (version, controller) in [(1, "absent"), (2, "absent"), (3, "working")] {
            world.book.seen(fresh(controller, version), at(world.now));
        }
        assert!(world.book.returns.0.is_empty() && world.members().unstable().is_empty());
        for (version, holder, controller) in [(1000, "", "working"), (1001, "a", "absent"), (1002, "a", "working")] {
            let seen = lease("a", holder, 0, world.now + version);
            world.book.seen(saying(seen, controller), at(world.now));
        }
        let returns: Vec<_> = world.book.returns.0.values().map(|shard| shard.returns.len()).collect();
        assert_eq!(returns, [1], "a shard that is replaced returns once");
    }

    #[test]
    fn a_shard_is_unstable_for_twice_as_long_after_each_return_and_ten_minutes_at_most() {
        let mut world = World::start();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            world.restart();
            pauses.push(world.until_stable());
        }
        // Returns more than ten minutes apart do not count.
        assert_eq!(pauses, [0, 30, 60, 120, 240, 480, 600, 0]);
        assert_eq!(world.restart()[1] > 0, pauses[7] > 0, "the returns before are forgotten");
    }

    #[test]
    fn what_is_known_of_shards_that_are_gone_is_forgotten() {
        let mut world = World::start();
        world.see("");
        world.pass(601);
        assert!(world.book.returns.0.is_empty());
    }
}
