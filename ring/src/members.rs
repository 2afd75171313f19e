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
    /// The groups of those that are of one.
    groups: BTreeMap<ShardName, String>,
}

/// What counts of a shard when it is decided about objects.
#[allow(clippy::struct_excessive_bools, reason = "each is one answer of `Members`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// It is one of the members.
    pub(crate) is_member: bool,
    /// [`Members::may_receive`].
    pub(crate) may_receive: bool,
    /// [`Members::is_relieved`].
    pub(crate) is_relieved: bool,
    /// [`Members::gives_away`].
    pub(crate) gives_away: bool,
    /// Among [`Members::unstable`].
    pub(crate) is_unstable: bool,
}

/// Whether the shard gives its objects away, its Lease has expired, and it is about to be replaced.
type Reluctance = [bool; 3];

/// What is to be known of all shards to judge one.
struct Summary {
    /// Whether all available shards have weight 0: all count then.
    all_zero: bool,
    /// The least among the shards that count.
    least_reluctance: Option<Reluctance>,
    /// How many of those that count are ready, with a working controller, and how many count.
    working: usize,
    counting: usize,
}

/// Whether a shard of this weight is to have objects.
fn counts(all_zero: bool, weight: Weight) -> bool {
    all_zero || weight > Weight::ZERO
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

    /// The same shards, of which these are of groups.
    #[must_use]
    pub fn with_groups(self, groups: BTreeMap<ShardName, String>) -> Self {
        Self { groups, ..self }
    }

    /// The groups of those that are of one.
    pub fn groups(&self) -> &BTreeMap<ShardName, String> {
        &self.groups
    }

    /// The shards of one group alone, or those of none: as if there were no others.
    #[must_use]
    pub fn among(&self, group: Option<&str>) -> Self {
        let is_of = |shard: &ShardName| self.groups.get(shard).map(String::as_str) == group;
        Self {
            shards: self
                .shards
                .iter()
                .filter(|(shard, _)| is_of(shard))
                .map(|(shard, it)| (shard.clone(), *it))
                .collect(),
            ..self.clone()
        }
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
        self.receives(shard, &self.summary())
    }

    /// Whether objects may leave their shards for a shard: one that may receive, and that keeps what it gets.
    pub fn may_take_over(&self, shard: &str) -> bool {
        !self.gives_away(shard) && self.may_receive(shard)
    }

    /// Whether a shard's objects are to go elsewhere: it gives them away, and the controllers of enough ready shards work. For one
    /// that ends that is one of them. For one whose controller is absent it is half of the shards, and one at least: where all began
    /// again, the first would be given the objects of all.
    pub fn is_relieved(&self, shard: &str) -> bool {
        self.relieves(shard, &self.summary())
    }

    /// What counts of each of these shards when it is decided about objects.
    pub(crate) fn standings<'a>(&self, shards: impl IntoIterator<Item = &'a ShardName>) -> Vec<Standing> {
        let all = self.summary();
        let standing = |shard: &ShardName| Standing {
            is_member: self.shards.contains_key(shard),
            may_receive: self.receives(shard.as_str(), &all),
            is_relieved: self.relieves(shard.as_str(), &all),
            gives_away: self.gives_away(shard.as_str()),
            is_unstable: self.unstable.contains(shard),
        };
        shards.into_iter().map(standing).collect()
    }

    /// Whether a shard is to get nothing, and gives away what it has: its controller is absent, or about to end.
    pub fn gives_away(&self, shard: &str) -> bool {
        self.shards.get(shard).is_some_and(|member| member.controller != Controller::Working)
    }

    /// Whether the controller of a shard works until its objects are handed over.
    pub fn is_leaving(&self, shard: &str) -> bool {
        self.shards.get(shard).is_some_and(|member| member.controller == Controller::Leaving)
    }

    fn receives(&self, shard: &str, all: &Summary) -> bool {
        let counts = self.shards.get(shard).is_some_and(|member| counts(all.all_zero, member.weight));
        counts && all.least_reluctance.is_some() && self.reluctance(shard) == all.least_reluctance
    }

    fn relieves(&self, shard: &str, all: &Summary) -> bool {
        let member = self.shards.get(shard).filter(|member| member.state.is_available());
        member.is_some_and(|member| match member.controller {
            Controller::Working => false,
            Controller::Leaving => all.working > 0,
            Controller::Absent => all.working >= (all.counting / 2).max(1),
        })
    }

    /// What is to be known of all shards to judge one.
    fn summary(&self) -> Summary {
        let all_zero = self.weighted().all(|(_, weight)| weight == Weight::ZERO);
        let mut all = Summary { all_zero, least_reluctance: None, working: 0, counting: 0 };
        for (shard, _) in self.weighted().filter(|(_, weight)| counts(all_zero, *weight)) {
            let reluctance = self.reluctance(shard.as_str());
            all.least_reluctance = all.least_reluctance.into_iter().chain(reluctance).min();
            all.counting += 1;
            all.working += usize::from(matches!(reluctance, Some([false, false, _])));
        }
        all
    }

    /// Whether some of the shards are about to be replaced, and there are others already.
    pub fn are_replaced(&self) -> bool {
        let mut available = self.available();
        available.any(|shard| self.outgoing.contains(shard))
            && self.available().any(|shard| !self.outgoing.contains(shard))
    }

    /// Why not to give an object to an available shard: the most important first.
    fn reluctance(&self, shard: &str) -> Option<Reluctance> {
        let (shard, Member { state, controller, .. }) = self.shards.get_key_value(shard)?;
        let (gives_away, late) = (*controller != Controller::Working, *state != ShardState::Ready);
        (state.is_available() && !self.shared.contains(shard))
            .then(|| [gives_away, late, self.outgoing.contains(shard)])
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
pub(crate) mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    /// Any members of a ring, of up to five shards.
    pub(crate) fn any_members() -> impl Strategy<Value = Members> {
        let weight = select(vec!["0", "0.5", "1", "1"]).prop_map(|weight| weight.parse().expect("a weight"));
        let controller = select(vec![Controller::Working, Controller::Leaving, Controller::Absent]);
        // Most shards are ready, or little else would be seen.
        let states = [&ShardState::ALL[..], &[ShardState::Ready; 4]].concat();
        let member = (select(states), weight, controller);
        let member = member.prop_map(|(state, weight, controller)| Member { state, weight, controller });
        vec((member, any::<[bool; 3]>(), any::<bool>()), 0..6).prop_map(|shards| {
            let name = |index: usize| -> ShardName { format!("s-{index}").parse().expect("valid") };
            // The marks are not so frequent that they hide all else.
            let marked = |mark: usize| -> BTreeSet<ShardName> {
                let marked = shards.iter().enumerate().filter(|(_, (_, marks, any))| *any && marks[mark]);
                marked.map(|(index, _)| name(index)).collect()
            };
            let all: Members = shards.iter().enumerate().map(|(index, (member, ..))| (name(index), *member)).collect();
            all.replacing(marked(0)).sharing(marked(1)).with_unstable(marked(2))
        })
    }

    proptest! {
        /// Shard by shard, as the documentation of the two says.
        #[test]
        fn what_counts_of_all_shards_is_what_counts_of_each(members in any_members()) {
            let all_zero = members.weighted().all(|(_, weight)| weight == Weight::ZERO);
            let counting = || members.weighted().filter(|(_, weight)| all_zero || *weight > Weight::ZERO);
            let least = counting().filter_map(|(shard, _)| members.reluctance(shard.as_str())).min();
            let works = |shard: &str| matches!(members.reluctance(shard), Some([false, false, _]));
            let working = counting().filter(|(shard, _)| works(shard.as_str())).count();
            let enough = |controller| match controller {
                Controller::Working => false,
                Controller::Leaving => working > 0,
                Controller::Absent => working > 0 && working >= counting().count() / 2,
            };
            let standings = members.standings(members.shards.keys());
            for ((shard, member), standing) in members.shards.iter().zip(standings) {
                let counts = counting().any(|(counting, _)| counting == shard);
                let shard = shard.as_str();
                let expected = Standing {
                    is_member: true,
                    may_receive: least.is_some() && members.reluctance(shard) == least && counts,
                    is_relieved: members.is_available(shard) && enough(member.controller),
                    gives_away: members.gives_away(shard),
                    is_unstable: members.unstable.contains(shard),
                };
                prop_assert_eq!(standing, expected);
                prop_assert_eq!(members.may_receive(shard), expected.may_receive);
                prop_assert_eq!(members.is_relieved(shard), expected.is_relieved);
            }
        }
    }

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
        assert!(!none.may_take_over("a"), "nothing moves to where no controller works");
        let late = of(&[("a", Ready, Absent), ("b", Expired, Working)]);
        assert_eq!((all(&late), relieved(&late)), (vec!["b".to_owned()], vec![]), "b may be gone");
    }

    #[test]
    fn a_shard_that_leaves_gives_away_what_it_has_while_another_works() {
        let of = |controllers: &[Controller]| -> Members {
            let member = |controller| Member { state: ShardState::Ready, weight: Weight::ONE, controller };
            let named =
                |(number, it): (usize, &Controller)| (format!("s{number}").parse().expect("valid"), member(*it));
            controllers.iter().enumerate().map(named).collect()
        };
        use Controller::{Leaving, Working};
        // Scaled down to one: that gets all of them anyway.
        let most = of(&[Working, Leaving, Leaving, Leaving, Leaving]);
        assert!(most.is_relieved("s1") && most.is_relieved("s4") && !most.is_relieved("s0"));
        assert!(most.may_take_over("s0") && !most.may_receive("s1"));
        let all = of(&[Leaving, Leaving]);
        assert!(!all.is_relieved("s0") && !all.may_take_over("s1"), "to whom");
        assert!(all.may_receive("s1"), "where no other is");
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
