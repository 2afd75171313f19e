//! What happens when: a pure function of the seed.

use std::{collections::VecDeque, fmt, ops::RangeInclusive, time::Duration};

use clap::ValueEnum;
use rand::{Rng, RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use crate::churn::Members;

/// So many shards run at least, so that there is a shard to move to, and at most, for a small machine.
const SHARDS: RangeInclusive<usize> = 3..=6;

/// So many objects are concerned where a fault is one of objects.
const OBJECTS_AT_ONCE: usize = 10;

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Kind {
    /// A shard is new, or comes back.
    Join,
    /// A shard ends in order, and its Pod goes. What it has is taken over.
    Leave,
    /// A shard hands over what it has, ends in order, and its Pod goes.
    Retire,
    /// A shard ends in order, and begins again in the same Pod.
    Restart,
    /// Proxy and controller of a shard are killed at once, and do not come back.
    Kill,
    /// Proxy and controller of a shard stand still, and go on.
    Pause,
    /// The controller of a shard stands still, and goes on. Its proxy releases objects meanwhile: the grace is for
    /// that.
    PauseController,
    /// The proxy is killed, and its controller goes on.
    KillProxy,
    /// The controller is killed, and its proxy goes on.
    KillController,
    /// A shard and the API server hear nothing of each other for a while.
    Partition,
    /// A shard is with another API server for a while, which knows everything later.
    OtherApiServer,
    /// The leading replica of the sharder is killed, and another Pod comes.
    KillLeader,
    /// All replicas of the sharder are killed, and come back later.
    KillSharders,
    /// The webhook does not answer.
    SilentWebhook,
    /// The webhook's configuration is deleted.
    DeleteWebhook,
    /// The policies that keep the labels, and shards from each other's objects, are deleted.
    DeletePolicies,
    /// The API server is killed, and comes back.
    RestartApiServer,
    /// The API server is slow: etcd is.
    SlowApiServer,
    /// The API server hangs, and lags where it answers from memory: it hears nothing of etcd.
    LateApiServer,
    /// etcd forgets all states but the last.
    ForgetHistory,
    /// The ring gets another drain deadline, and a resource that is not served, or loses it.
    EditRing,
    /// The definition of the objects' resource is applied again, changed.
    DefineAgain,
    /// Objects are deleted, and made again under the same names.
    MakeAgain,
    /// A client takes the shard label off objects.
    StripLabels,
    /// A client names another shard on objects, or an unknown one, or sets a drain.
    ForgeLabels,
    /// The objects' resource gets a new preferred version whose conversion does not answer, and loses it.
    DeadConversion,
    /// A policy refuses every update of some children, and goes.
    RefuseChildren,
    /// A policy refuses what a shard acknowledges, and goes.
    RefuseAcknowledgements,
    /// A user of another namespace makes a Lease of a shard's name, and one of a new name, and deletes both.
    StrangersLeases,
}

impl Kind {
    /// Returns all of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// How long a fault of this kind lasts, in milliseconds, where it is not over at once. Some shorter and some longer than
    /// it takes until a shard is given up, which is two Leases of 5 s.
    fn lasts(self) -> RangeInclusive<u64> {
        match self {
            Self::Pause | Self::PauseController | Self::Partition | Self::OtherApiServer => 2_000..=18_000,
            Self::KillSharders => 1_000..=12_000,
            Self::SilentWebhook => 3_000..=10_000,
            Self::RestartApiServer => 0..=3_000,
            Self::SlowApiServer => 4_000..=10_000,
            // Longer, and etcd's clients give up their connection.
            Self::LateApiServer => 2_000..=9_000,
            Self::DeadConversion => 4_000..=15_000,
            Self::RefuseChildren | Self::StrangersLeases => 5_000..=25_000,
            // Some longer than the ring waits for an acknowledgement, which is 45 s or 60 s.
            Self::RefuseAcknowledgements => 5_000..=70_000,
            _ => 0..=0,
        }
    }
}

/// A fault: what, of whom, for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// The shard concerned, where it is one.
    pub shard: Option<String>,
    /// The numbers of the objects concerned, where it is of objects.
    pub objects: Vec<usize>,
    /// How long it lasts; zero where it is over at once.
    pub lasts: Duration,
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Not before this, since the beginning.
    pub at: Duration,
    /// What happens.
    pub fault: Fault,
}

/// What a schedule is made of.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What decides.
    pub seed: u64,
    /// How long it is.
    pub length: Duration,
    /// Which kinds of faults there are.
    pub kinds: Vec<Kind>,
    /// How often there is one of each, at most.
    pub rounds: usize,
    /// So long a fault lasts at most that others wait for.
    pub longest: Duration,
    /// The pauses between two faults, in milliseconds: some meet what follows from the one before, some meet nothing.
    pub pauses: RangeInclusive<u64>,
    /// How many shards there are in the beginning, named `shard-0` and so on.
    pub shards: usize,
    /// How many objects there are.
    pub objects: usize,
}

/// The name of a shard.
pub fn shard(number: usize) -> String {
    format!("shard-{number}")
}

/// What happens when. Of each kind there is one fault before there is another of any, but where the number of shards
/// forbids it.
pub fn schedule(terms: &Terms) -> Vec<Planned> {
    let mut planner = Planner {
        random: StdRng::seed_from_u64(terms.seed),
        terms,
        round: VecDeque::new(),
        rounds: terms.rounds,
        members: Members::new(terms.shards, SHARDS),
    };
    let (mut at, mut planned) = (Duration::ZERO, Vec::new());
    loop {
        at += Duration::from_millis(planner.random.random_range(terms.pauses.clone()));
        let Some(fault) = planner.next() else { return planned };
        if at + fault.lasts >= terms.length {
            return planned;
        }
        let fault = Planned { at, fault };
        at = fault.over();
        planned.push(fault);
    }
}

struct Planner<'a> {
    random: StdRng,
    terms: &'a Terms,
    /// The kinds still to come before the next round.
    round: VecDeque<Kind>,
    /// The rounds still to come.
    rounds: usize,
    members: Members,
}

impl Planner<'_> {
    /// None where nothing is possible at all, or all has been.
    fn next(&mut self) -> Option<Fault> {
        for _ in 0..2 {
            if let Some(at) = self.round.iter().position(|kind| self.members.may(*kind)) {
                let kind = self.round.remove(at)?;
                return Some(self.make(kind));
            }
            self.rounds = self.rounds.checked_sub(1)?;
            let mut round = self.terms.kinds.clone();
            round.shuffle(&mut self.random);
            self.round.extend(round);
        }
        None
    }

    fn make(&mut self, kind: Kind) -> Fault {
        let shard = match kind {
            Kind::Join
            | Kind::Leave
            | Kind::Retire
            | Kind::Restart
            | Kind::Kill
            | Kind::Pause
            | Kind::PauseController
            | Kind::KillProxy
            | Kind::KillController
            | Kind::Partition
            | Kind::OtherApiServer
            | Kind::RefuseAcknowledgements
            | Kind::StrangersLeases => Some(self.members.happen(kind, &mut self.random)),
            _ => None,
        };
        let objects = match kind {
            Kind::MakeAgain | Kind::StripLabels | Kind::ForgeLabels | Kind::RefuseChildren => {
                some(&mut self.random, self.terms.objects)
            }
            _ => Vec::new(),
        };
        let lasts = Duration::from_millis(self.random.random_range(kind.lasts()));
        let fault = Fault { kind, shard, objects, lasts };
        if fault.has_others_beside() { fault } else { Fault { lasts: lasts.min(self.terms.longest), ..fault } }
    }
}

/// Numbers of some objects, none twice.
fn some(random: &mut impl Rng, objects: usize) -> Vec<usize> {
    let mut numbers: Vec<_> = rand::seq::index::sample(random, objects, OBJECTS_AT_ONCE.min(objects)).into_vec();
    numbers.sort_unstable();
    numbers
}

impl Planned {
    /// When the next may begin: at once beside a fault that has others beside it, else after its end.
    pub fn over(&self) -> Duration {
        if self.fault.has_others_beside() { self.at } else { self.at + self.fault.lasts }
    }
}

impl Fault {
    /// Whether another one ends before this begins: one of the same shard, or one of the same kind where it is of no shard.
    pub fn ends(&self, other: &Self) -> bool {
        self.shard == other.shard && (self.shard.is_some() || self.kind == other.kind)
    }

    /// Whether others happen while it lasts: it concerns one shard, or some objects.
    pub fn has_others_beside(&self) -> bool {
        matches!(
            self.kind,
            Kind::Pause
                | Kind::PauseController
                | Kind::Partition
                | Kind::OtherApiServer
                | Kind::RefuseChildren
                | Kind::RefuseAcknowledgements
                | Kind::StrangersLeases
        )
    }

    /// Whether the API server is asked to end it.
    pub fn asks_at_its_end(&self) -> bool {
        matches!(self.kind, Kind::RefuseChildren | Kind::RefuseAcknowledgements | Kind::StrangersLeases)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)?;
        if let Some(shard) = &self.shard {
            write!(f, " {shard}")?;
        }
        if !self.objects.is_empty() {
            write!(f, " {:?}", self.objects)?;
        }
        if !self.lasts.is_zero() {
            write!(f, " for {:?}", self.lasts)?;
        }
        Ok(())
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7.1} s  {}", self.at.as_secs_f64(), self.fault)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::chaos::Arguments;

    fn terms(seed: u64) -> Terms {
        Arguments { minutes: 10, seed, objects: 2_000, shards: 5, dry_run: true }.terms()
    }

    #[test]
    fn a_seed_is_one_schedule() {
        assert_eq!(schedule(&terms(1)), schedule(&terms(1)));
        assert_ne!(schedule(&terms(1)), schedule(&terms(2)));
    }

    #[test]
    fn ten_minutes_have_each_kind_of_fault_of_shards_that_run_and_objects_that_are_there() {
        for seed in 0..100 {
            let planned = schedule(&terms(seed));
            let kinds: HashSet<_> = planned.iter().map(|planned| planned.fault.kind).collect();
            assert_eq!(kinds.len(), Kind::all().len(), "seed {seed}");
            assert!(planned.is_sorted_by_key(|planned| planned.at), "seed {seed}");
            assert!(planned.iter().all(|planned| planned.at + planned.fault.lasts < terms(seed).length), "seed {seed}");
            let (mut running, mut killed): (HashSet<_>, HashSet<_>) = ((0..5).map(shard).collect(), HashSet::new());
            for Planned { fault: Fault { kind, shard, objects, .. }, .. } in planned {
                let different: HashSet<_> = objects.iter().filter(|object| **object < 2_000).collect();
                assert_eq!(different.len(), objects.len(), "seed {seed}");
                let Some(shard) = shard else { continue };
                assert_eq!(running.contains(&shard), kind != Kind::Join, "seed {seed}: {kind:?} {shard}");
                assert!(!killed.contains(&shard), "seed {seed}: {shard} comes back");
                match kind {
                    Kind::Join => drop(running.insert(shard)),
                    Kind::Leave | Kind::Retire => drop(running.remove(&shard)),
                    Kind::Kill => drop((running.remove(&shard), killed.insert(shard))),
                    _ => {}
                }
                assert!(SHARDS.contains(&running.len()), "seed {seed}");
            }
        }
    }

    #[test]
    fn what_others_wait_for_is_as_short_as_was_said() {
        let longest = Duration::from_secs(2);
        let planned = schedule(&Terms { longest, ..terms(1) });
        let long: Vec<_> = planned.iter().filter(|planned| planned.fault.lasts > longest).collect();
        assert!(long.iter().all(|planned| planned.fault.has_others_beside()) && !long.is_empty());
        assert!(planned.windows(2).all(|pair| pair[0].over() <= pair[1].at));
    }

    #[test]
    fn a_round_has_each_kind_of_fault_once_but_what_is_not_possible() {
        for seed in 0..100 {
            let planned = schedule(&Terms { rounds: 1, ..terms(seed) });
            let kinds: HashSet<_> = planned.iter().map(|planned| planned.fault.kind).collect();
            assert_eq!((planned.len(), kinds.len()), (Kind::all().len(), Kind::all().len()), "seed {seed}");
        }
        let full = Terms { kinds: vec![Kind::Join], shards: *SHARDS.end(), ..terms(1) };
        assert_eq!(schedule(&full), []);
    }
}
