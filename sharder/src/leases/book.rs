//! What was seen of the shard Leases, and when each was last seen to change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::Event;
use ringside_ring::{
    Members, Moment, ResourceVersion, RingName, ShardName,
    labels::{LEASE_RING, LEASE_STATE},
    lease::{Judgement, LeaseFacts, ShardState, judge},
};

use super::vanished::Vanished;

/// Where a Lease is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaseKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A shard Lease with what was observed of it.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) ring: RingName,
    pub(super) shard: ShardName,
    pub(super) facts: LeaseFacts,
    /// When its spec was last seen to change, or it was first seen.
    pub(super) changed: Moment,
    pub(super) lease: Arc<Lease>,
}

impl Observed {
    /// Its state for a judge that has been watching since `since`.
    pub(super) fn judge(&self, now: Moment, since: Moment) -> Judgement {
        judge(&self.facts, self.changed.max(since), now)
    }

    /// The state that its label tells people.
    pub(super) fn state_label(&self) -> Option<&str> {
        state_label(&self.lease)
    }

    fn is_same_lease(&self, other: &Self) -> bool {
        self.lease.metadata.uid == other.lease.metadata.uid
    }

    /// Whether `self` was seen by somebody who looked into the past: a write's answer overtakes the watch,
    /// and another API server may lag. Taking it would bring a dead shard back to life for a moment.
    fn is_older_than(&self, other: &Self) -> bool {
        let version = |of: &Self| of.lease.metadata.resource_version.as_deref().and_then(|v| v.parse().ok());
        let (this, that): (Option<ResourceVersion>, Option<ResourceVersion>) = (version(self), version(other));
        self.is_same_lease(other) && this.zip(that).is_some_and(|(this, that)| this < that)
    }

    /// What is known of a Lease that was seen as `self` when it was known as `known`.
    fn after(mut self, known: &Self) -> Self {
        if self.is_older_than(known) {
            return known.clone();
        }
        // Metadata is no sign of life: the state label is written by the sharder itself.
        if self.is_same_lease(known) && self.lease.spec == known.lease.spec {
            self.changed = known.changed;
        }
        self
    }
}

/// What an event changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Nothing that anybody must act on now: a renewal only puts off what timers wait for.
    Nothing,
    /// A Lease whose state label no longer fits.
    Attention,
    /// The shards of a ring, or which of them are available.
    Membership,
}

/// All shard Leases.
#[derive(Debug, Default)]
pub(super) struct Book {
    leases: BTreeMap<LeaseKey, Observed>,
    /// The Leases of a list that has not ended; `None` between lists.
    arriving: Option<BTreeMap<LeaseKey, Observed>>,
    vanished: Vanished,
    complete: bool,
    /// What was complained about: once is enough.
    complaints: BTreeSet<String>,
}

impl Book {
    /// Takes in an event of the watch, or a Lease in a write's answer.
    pub(super) fn apply(&mut self, event: Event<Lease>, now: Moment) -> Change {
        match event {
            Event::Init => {
                self.arriving = Some(BTreeMap::new());
                Change::Nothing
            }
            Event::InitApply(lease) => {
                if let Some((key, seen)) = self.observe(lease, now)
                    && let Some(arriving) = &mut self.arriving
                {
                    arriving.insert(key, seen);
                }
                Change::Nothing
            }
            Event::InitDone => self.replace_all(now),
            Event::Apply(lease) => self.apply_one(lease, now),
            Event::Delete(lease) => {
                let Some(key) = key_of(&lease) else { return Change::Nothing };
                // The event of an old Lease's deletion may come after its successor was seen.
                let same = self.leases.get(&key).is_some_and(|known| known.lease.metadata.uid == lease.metadata.uid);
                if same { self.remove(&key, now) } else { Change::Nothing }
            }
        }
    }

    /// Forgets vanished shards whose time is over; returns whether there were any, and when that is next to be looked at.
    pub(super) fn expire(&mut self, now: Moment) -> (bool, Option<Moment>) {
        (self.vanished.expire(now), self.vanished.next())
    }

    /// All Leases.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&LeaseKey, &Observed)> {
        self.leases.iter()
    }

    /// The shards of each ring for a judge that has been watching since `since`; `None` before the first list has ended.
    ///
    /// Which of them are available follows from the Leases alone, not from `now`: an uncertain shard is available
    /// until its Lease was acquired. So all replicas agree, whenever they started to watch.
    pub(super) fn members(&self, now: Moment, since: Moment) -> Option<BTreeMap<RingName, Members>> {
        self.complete.then_some(())?;
        let mut rings: BTreeMap<RingName, BTreeMap<ShardName, ShardState>> = BTreeMap::new();
        for observed in self.leases.values() {
            let state = observed.judge(now, since).state;
            let shards = rings.entry(observed.ring.clone()).or_default();
            // Two namespaces may have Leases of one name: that shard is there as long as one of them is held.
            let known = shards.entry(observed.shard.clone()).or_insert(state);
            *known = state.min(*known);
        }
        for (ring, shard) in self.vanished.iter() {
            let known = rings.entry(ring.clone()).or_default().entry(shard.clone()).or_insert(ShardState::Expired);
            *known = ShardState::Expired.min(*known);
        }
        Some(rings.into_iter().map(|(ring, shards)| (ring, shards.into_iter().collect())).collect())
    }

    /// A list has ended: what it does not have is gone. It may be older than what was seen meanwhile of a Lease that
    /// it has.
    fn replace_all(&mut self, now: Moment) -> Change {
        let before = std::mem::take(&mut self.leases);
        for (key, seen) in self.arriving.take().unwrap_or_default() {
            let seen = match before.get(&key) {
                Some(known) => seen.after(known),
                None => seen,
            };
            self.vanished.appeared(&key, &seen.ring);
            self.leases.insert(key, seen);
        }
        for (key, last) in &before {
            if self.leases.get(key).is_none_or(|seen| seen.ring != last.ring) {
                self.vanished.insert(key, last, now);
            }
        }
        let first = !std::mem::replace(&mut self.complete, true);
        let same = !first && membership(&before) == membership(&self.leases);
        if same { Change::Attention } else { Change::Membership }
    }

    fn remove(&mut self, key: &LeaseKey, now: Moment) -> Change {
        let Some(last) = self.leases.remove(key) else { return Change::Nothing };
        self.vanished.insert(key, &last, now);
        Change::Membership
    }

    fn apply_one(&mut self, lease: Lease, now: Moment) -> Change {
        let Some(key) = key_of(&lease) else { return Change::Nothing };
        let Some((key, seen)) = self.observe(lease, now) else {
            // It may have been a shard's until its label was changed.
            return self.remove(&key, now);
        };
        let before = self.leases.get(&key);
        let joined = before.is_none_or(|before| facts_of(before) != facts_of(&seen));
        // Judged right after a change, a held Lease is ready and any other dead.
        let fits = seen.state_label() == Some(seen.judge(seen.changed, seen.changed).state.as_str());
        let renewed = before.is_none_or(|before| before.changed != seen.changed);
        self.vanished.appeared(&key, &seen.ring);
        if let Some(last) = before.filter(|before| before.ring != seen.ring) {
            self.vanished.insert(&key, last, now);
        }
        self.leases.insert(key, seen);
        match (joined, renewed && !fits) {
            (true, _) => Change::Membership,
            (false, true) => Change::Attention,
            (false, false) => Change::Nothing,
        }
    }

    /// What is now known of a Lease; `None` when it can't be a shard's.
    fn observe(&mut self, mut lease: Lease, now: Moment) -> Option<(LeaseKey, Observed)> {
        let key = key_of(&lease)?;
        let ring = lease.metadata.labels.as_ref()?.get(LEASE_RING)?.clone();
        lease.metadata.managed_fields = None;
        let names = ring.parse::<RingName>().and_then(|ring| Ok((ring, key.name.parse::<ShardName>()?)));
        let (ring, shard) = match names {
            Ok(names) => names,
            Err(fault) => {
                self.complain(&key, &fault.to_string());
                return None;
            }
        };
        let facts = LeaseFacts::of(&lease);
        let seen = Observed { ring, shard, facts, changed: now, lease: Arc::new(lease) };
        let seen = match self.leases.get(&key) {
            Some(known) => seen.after(known),
            None => seen,
        };
        Some((key, seen))
    }

    fn complain(&mut self, key: &LeaseKey, fault: &str) {
        let LeaseKey { namespace, name } = key;
        if self.complaints.insert(format!("{namespace}/{name}: {fault}")) {
            tracing::warn!(namespace, lease = name, fault, "ignoring a Lease that can't be a shard's");
        }
    }
}

/// The state that a Lease's label tells people.
pub(super) fn state_label(lease: &Lease) -> Option<&str> {
    lease.metadata.labels.as_ref()?.get(LEASE_STATE).map(String::as_str)
}

fn key_of(lease: &Lease) -> Option<LeaseKey> {
    Some(LeaseKey { namespace: lease.metadata.namespace.clone()?, name: lease.metadata.name.clone()? })
}

/// What decides about membership.
fn facts_of(observed: &Observed) -> (&RingName, bool) {
    (&observed.ring, observed.facts.held_by_shard)
}

fn membership(leases: &BTreeMap<LeaseKey, Observed>) -> BTreeMap<&LeaseKey, (&RingName, bool)> {
    leases.iter().map(|(key, observed)| (key, facts_of(observed))).collect()
}

#[cfg(test)]
pub(super) mod tests;
