//! Which instance may work under a shard's name.
//!
//! Objects name a shard without its namespace, so two Leases of one name in two namespaces are two processes that work on the
//! same objects. One instance is admitted: the one that is already, or else that of the oldest Lease. It stays so until its
//! Lease is deleted. A shard that tells no instance knows nothing of admission, and can't be kept from working.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::coordination::v1::Lease;
use ringside_ring::{
    RingName, ShardName,
    labels::{LEASE_ADMITTED, LEASE_INSTANCE},
    lease::{LeaseOwner, annotation},
};

use super::{
    book::{LeaseKey, Observed},
    vanished::Vanished,
};

/// The Leases of shards, by the name that they share, with the admitted one first.
pub(super) struct Names<'a>(BTreeMap<(&'a RingName, &'a ShardName), Vec<(&'a LeaseKey, &'a Observed)>>);

impl<'a> Names<'a> {
    pub(super) fn of(leases: impl Iterator<Item = (&'a LeaseKey, &'a Observed)>) -> Self {
        let mut names: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, seen) in leases {
            names.entry((&seen.ring, &seen.shard)).or_default().push((key, seen));
        }
        for leases in names.values_mut() {
            leases.sort_by_cached_key(|(_, seen)| rank(seen));
        }
        Self(names)
    }

    /// Returns what the annotation for the admitted instance should say on this Lease; none where it stays as it is.
    pub(super) fn admitted(&self, key: &LeaseKey, seen: &Observed, vanished: &Vanished) -> Option<String> {
        let (first, admitted) = *self.0.get(&(&seen.ring, &seen.shard))?.first()?;
        // The holder of a Lease that was deleted works on until it notices.
        let waits = first == key && vanished.has_other(key, &seen.ring);
        let admitted = instance(&admitted.lease).or(admitted.lease.metadata.uid.as_deref())?;
        (instance(&seen.lease).is_some() && !waits).then(|| admitted.to_owned())
    }

    /// The Leases that say how the shard of each name is: the admitted one, and those of instances that may work besides.
    pub(super) fn counting(&self) -> impl Iterator<Item = (&'a LeaseKey, &'a Observed)> {
        self.0.values().flat_map(|leases| {
            leases.iter().enumerate().filter(|(at, (_, seen))| *at == 0 || may_work(seen)).map(|(_, lease)| *lease)
        })
    }

    /// The names under which more than one process may work, of those that `counts` says.
    pub(super) fn shared(&self, ring: &RingName, counts: impl Fn(&Observed) -> bool) -> BTreeSet<ShardName> {
        let works = |(_, seen): &&(&LeaseKey, &Observed)| may_work(seen) && counts(seen);
        let shared = self.of_ring(ring).filter(|(_, leases)| leases.iter().filter(works).count() > 1);
        shared.map(|(name, _)| name.clone()).collect()
    }

    /// Which names of a ring have several Leases that are held, for people.
    pub(super) fn faults(&self, ring: &RingName) -> Vec<String> {
        let fault = self.of_ring(ring).filter_map(|(name, leases)| {
            let held = leases.iter().filter(|(_, seen)| seen.facts.held_by_shard);
            let places: Vec<_> = held.map(|(key, _)| &*key.namespace).collect();
            (places.len() > 1).then(|| format!(
                "shard '{name}' has Leases in the namespaces {}: the first is admitted; those without a proxy all work, and get nothing then: rename all but one",
                places.join(", ")
            ))
        });
        fault.collect()
    }

    fn of_ring(&self, ring: &RingName) -> impl Iterator<Item = (&'a ShardName, &Vec<(&'a LeaseKey, &'a Observed)>)> {
        self.0.iter().filter(move |((of, _), _)| *of == ring).map(|((_, name), leases)| (*name, leases))
    }

    /// The shards of a ring that may work and have not read this mark on their Lease, with this value where one is given.
    pub(super) fn unread(&self, ring: &RingName, mark: &str, value: Option<&str>) -> Vec<ShardName> {
        let is_told = |seen: &Observed| {
            seen.has_read(mark) && value.is_none_or(|value| annotation(&seen.lease, mark) == Some(value))
        };
        let of_ring = self.of_ring(ring).flat_map(|(_, leases)| leases);
        let unread = of_ring.filter(|(_, seen)| may_work(seen) && instance(&seen.lease).is_some() && !is_told(seen));
        unread.map(|(_, seen)| seen.shard.clone()).collect()
    }
}

/// The instance that holds a Lease, as far as the shard tells it.
pub(super) fn instance(lease: &Lease) -> Option<&str> {
    annotation(lease, LEASE_INSTANCE)
}

/// Whether the holder of a Lease may work: it does not know that another instance is admitted.
pub(super) fn may_work(seen: &Observed) -> bool {
    let is_shut = instance(&seen.lease).is_some_and(|own| {
        annotation(&seen.lease, LEASE_ADMITTED).is_some_and(|admitted| admitted != own) && seen.has_read(LEASE_ADMITTED)
    });
    seen.owner == LeaseOwner::Shard && seen.facts.held_by_shard && !is_shut
}

/// The order of the Leases of one name: what nothing keeps from working, what is admitted, the oldest.
fn rank(seen: &Observed) -> impl Ord + use<> {
    let (lease, own) = (&seen.lease, instance(&seen.lease));
    let is_native = own.is_none() && seen.facts.held_by_shard;
    let is_admitted = own.is_some() && annotation(lease, LEASE_ADMITTED) == own;
    let created = lease.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (seen.owner != LeaseOwner::Shard, !is_native, !is_admitted, created, lease.metadata.uid.clone())
}

#[cfg(test)]
mod tests;
