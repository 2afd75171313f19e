//! The shards that the Leases are of, and what is told about them.

use std::collections::BTreeMap;

use ringside_ring::{
    Controller, Members, Moment, RingName, ShardName, Weight,
    labels::{ADMITS_NONE, LEASE_ADMITTED, LEASE_RING_GENERATION},
    lease::{LeaseOwner, ShardState, annotation, fault},
    members::Member,
};

use super::{Book, LeaseKey};
use crate::leases::names::{Names, instance};

impl Book {
    /// Which Leases with the label of a ring are not as a shard's should be, for people.
    pub(in crate::leases) fn faults(&self, ring: &RingName, now: Moment) -> impl Iterator<Item = String> {
        let of_ring = self.leases.iter().filter(move |(_, seen)| seen.ring == *ring);
        let refused = |key: &LeaseKey| {
            let why = self.refusals.why(key)?;
            Some(format!("Lease '{}/{}': the sharder can't write to it: {why}", key.namespace, key.name))
        };
        let of_shards = of_ring.filter(|(key, seen)| seen.owner == LeaseOwner::Other || self.counts(key));
        let known = of_shards.filter_map(move |(key, seen)| fault(&seen.lease, seen.owner).or_else(|| refused(key)));
        known.chain(self.uncounted_faults(ring, now))
    }

    /// Why the sharder can't make the Leases of shards that have none, so that objects of theirs wait, for people.
    pub(in crate::leases) fn unmade(&self, ring: &RingName, now: Moment) -> Vec<String> {
        let missing = self.missing(now).into_iter().filter(|(of, _)| of == ring);
        let why: BTreeMap<String, String> =
            missing.filter_map(|(_, key)| Some((key.namespace.clone(), self.refusals.why(&key)?.to_owned()))).collect();
        let told = why.iter().map(|(namespace, why)| {
            format!("objects of shards without a Lease wait, as none can be made in namespace '{namespace}': {why}; apply what `ringside rbac {ring} --shards {namespace}` prints, or take the namespace out of spec.shardNamespaces")
        });
        told.collect()
    }

    /// The shards of each ring for a judge that has been watching since `since`; `None` before the first list has ended.
    ///
    /// Which of them are available follows from the Leases alone, not from `now`: an uncertain shard is available
    /// until its Lease was acquired. So all replicas agree on what belongs to whom, whenever they started to watch. Which
    /// are ready they may see a moment apart.
    pub(in crate::leases) fn members(&self, now: Moment, since: Moment) -> Option<BTreeMap<RingName, Members>> {
        self.complete.then_some(())?;
        let mut rings: BTreeMap<RingName, BTreeMap<ShardName, Member>> = BTreeMap::new();
        let mut count = |ring: &RingName, shard: &ShardName, member: Member| {
            let known = rings.entry(ring.clone()).or_default().entry(shard.clone()).or_insert(member);
            // More than one process may work under this name: it is there as long as one of them holds its Lease.
            if (member.state, member.controller) < (known.state, known.controller) {
                *known = member;
            }
        };
        let names = self.names();
        for (_, observed) in names.counting() {
            let (state, weight) = (observed.state(now, since), observed.weight());
            let member = Member { state, weight, controller: Controller::of(&observed.lease) };
            count(&observed.ring, &observed.shard, member);
        }
        for (ring, shard, weight) in self.vanished.iter() {
            count(ring, shard, Member { state: ShardState::Expired, weight, controller: Controller::Working });
        }
        let members = |(ring, mut shards): (RingName, BTreeMap<ShardName, Member>)| {
            // What it has goes to others at the usual pace.
            for name in names.shared(&ring, |seen| instance(&seen.lease).is_none()) {
                shards.entry(name).and_modify(|member| member.weight = Weight::ZERO);
            }
            let members: Members = shards.into_iter().collect();
            let unstable = self.returns.unstable().filter(|(_, of)| *of == ring);
            let unstable = unstable.filter_map(|(key, _)| key.name.parse().ok()).collect();
            let grouped = names.counting().filter(|(_, seen)| seen.ring == ring);
            let grouped = grouped.filter_map(|(_, seen)| Some((seen.shard.clone(), seen.group()?.to_owned())));
            let grouped = self.vanished.groups(&ring).chain(grouped).collect();
            let members = members.sharing(names.shared(&ring, |_| true)).with_groups(grouped);
            let members = members.with_unstable(unstable);
            (ring, members)
        };
        Some(rings.into_iter().map(members).collect())
    }

    /// The Leases of shards, by the name that they share.
    pub(in crate::leases) fn names(&self) -> Names<'_> {
        Names::of(self.iter())
    }

    /// Returns what the sharder should write on this Lease for its shard.
    pub(in crate::leases) fn marks_for(&self, names: &Names<'_>, key: &LeaseKey) -> BTreeMap<&'static str, String> {
        let Some(seen) = self.leases.get(key) else { return BTreeMap::new() };
        let generation = self.rings.get(&seen.ring).filter(|_| instance(&seen.lease).is_some());
        let none = || instance(&seen.lease).map(|_| ADMITS_NONE.to_owned());
        let admitted = if self.is_beyond(key) { none() } else { names.admitted(key, seen, &self.vanished) };
        let wanted =
            [(LEASE_ADMITTED, admitted), (LEASE_RING_GENERATION, generation.map(|of_ring| of_ring.generation.clone()))];
        let told = wanted.into_iter().filter_map(|(mark, value)| Some((mark, value?)));
        told.filter(|(mark, value)| annotation(&seen.lease, mark) != Some(value)).collect()
    }
}
