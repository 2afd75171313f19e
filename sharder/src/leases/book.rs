//! What was seen of the shard Leases, and when each was last seen to change.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use ringside_ring::{
    Moment, RingKind, RingName,
    lease::{SHARDER_HOLDER, ShardState, holder},
    placement::DEFAULT_TOKENS_PER_SHARD,
};

use super::{hold::Holds, refusals::Refusals, returns::Returns, rights::Rights, vanished::Vanished};

mod counted;
mod holding;
mod members;
mod observe;
mod observed;

pub(super) use self::observed::{Observed, state_label};
use self::observed::{facts_of, is_older};

/// How long a namespace that is new may take to be asked about.
const ASKED_WITHIN: Duration = Duration::from_secs(1);

/// Where a Lease is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What an event changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Nothing to act on now: a renewal only puts off what timers wait for.
    Nothing,
    /// A Lease whose state label no longer fits.
    Attention,
    /// The shards of a ring, or which of them are available.
    Membership,
}

/// What an answer of the API server about one Lease is, beside what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// As new, or newer.
    News,
    /// Older, or the Lease is gone: the watch overtakes answers, or comes later than they do.
    Old,
    /// The same once more. So it is where etcd was restored: the watch shows nothing for a long time then.
    TimeWentBack,
}

/// What a ring says of its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfRing {
    pub(super) generation: String,
    /// The namespaces of its shards; empty where it does not name them.
    pub(super) namespaces: BTreeSet<String>,
    /// Those that its status lists; none before a leader has listed any.
    pub(super) listed: Option<BTreeSet<String>>,
}

/// All shard Leases.
#[derive(Debug)]
pub(super) struct Book {
    /// All with the label of a ring; [`Self::iter`] has those of shards.
    leases: BTreeMap<LeaseKey, Observed>,
    /// Those that make shards, and those that make none as there would be too many.
    counted: BTreeSet<LeaseKey>,
    beyond: BTreeSet<LeaseKey>,
    rings: BTreeMap<RingName, OfRing>,
    /// Where the sharder may write Leases; none where that is not asked, and Leases count everywhere.
    rights: Option<Rights>,
    tokens_per_shard: NonZeroU32,
    vanished: Vanished,
    pub(super) returns: Returns,
    /// The Leases that were known to be late when that was last looked at.
    late: BTreeSet<LeaseKey>,
    /// The kinds of ring that are served, and those whose Leases have been listed.
    kinds: &'static [RingKind],
    listed: BTreeSet<RingKind>,
    /// Whether all is known by now that says which Leases make shards.
    complete: bool,
    /// The kinds whose next list counts, however old it is: the API server's time went back.
    went_back: BTreeSet<RingKind>,
    pub(super) refusals: Refusals,
    pub(super) holds: Holds,
    /// What was complained about last of each Lease: once is enough.
    complaints: BTreeMap<LeaseKey, String>,
}

impl Book {
    /// Nothing seen yet. `asks`: Leases make shards only where the sharder was granted its rights.
    pub(super) fn new(asks: bool, tokens_per_shard: NonZeroU32) -> Self {
        Self { rights: asks.then(Rights::default), tokens_per_shard, ..Self::default() }
    }

    /// Only these kinds of ring are served: a Lease of another is none.
    pub(super) fn serve(&mut self, kinds: &'static [RingKind]) {
        self.kinds = kinds;
    }

    /// Takes in a Lease that the watch showed, or a write's answer.
    pub(super) fn seen(&mut self, lease: Lease, now: Moment) -> Change {
        let change = self.apply_one(lease, now);
        self.end_lost_holds(now);
        change
    }

    /// The watch on this kind of ring shows a Lease no more. It may be known as one of the other kind by now, or its successor.
    pub(super) fn gone(&mut self, kind: RingKind, lease: &Lease, now: Moment) -> Change {
        let Some(key) = key_of(lease) else { return Change::Nothing };
        self.complaints.remove(&key);
        let is_it = |known: &Observed| known.ring.kind() == kind && known.lease.metadata.uid == lease.metadata.uid;
        if !self.leases.get(&key).is_some_and(is_it) {
            return Change::Nothing;
        }
        let change = self.remove(&key, now);
        self.end_lost_holds(now);
        change
    }

    /// Compares the API server's answer about a Lease, none if it is gone, with what is known.
    pub(super) fn compare(&mut self, key: &LeaseKey, answer: Option<&Lease>) -> Answer {
        let Some(known) = self.leases.get_mut(key) else { return Answer::News };
        if answer.is_some_and(|answer| !is_older(answer, &known.lease)) {
            return Answer::News;
        }
        // Once while a list is under way that ends this.
        let is_first = !std::mem::replace(&mut known.contradicted, true);
        if is_first || !self.went_back.is_empty() {
            return Answer::Old;
        }
        self.went_back.extend(self.kinds);
        Answer::TimeWentBack
    }

    /// Forgets vanished and unstable shards whose time is over, and notes which Leases are late by now; returns whether there
    /// were any, and when that is next to be looked at. Renewals put that off, so it may turn out to be early.
    pub(super) fn expire(&mut self, now: Moment) -> (bool, Option<Moment>) {
        let vanished = self.vanished.expire(now);
        if vanished && !self.beyond.is_empty() {
            self.recount(now);
        }
        let over = vanished | self.returns.expire(now);
        let late = self.note_late(now);
        let ready =
            self.iter().map(|(_, seen)| seen).filter(|seen| seen.state(now, Moment::default()) == ShardState::Ready);
        let first = ready.filter_map(|seen| seen.judge(now, Moment::default()).until).min();
        (over || late, first.into_iter().chain(self.vanished.next()).chain(self.returns.next()).min())
    }

    /// Notes the Leases of shards that take part in partitioning and are not ready; returns whether these are others.
    fn note_late(&mut self, now: Moment) -> bool {
        let is_late =
            |seen: &Observed| matches!(seen.state(now, Moment::default()), ShardState::Expired | ShardState::Uncertain);
        let late = self.iter().filter(|(_, seen)| is_late(seen)).map(|(key, _)| key.clone()).collect();
        let before = std::mem::replace(&mut self.late, late);
        before != self.late
    }

    /// How long a shard of this name may still be working although no Lease says so.
    pub(super) fn unknown_for(&self, ring: &RingName, shard: &str, now: Moment) -> Duration {
        let is_known = self.iter().any(|(_, seen)| seen.ring == *ring && seen.shard.as_str() == shard);
        match () {
            () if is_known => Duration::ZERO,
            () if self.may_count_soon(ring, shard) => ASKED_WITHIN,
            () => self.vanished.unknown_for(ring, shard, now),
        }
    }

    /// As after a long time of watching.
    #[cfg(test)]
    pub(super) fn know_all(&mut self) {
        self.vanished.know_all();
    }

    /// Takes in what the rings say of their shards; returns whether that is something else than before.
    pub(super) fn confine(&mut self, rings: BTreeMap<RingName, OfRing>, now: Moment) -> bool {
        if self.rings == rings {
            return false;
        }
        self.rings = rings;
        self.recount(now);
        self.complete(now);
        true
    }

    /// Takes in how a write to a Lease went; returns whether that is news to people.
    pub(super) fn wrote(&mut self, key: &LeaseKey, refused: Option<String>, now: Moment) -> bool {
        let wanted = |key: &LeaseKey| self.holds.wanted(now).any(|(_, shard)| *shard == key.name);
        self.refusals.keep_only(|known| self.leases.contains_key(known) || wanted(known));
        self.refusals.wrote(key, refused, now)
    }

    /// All Leases of this kind of ring were listed: what is not among them is gone. The list may be older than what was seen
    /// meanwhile of a Lease that it has.
    pub(super) fn listed(&mut self, kind: RingKind, list: Vec<Lease>, now: Moment) -> Change {
        let before = self.leases.clone();
        let anyway = self.went_back.remove(&kind);
        let mut keys: BTreeSet<LeaseKey> = list.iter().filter_map(key_of).collect();
        self.complaints.retain(|key, _| keys.contains(key) || before.get(key).is_some_and(|it| it.ring.kind() != kind));
        for lease in list {
            match (key_of(&lease), self.observe(lease, anyway, now)) {
                (_, Some((key, seen))) => drop(self.leases.insert(key, seen)),
                (Some(key), None) => drop(keys.remove(&key)),
                (None, None) => {}
            }
        }
        self.leases.retain(|key, seen| seen.ring.kind() != kind || keys.contains(key));
        for (key, last) in &before {
            if self.leases.get(key).is_none_or(|seen| seen.ring != last.ring) {
                self.vanish(key, last, now);
            }
        }
        for (key, seen) in self.leases.iter().filter(|(key, _)| self.counted.contains(*key) && keys.contains(*key)) {
            self.vanished.appeared(key, &seen.ring);
            self.returns.seen(key, seen, before.get(key), now);
        }
        self.recount(now);
        let first = self.listed.insert(kind);
        self.complete(now);
        let late = self.note_late(now);
        self.end_lost_holds(now);
        let same = !first && !late && membership(&before) == membership(&self.leases);
        if same { Change::Attention } else { Change::Membership }
    }

    fn remove(&mut self, key: &LeaseKey, now: Moment) -> Change {
        let Some(last) = self.leases.remove(key) else { return Change::Nothing };
        self.vanish(key, &last, now);
        self.recount(now);
        Change::Membership
    }

    /// The Lease is gone, or of another ring.
    fn vanish(&mut self, key: &LeaseKey, last: &Observed, now: Moment) {
        if self.counted.remove(key) {
            self.vanished.insert(key, last, now);
        }
    }

    fn apply_one(&mut self, lease: Lease, now: Moment) -> Change {
        let Some(key) = key_of(&lease) else { return Change::Nothing };
        let Some((key, seen)) = self.observe(lease, false, now) else {
            // It may have been a shard's until its label was changed.
            return self.remove(&key, now);
        };
        let before = self.leases.get(&key).cloned();
        let joined = before.as_ref().is_none_or(|before| facts_of(before) != facts_of(&seen));
        // Judged right after a change, a held Lease is ready and any other dead.
        let fits = seen.state_label() == Some(seen.judge(seen.changed, seen.changed).state.as_str());
        let renewed = before.as_ref().is_none_or(|before| before.changed != seen.changed);
        if let Some(last) = before.as_ref().filter(|before| before.ring != seen.ring) {
            self.vanish(&key, last, now);
        }
        let is_ready = seen.state(now, Moment::default()) == ShardState::Ready;
        if self.counts(&key) {
            self.vanished.appeared(&key, &seen.ring);
            self.returns.seen(&key, &seen, before.as_ref(), now);
        }
        self.leases.insert(key.clone(), seen);
        if joined {
            self.recount(now);
        }
        // Ready again: what it was passed over for may come to it.
        let back = is_ready && self.late.remove(&key);
        match (joined || back, self.counts(&key) && renewed && !fits) {
            (true, _) => Change::Membership,
            (false, true) => Change::Attention,
            (false, false) => Change::Nothing,
        }
    }
}

impl Default for Book {
    fn default() -> Self {
        Self {
            leases: BTreeMap::new(),
            counted: BTreeSet::new(),
            beyond: BTreeSet::new(),
            rings: BTreeMap::new(),
            rights: None,
            tokens_per_shard: DEFAULT_TOKENS_PER_SHARD,
            vanished: Vanished::default(),
            returns: Returns::default(),
            late: BTreeSet::new(),
            kinds: &RingKind::ALL,
            listed: BTreeSet::new(),
            complete: false,
            went_back: BTreeSet::new(),
            refusals: Refusals::default(),
            holds: Holds::default(),
            complaints: BTreeMap::new(),
        }
    }
}

/// Whether the sharder made this Lease, and holds it.
fn is_made(lease: &Lease) -> bool {
    let spec = lease.spec.as_ref();
    holder(spec) == Some(SHARDER_HOLDER) && spec.and_then(|spec| spec.lease_transitions).unwrap_or_default() == 0
}

pub(super) fn key_of(lease: &Lease) -> Option<LeaseKey> {
    Some(LeaseKey { namespace: lease.metadata.namespace.clone()?, name: lease.metadata.name.clone()? })
}

fn membership(leases: &BTreeMap<LeaseKey, Observed>) -> BTreeMap<&LeaseKey, observed::Facts<'_>> {
    leases.iter().map(|(key, observed)| (key, facts_of(observed))).collect()
}

#[cfg(test)]
pub(super) mod tests;
