//! The shards of one ring, and which of them take part in partitioning.

use std::collections::{BTreeMap, BTreeSet};

use crate::{controller::Controller, lease::ShardState, name::ShardName, weight::Weight};

/// What is known of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The state of its Lease.
    pub state: ShardState,
    /// How much of the objects it gets.
    pub weight: Weight,
    /// Whether its controller works.
    pub controller: Controller,
}

/// The shards that have a Lease in a ring, or had one until a moment ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    shards: BTreeMap<ShardName, Member>,
    /// Those that are about to be replaced.
    outgoing: BTreeSet<ShardName>,
    /// Those under whose name more than one process may work.
    shared: BTreeSet<ShardName>,
    /// Those that come and go.
    unstable: BTreeSet<ShardName>,
}

impl Members {
    /// The state of a shard; `None` when it has no Lease.
    pub fn state(&self, shard: &str) -> Option<ShardState> {
        self.shards.get(shard).map(|member| member.state)
    }

    /// Whether the shard of this name takes part in partitioning: a name without a Lease does not.
    pub fn is_available(&self, shard: &str) -> bool {
        self.state(shard).is_some_and(ShardState::is_available)
    }

    /// The shards that take part in partitioning, sorted by name.
    pub fn available(&self) -> impl Iterator<Item = &ShardName> {
        self.weighted().map(|(shard, _)| shard)
    }

    /// The same with their weights.
    pub fn weighted(&self) -> impl Iterator<Item = (&ShardName, Weight)> {
        let available = self.shards.iter().filter(|(_, member)| member.state.is_available());
        available.map(|(shard, member)| (shard, member.weight))
    }

    /// The same shards, of which these are about to be replaced.
    #[must_use]
    pub fn replacing(self, outgoing: impl IntoIterator<Item = ShardName>) -> Self {
        Self { outgoing: outgoing.into_iter().collect(), ..self }
    }

    /// The same shards, of which more than one process may work under each of these names.
    #[must_use]
    pub fn sharing(self, shared: BTreeSet<ShardName>) -> Self {
        Self { shared, ..self }
    }

    /// The same shards, of which these come and go.
    #[must_use]
    pub fn with_unstable(self, unstable: BTreeSet<ShardName>) -> Self {
        Self { unstable, ..self }
    }

    /// The shards that come and go: what another shard has stays there.
    pub fn unstable(&self) -> &BTreeSet<ShardName> {
        &self.unstable
    }

    /// Whether an object without owner may be given to a shard: no shared name, but one whose controller works, that is
    /// ready, and not about to be replaced. Where there is none of these, one that is ready. Where there is none of those
    /// either, any whose controller works: all are judged alike when it is the API server that does not answer. Any that is
    /// available where no controller works. One that is to have no objects (weight 0) keeps them from no other.
    pub fn may_receive(&self, shard: &str) -> bool {
        let least = self.counting().filter_map(|shard| self.reluctance(shard.as_str())).min();
        least.is_some() && self.reluctance(shard) == least && self.counting().any(|counting| counting.as_str() == shard)
    }

    /// Whether objects may leave their shards for a shard: one that may receive, and whose controller works.
    pub fn may_take_over(&self, shard: &str) -> bool {
        !self.is_absent(shard) && self.may_receive(shard)
    }

    /// Whether a shard's objects are to go elsewhere: its controller is absent, and those of enough ready shards work. That is
    /// half of the shards, and one at least: where all began anew, the first would be given the objects of all.
    pub fn is_relieved(&self, shard: &str) -> bool {
        let works = |shard: &&ShardName| matches!(self.reluctance(shard.as_str()), Some([false, false, _]));
        let enough = || self.counting().filter(works).count() >= (self.counting().count() / 2).max(1);
        self.is_available(shard) && self.is_absent(shard) && enough()
    }

    /// Whether the controller of a shard is absent.
    pub fn is_absent(&self, shard: &str) -> bool {
        self.shards.get(shard).is_some_and(|member| member.controller == Controller::Absent)
    }

    /// The available shards that are to have objects.
    fn counting(&self) -> impl Iterator<Item = &ShardName> {
        let all_zero = self.weighted().all(|(_, weight)| weight == Weight::ZERO);
        self.weighted().filter(move |(_, weight)| all_zero || *weight > Weight::ZERO).map(|(shard, _)| shard)
    }

    /// Whether some of the shards are about to be replaced, and there are others already.
    pub fn are_replaced(&self) -> bool {
        let mut available = self.available();
        available.any(|shard| self.outgoing.contains(shard))
            && self.available().any(|shard| !self.outgoing.contains(shard))
    }

    /// Why not to give an object to an available shard: the most important first.
    fn reluctance(&self, shard: &str) -> Option<[bool; 3]> {
        let (shard, Member { state, controller, .. }) = self.shards.get_key_value(shard)?;
        let (absent, late) = (*controller == Controller::Absent, *state != ShardState::Ready);
        (state.is_available() && !self.shared.contains(shard)).then(|| [absent, late, self.outgoing.contains(shard)])
    }

    /// All shards with their states, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ShardName, ShardState)> {
        self.shards.iter().map(|(shard, member)| (shard, member.state))
    }

    /// How many shards have a Lease, whatever its state.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether no shard has a Lease.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// The same shards with this one among them: as it is given here, if it was there before.
    #[must_use]
    pub fn with(mut self, shard: ShardName, member: Member) -> Self {
        self.shards.insert(shard, member);
        self
    }

    /// The same shards but this one; `None` where it is none of them.
    #[must_use]
    pub fn without(mut self, shard: &ShardName) -> Option<Self> {
        self.shards.remove(shard).map(|_| self)
    }
}

impl FromIterator<(ShardName, Member)> for Members {
    fn from_iter<T: IntoIterator<Item = (ShardName, Member)>>(shards: T) -> Self {
        Self { shards: shards.into_iter().collect(), ..Self::default() }
    }
}

/// Shards that say nothing of a weight.
impl FromIterator<(ShardName, ShardState)> for Members {
    fn from_iter<T: IntoIterator<Item = (ShardName, ShardState)>>(shards: T) -> Self {
        let member = |state| Member { state, weight: Weight::ONE, controller: Controller::Working };
        shards.into_iter().map(|(shard, state)| (shard, member(state))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_expired_and_uncertain_shards_take_part() {
        let members: Members =
            ShardState::ALL.into_iter().map(|state| (state.as_str().parse().expect("valid"), state)).collect();
        let available: Vec<_> = members.available().map(ShardName::as_str).collect();
        assert_eq!(available, ["expired", "ready", "uncertain"]);
        assert!(members.is_available("ready") && !members.is_available("dead") && !members.is_available("nobody"));
    }

    #[test]
    fn a_shard_of_weight_zero_takes_part_without_objects() {
        let idle: ShardName = "idle".parse().expect("valid");
        let member = Member { state: ShardState::Ready, weight: Weight::ZERO, controller: Controller::Working };
        let members = Members::default().with(idle.clone(), member);
        assert!(members.is_available("idle"));
        assert_eq!(members.weighted().collect::<Vec<_>>(), [(&idle, Weight::ZERO)]);
        assert!(members.clone().without(&idle).is_some_and(|rest| rest.is_empty()));
        assert_eq!(Members::default().without(&idle), None);
    }

    #[test]
    fn shared_name_receives_nothing_even_alone() {
        let named = |name: &str| -> ShardName { name.parse().expect("valid") };
        let alone: Members = [(named("shared"), ShardState::Ready)].into_iter().collect();
        let alone = alone.sharing([named("shared")].into());
        assert!(alone.is_available("shared") && !alone.may_receive("shared"));
        let late = alone.with(
            named("late"),
            Member { state: ShardState::Expired, weight: Weight::ONE, controller: Controller::Working },
        );
        assert!(late.may_receive("late") && !late.may_receive("shared"));
    }

    #[test]
    fn one_that_is_to_have_no_objects_keeps_them_from_nobody() {
        let member = |state, weight| Member { state, weight, controller: Controller::Working };
        let named = |name: &str| -> ShardName { name.parse().expect("valid") };
        let members = Members::default()
            .with(named("idle"), member(ShardState::Ready, Weight::ZERO))
            .with(named("late"), member(ShardState::Expired, Weight::ONE))
            .with(named("outgoing"), member(ShardState::Ready, Weight::ONE))
            .replacing([named("outgoing")]);
        let receives = |members: &Members| ["idle", "late", "outgoing"].map(|shard| members.may_receive(shard));
        assert_eq!(receives(&members), [false, false, true]);
        let without = members.without(&named("outgoing")).expect("it is there");
        assert_eq!(receives(&without), [false, true, false]);
        let zero = without.with(named("late"), member(ShardState::Expired, Weight::ZERO));
        assert_eq!(receives(&zero), [true, false, false], "where all weights are 0 they say nothing");
    }

    #[test]
    fn what_has_no_owner_goes_to_ready_shards_while_there_are_some() {
        let of = |states: &[ShardState]| -> Members {
            states.iter().map(|state| (state.as_str().parse().expect("valid"), *state)).collect()
        };
        let receivers = |members: &Members| -> Vec<String> {
            let all = members.iter().filter(|(shard, _)| members.may_receive(shard.as_str()));
            all.map(|(shard, _)| shard.to_string()).collect()
        };
        assert_eq!(receivers(&of(&ShardState::ALL)), ["ready"]);
        assert_eq!(receivers(&of(&ShardState::ALL[1..])), ["expired", "uncertain"]);
        assert!(!of(&ShardState::ALL).may_receive("nobody"));
        let late = || ["a", "b"].map(|shard| (shard.parse().expect("valid"), ShardState::Expired));
        let members = |outgoing: &[&str]| -> Members {
            let ready = ["c", "d"].map(|shard| (shard.parse().expect("valid"), ShardState::Ready));
            let all: Members = late().into_iter().chain(ready).collect();
            all.replacing(outgoing.iter().map(|shard| shard.parse().expect("valid")))
        };
        assert_eq!(receivers(&members(&["a", "c"])), ["d"]);
        assert_eq!(
            receivers(&members(&["c", "d"])),
            ["c", "d"],
            "one that is about to go is better than one that may be gone"
        );
        assert!(members(&["a", "c"]).are_replaced() && !members(&[]).are_replaced());
        assert!(!members(&["a", "b", "c", "d"]).are_replaced(), "by whom");
    }

    #[test]
    fn absent_controllers_receive_only_where_none_works() {
        use Controller::{Absent, Working};
        use ShardState::{Expired, Ready};
        let of = |all: &[(&str, ShardState, Controller)]| -> Members {
            let member = |state, controller| Member { state, weight: Weight::ONE, controller };
            all.iter().map(|(shard, state, it)| (shard.parse().expect("valid"), member(*state, *it))).collect()
        };
        let [all, relieved] = [Members::may_receive, Members::is_relieved].map(|is| {
            move |members: &Members| -> Vec<String> {
                members.available().filter(|shard| is(members, shard.as_str())).map(ToString::to_string).collect()
            }
        });
        let one = of(&[("a", Ready, Absent), ("b", Ready, Working), ("c", Ready, Working)]);
        assert_eq!((all(&one), relieved(&one)), (vec!["b".to_owned(), "c".to_owned()], vec!["a".to_owned()]));
        // The newcomer of a roll-out that can't start is the only one which stays.
        let roll = one.replacing(["b", "c"].map(|shard| shard.parse().expect("valid")));
        assert_eq!((all(&roll), relieved(&roll)), (vec!["b".to_owned(), "c".to_owned()], vec!["a".to_owned()]));
        let none = of(&[("a", Ready, Absent), ("b", Ready, Absent)]);
        assert_eq!((all(&none), relieved(&none)), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        assert!(!none.may_take_over("a"), "nothing moves to where nobody works");
        let late = of(&[("a", Ready, Absent), ("b", Expired, Working)]);
        assert_eq!((all(&late), relieved(&late)), (vec!["b".to_owned()], vec![]), "b may be gone");
    }

    /// As after a crash of all: the first that is back could not work on the objects of all.
    #[test]
    fn absent_controllers_are_relieved_while_half_of_the_shards_work() {
        let of = |working: usize, all: usize| -> Members {
            let controller = |shard| if shard < working { Controller::Working } else { Controller::Absent };
            let member =
                |shard| Member { state: ShardState::Ready, weight: Weight::ONE, controller: controller(shard) };
            (0..all).map(|shard| (format!("s{shard}").parse().expect("valid"), member(shard))).collect()
        };
        for (all, least) in [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3)] {
            let last = format!("s{}", all - 1);
            for working in 0..all {
                let members = of(working, all);
                assert_eq!(members.is_relieved(&last), working >= least, "{working} of {all}");
                assert_eq!(members.may_receive(&last), working == 0, "{working} of {all}");
            }
        }
        let idle = Member { state: ShardState::Ready, weight: Weight::ZERO, controller: Controller::Absent };
        let idle = ["t0", "t1"].into_iter().fold(of(2, 4), |all, shard| all.with(shard.parse().expect("valid"), idle));
        assert!(idle.is_relieved("s3") && idle.is_relieved("t0"), "those of weight 0 are not counted");
    }
}
