//! Which Leases the sharder has to hold before it takes anything, and which holds stand.

use k8s_openapi::api::coordination::v1::Lease;
use ringside_ring::{
    Moment, RingName,
    lease::{SHARDER_HOLDER, holder},
};

use super::{Book, LeaseKey, Observed, is_made};
use crate::leases::hold::{DEFAULT_HOLD, Held};

impl Book {
    /// The Leases that the sharder has to hold before it takes anything from a shard; none where the shard may not be gone.
    ///
    /// Where no Lease has the shard's name, these are Leases that are to be made. There is one in each namespace of the ring's
    /// shards. Where that is not known, there is one in each namespace that has a Lease of a shard now.
    pub(in crate::leases) fn to_hold(&self, ring: &RingName, shard: &str, now: Moment) -> Option<Vec<LeaseKey>> {
        let is_of_name = |seen: &Observed| seen.ring == *ring && seen.shard.as_str() == shard;
        let names = self.names();
        let may_work = names.counting().any(|(_, seen)| is_of_name(seen) && seen.facts.held_by_shard)
            || self.works_uncounted(ring, shard, true)
            || self.vanished.has(ring, shard)
            || !self.unknown_for(ring, shard, now).is_zero();
        if may_work || !self.complete {
            return None;
        }
        let free = self.iter().filter(|(_, seen)| is_of_name(seen) && !seen.facts.held_by_shard);
        let (made, others): (Vec<_>, Vec<_>) = free.partition(|(_, seen)| is_made(&seen.lease));
        if !others.is_empty() {
            return Some(made.into_iter().chain(others).map(|(key, _)| key.clone()).collect());
        }
        if self.works_uncounted(ring, shard, false) {
            return None;
        }
        let of_ring = self.iter().filter(|(_, seen)| seen.ring == *ring);
        let namespaces =
            self.namespaces_of(ring).unwrap_or_else(|| of_ring.map(|(key, _)| key.namespace.clone()).collect());
        // In a ring without any Lease no shard can wait for one, unless one has just lost its own.
        if namespaces.is_empty() && self.vanished.iter().any(|(of, ..)| of == ring) {
            return None;
        }
        let key = |namespace| LeaseKey { namespace, name: shard.to_owned() };
        Some(namespaces.into_iter().map(key).collect())
    }

    /// The Leases that are to be made, with their rings.
    pub(in crate::leases) fn missing(&self, now: Moment) -> Vec<(RingName, LeaseKey)> {
        let of_shard = |(ring, shard): &(RingName, String)| {
            let keys = self.to_hold(ring, shard, now).unwrap_or_default().into_iter();
            let is_there = |key: &LeaseKey| self.iter().any(|(known, seen)| known == key && seen.ring == *ring);
            let missing = keys.filter(|key| !is_there(key) && !self.holds.has(key, now));
            missing.map(|key| (ring.clone(), key)).collect::<Vec<_>>()
        };
        self.holds.wanted(now).flat_map(of_shard).collect()
    }

    /// The sharder holds this Lease, which was `before`, by a request that began at `since`, unless it was written to meanwhile.
    pub(in crate::leases) fn hold(&mut self, key: &LeaseKey, before: &Lease, since: Moment) {
        let Some(seen) = self.leases.get(key) else { return };
        if holder(seen.lease.spec.as_ref()) == Some(SHARDER_HOLDER) {
            let (name, spec) = ((seen.ring.clone(), seen.shard.to_string()), seen.lease.spec.clone());
            let held = Held::new(name, spec, since, seen.facts.duration);
            let is_over_another = before.metadata.uid.is_some() && holder(before.spec.as_ref()) == Some(SHARDER_HOLDER);
            self.holds.insert(key.clone(), if is_over_another { held.over_another() } else { held });
        }
    }

    /// There is no Lease here that the shard could take, unless one was seen by now: the Lease of this name is no shard's of
    /// this ring, or there is no such namespace.
    pub(in crate::leases) fn hold_without_lease(&mut self, key: &LeaseKey, ring: &RingName, since: Moment) {
        if !self.iter().any(|(known, seen)| known == key && seen.ring == *ring) {
            let name = (ring.clone(), key.name.clone());
            self.holds.insert(key.clone(), Held::new(name, None, since, DEFAULT_HOLD));
        }
    }

    /// A hold ends when its Lease is not as the sharder wrote it, or a shard of its name holds another one.
    pub(super) fn end_lost_holds(&mut self, now: Moment) {
        let mut holds = std::mem::take(&mut self.holds);
        let names = self.names();
        holds.end_unless(now, |key, (ring, shard), is_its| {
            let is_of_name = |seen: &Observed| seen.ring == *ring && seen.shard.as_str() == shard;
            let is_elsewhere = names.counting().any(|(_, seen)| is_of_name(seen) && seen.facts.held_by_shard);
            !is_elsewhere
                && !self.works_uncounted(ring, shard, true)
                && match is_its {
                    Some(is_its) => self.leases.get(key).and_then(|seen| seen.lease.spec.as_ref()).is_some_and(is_its),
                    None => !self.iter().any(|(known, seen)| known == key && seen.ring == *ring),
                }
        });
        self.holds = holds;
    }
}
