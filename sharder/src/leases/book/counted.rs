//! Which Leases with the label of a ring make shards: by their namespaces, and by how many a ring may have.

use std::collections::{BTreeMap, BTreeSet};

use ringside_ring::{
    Moment, RingName,
    lease::LeaseOwner,
    placement::{MAX_SHARDS, MAX_TOKENS, fitting},
};

use super::{Book, LeaseKey, Observed};
use crate::leases::names::{instance, may_work};

/// Names that are in one sentence at most.
const NAMED: usize = 5;

impl Book {
    /// The Leases of shards.
    pub(in crate::leases) fn iter(&self) -> impl Iterator<Item = (&LeaseKey, &Observed)> {
        self.leases.iter().filter(|(key, _)| self.counts(key))
    }

    /// The Leases beyond what a ring may have.
    pub(in crate::leases) fn beyond(&self) -> impl Iterator<Item = (&LeaseKey, &Observed)> {
        self.leases.iter().filter(|(key, _)| self.is_beyond(key))
    }

    pub(super) fn counts(&self, key: &LeaseKey) -> bool {
        self.counted.contains(key)
    }

    pub(super) fn is_beyond(&self, key: &LeaseKey) -> bool {
        self.beyond.contains(key)
    }

    fn has_shards_in(&self, ring: &RingName, namespace: &str) -> bool {
        let of_ring = self.rings.get(ring);
        if let Some(of_ring) = of_ring.filter(|of_ring| !of_ring.namespaces.is_empty()) {
            return of_ring.namespaces.contains(namespace);
        }
        let listed = of_ring.and_then(|of_ring| of_ring.listed.as_ref());
        match &self.rights {
            // What the leader has listed counts until it is listed no more: its proxies go by that, too.
            Some(rights) => rights.count(namespace) || listed.is_some_and(|listed| listed.contains(namespace)),
            None => listed.is_none_or(|listed| listed.contains(namespace)),
        }
    }

    fn names_its_namespaces(&self, ring: &RingName) -> bool {
        self.rings.get(ring).is_some_and(|of_ring| !of_ring.namespaces.is_empty())
    }

    /// The namespaces that the sharder's rights in matter.
    fn to_ask(&self) -> BTreeSet<String> {
        let of_leases = self.leases.iter().filter(|(_, seen)| !self.names_its_namespaces(&seen.ring));
        let listed = self.rings.values().filter(|of_ring| of_ring.namespaces.is_empty());
        let listed = listed.flat_map(|of_ring| of_ring.listed.iter().flatten().cloned());
        of_leases.map(|(key, _)| key.namespace.clone()).chain(listed).collect()
    }

    /// The namespaces that the API server is to be asked about, and when that is others.
    pub(in crate::leases) fn rights_due(&mut self, now: Moment) -> (Vec<String>, Option<Moment>) {
        let namespaces = if self.is_listed() { self.to_ask() } else { BTreeSet::new() };
        self.rights.as_mut().map_or((Vec::new(), None), |rights| rights.due(&namespaces, now))
    }

    /// Takes in answers about namespaces; returns whether they are others than before.
    pub(in crate::leases) fn granted(&mut self, answers: Vec<(Option<bool>, String)>, now: Moment) -> bool {
        let Some(rights) = &mut self.rights else { return false };
        let is_news = answers
            .into_iter()
            .fold(false, |is_news, (answer, namespace)| rights.take(&namespace, answer, now) | is_news);
        self.recount(now);
        self.complete(now) | is_news
    }

    /// Whether the Leases of all kinds of ring that are served have been listed.
    fn is_listed(&self) -> bool {
        self.kinds.iter().all(|kind| self.listed.contains(kind))
    }

    /// All is known that says which shards there are, once all Leases were seen and their namespaces were asked about; returns
    /// whether that is so for the first time.
    pub(super) fn complete(&mut self, now: Moment) -> bool {
        let is_asked = || self.rights.as_ref().is_none_or(|rights| self.to_ask().iter().all(|it| rights.has(it)));
        let is_first = self.is_listed() && !self.complete && is_asked();
        if is_first {
            self.complete = true;
            self.vanished.complete(now);
        }
        is_first
    }

    /// Whether a Lease in a namespace that is yet to be asked about says that a shard of this name may work.
    pub(super) fn may_count_soon(&self, ring: &RingName, shard: &str) -> bool {
        let Some(rights) = &self.rights else { return false };
        self.uncounted(ring, shard).any(|(key, seen)| {
            seen.facts.held_by_shard && !self.names_its_namespaces(ring) && !rights.has(&key.namespace)
        })
    }

    /// The namespaces that a ring's status is to list; none where nothing is known that excludes one.
    pub(in crate::leases) fn namespaces_of(&self, ring: &RingName) -> Option<BTreeSet<String>> {
        let of_ring = self.rings.get(ring)?;
        let (true, Some(rights)) = (of_ring.namespaces.is_empty(), &self.rights) else {
            return Some(of_ring.namespaces.clone()).filter(|named| !named.is_empty());
        };
        if !self.complete {
            return of_ring.listed.clone();
        }
        let is_shards = |seen: &Observed| seen.ring == *ring && seen.owner == LeaseOwner::Shard;
        let seen: BTreeSet<_> =
            self.leases.iter().filter(|(_, seen)| is_shards(seen)).map(|(key, _)| key.namespace.clone()).collect();
        if seen.iter().any(|one| !rights.has(one)) {
            // A proxy that has just begun there would close for a moment.
            return of_ring.listed.clone();
        }
        let listed = of_ring.listed.iter().flatten().filter(|one| !rights.is_revoked(one)).cloned();
        let counting: BTreeSet<_> = seen.iter().filter(|one| rights.count(one)).cloned().chain(listed).collect();
        (of_ring.listed.is_some() || !seen.is_empty()).then_some(counting)
    }

    /// Finds out again which Leases make shards. One that makes none any more has the time to notice that it has when
    /// its Lease vanishes.
    pub(super) fn recount(&mut self, now: Moment) {
        let may = |(key, seen): &(&LeaseKey, &Observed)| {
            seen.owner != LeaseOwner::Other && self.has_shards_in(&seen.ring, &key.namespace)
        };
        let mut counted: BTreeSet<_> = self.leases.iter().filter(may).map(|(key, _)| key.clone()).collect();
        self.beyond = self.too_many(&counted);
        counted.retain(|key| !self.beyond.contains(key));
        let before = std::mem::replace(&mut self.counted, counted);
        for key in before.difference(&self.counted) {
            if let Some(seen) = self.leases.get(key) {
                self.vanished.insert(key, seen, now);
            }
        }
        // What is beyond the bound has no place on the hash ring, also for as long as it may work.
        before.intersection(&self.beyond).for_each(|key| self.vanished.empty(key));
        for key in self.counted.difference(&before) {
            if let Some(seen) = self.leases.get(key) {
                self.vanished.appeared(key, &seen.ring);
                self.returns.seen(key, seen, None, now);
            }
        }
    }

    /// The youngest of these that are held, where a ring would have too many shards, or tokens.
    fn too_many(&self, counted: &BTreeSet<LeaseKey>) -> BTreeSet<LeaseKey> {
        let mut rings: BTreeMap<&RingName, Vec<(&LeaseKey, &Observed)>> = BTreeMap::new();
        for (key, seen) in counted.iter().filter_map(|key| self.leases.get_key_value(key)) {
            if seen.facts.held_by_shard {
                rings.entry(&seen.ring).or_default().push((key, seen));
            }
        }
        let too_many = rings.into_iter().flat_map(|(ring, mut held)| {
            // Those whose Leases vanished are there as well.
            let vanished: Vec<_> = self.vanished.weights(ring, |key| !counted.contains(key)).collect();
            let fits = |held: &[(&LeaseKey, &Observed)]| {
                let weights = vanished.iter().copied().chain(held.iter().map(|(_, seen)| seen.weight()));
                fitting(weights, self.tokens_per_shard).saturating_sub(vanished.len())
            };
            if fits(&held) == held.len() {
                return Vec::new();
            }
            held.sort_by_cached_key(|(_, seen)| {
                let metadata = &seen.lease.metadata;
                (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.uid.clone())
            });
            held.split_off(fits(&held))
        });
        too_many.map(|(key, _)| key.clone()).collect()
    }

    /// Whether a shard of this name may work whose Lease makes none. Behind a proxy it ends by itself where the ring
    /// has no shards, and once it has read that it is not admitted. `beside`: another Lease of the name makes a shard.
    /// Then one where the ring has none does not matter: any client may create it.
    pub(in crate::leases) fn works_uncounted(&self, ring: &RingName, shard: &str, beside: bool) -> bool {
        self.uncounted(ring, shard).any(|(key, seen)| match self.is_beyond(key) {
            true => may_work(seen),
            false => !beside && may_work(seen) && instance(&seen.lease).is_none(),
        })
    }

    fn uncounted(&self, ring: &RingName, shard: &str) -> impl Iterator<Item = (&LeaseKey, &Observed)> {
        let is_of_name = move |seen: &Observed| seen.ring == *ring && seen.shard.as_str() == shard;
        self.leases.iter().filter(move |(key, seen)| is_of_name(seen) && !self.counts(key))
    }

    /// Which Leases of a ring make no shards although shards hold them, for people: one sentence a reason and namespace.
    pub(super) fn uncounted_faults(&self, ring: &RingName, now: Moment) -> Vec<String> {
        let is_asked = |namespace: &str| self.rights.as_ref().is_none_or(|rights| rights.has(namespace));
        let is_known = |key: &LeaseKey| self.names_its_namespaces(ring) || is_asked(&key.namespace);
        let held = self.leases.iter().filter(|(key, seen)| {
            let is_held = seen.ring == *ring && seen.owner == LeaseOwner::Shard && seen.facts.held_by_shard;
            is_held && !self.counts(key) && is_known(key)
        });
        let mut beyond = Vec::new();
        let mut outside: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, seen) in held {
            match self.is_beyond(key) {
                true => beyond.push(format!("{}/{}", key.namespace, key.name)),
                false => outside.entry(&key.namespace).or_default().push(seen.shard.to_string()),
            }
        }
        let wanted = self.holds.wanted(now).filter(|(of, _)| of == ring).map(|(_, shard)| shard);
        let keeping = wanted.filter(|shard| self.works_uncounted(ring, shard, false)).map(|shard| {
            format!("objects of shard '{shard}' are not taken over, as a shard of that name may work whose Lease makes no shard: end it, or delete its Lease")
        });
        let beyond = (!beyond.is_empty()).then(|| {
            format!(
                "a ring has at most {MAX_SHARDS} shards and {MAX_TOKENS} tokens, so the youngest Leases make no shards: {}: end some, or give them less weight",
                some(&beyond)
            )
        });
        let why = |namespace: &str| match self.names_its_namespaces(ring) {
            true => "as spec.shardNamespaces does not name it".to_owned(),
            false => format!(
                "as the sharder may not update Leases there (`ringside rbac {} --shards {namespace}` prints the rights)",
                ring.name()
            ),
        };
        let outside = outside.iter().map(|(namespace, names)| {
            format!("Leases in namespace '{namespace}' make no shards, {}: {}", why(namespace), some(names))
        });
        keeping.chain(beyond).chain(outside).collect()
    }
}

/// Some of these names.
fn some(names: &[String]) -> String {
    let mut text = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        text = format!("{text} and {} more", names.len() - NAMED);
    }
    text
}

#[cfg(test)]
mod tests;
