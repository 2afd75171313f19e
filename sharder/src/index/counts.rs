//! How many objects are where, kept with each change of a record.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::lone::{Lone, Why};
use super::record::{Flag, Place, Record, ResourceId, ShardValue, Slot, Uid};

/// What Kubernetes puts into each namespace. No controller is without it, so it is not counted.
const IN_EACH_NAMESPACE: [(&str, &str); 2] = [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

/// What an object is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// It follows no object of the ring.
    Lone,
    /// No shard has it.
    Unassigned,
    /// A shard has it.
    Owned(ShardValue),
    /// A shard has it, and is asked to release it.
    Draining(ShardValue),
}

impl Class {
    fn of(record: &Record) -> Self {
        match record.shard {
            _ if record.place() == Place::Lone => Self::Lone,
            ShardValue::NONE => Self::Unassigned,
            shard if record.is(Flag::Drained) => Self::Draining(shard),
            shard => Self::Owned(shard),
        }
    }
}

/// The counters.
pub(super) struct Counters {
    resources: Vec<OfResource>,
    began: Instant,
    /// The same moment, for people.
    began_at: SystemTime,
}

#[derive(Default)]
struct OfResource {
    is_main: bool,
    /// By shard value.
    owned: Vec<u32>,
    draining: Vec<u32>,
    unassigned: u32,
    /// Lone objects with labels of the ring, which have records.
    lone: u32,
    /// Lone objects without, which have none, by a part of the uid.
    unlabelled_lone: HashMap<u64, Unlabelled>,
    /// The part of the uid of one of them, and where it is.
    example: Option<(u64, String)>,
    /// Since when objects of a main resource are unassigned, in tenths of a second since the index began.
    since: HashMap<Slot, u32>,
}

/// A lone object without labels of the ring.
#[derive(Clone, Copy)]
struct Unlabelled {
    namespace: u32,
    why: Why,
    /// Whether the list under way has shown it.
    is_listed: bool,
}

impl Counters {
    /// None yet. `are_main`: of each resource, whether it is a main one.
    pub(super) fn new(are_main: impl Iterator<Item = bool>) -> Self {
        let resources = are_main.map(|is_main| OfResource { is_main, ..OfResource::default() }).collect();
        Self { resources, began: Instant::now(), began_at: SystemTime::now() }
    }

    fn of(&self, resource: ResourceId) -> &OfResource {
        &self.resources[usize::from(resource.0)]
    }

    fn of_mut(&mut self, resource: ResourceId) -> &mut OfResource {
        &mut self.resources[usize::from(resource.0)]
    }

    /// A record is not as before; none: it was not there, or is gone.
    pub(super) fn change(&mut self, slot: Slot, before: Option<&Record>, after: Option<&Record>) {
        let Some(resource) = before.or(after).map(Record::resource) else { return };
        let tenths = self.began.elapsed().as_millis() / 100;
        let counts = self.of_mut(resource);
        for (record, by) in [(before, -1), (after, 1)] {
            if let Some(record) = record {
                let count = counts.count(Class::of(record));
                *count = count.saturating_add_signed(by);
            }
        }
        let is_main = counts.is_main;
        let is_unassigned =
            |record: Option<&Record>| is_main && record.is_some_and(|record| Class::of(record) == Class::Unassigned);
        match (is_unassigned(before), is_unassigned(after)) {
            (false, true) => drop(counts.since.insert(slot, u32::try_from(tenths).unwrap_or(u32::MAX))),
            (true, false) => drop(counts.since.remove(&slot)),
            _ => {}
        }
    }

    /// An object without labels follows nothing of the ring; returns whether it is counted now and was not before.
    pub(super) fn add_lone(
        &mut self,
        resource: (ResourceId, &str),
        uid: Uid,
        (namespace, path, why): (u32, (&str, &str), Why),
    ) -> bool {
        if IN_EACH_NAMESPACE.contains(&(resource.1, path.1)) {
            return false;
        }
        let counts = self.of_mut(resource.0);
        counts.example.get_or_insert_with(|| (uid.hash(), format!("{}/{}", path.0, path.1)));
        counts.unlabelled_lone.insert(uid.hash(), Unlabelled { namespace, why, is_listed: true }).is_none()
    }

    /// It is gone, or follows something; returns the namespace where it was counted.
    pub(super) fn remove_lone(&mut self, resource: ResourceId, uid: Uid) -> Option<u32> {
        let counts = self.of_mut(resource);
        counts.example.take_if(|(of, _)| *of == uid.hash());
        counts.unlabelled_lone.remove(&uid.hash()).map(|lone| lone.namespace)
    }

    /// A list begins of these namespaces.
    pub(super) fn begin(&mut self, resource: ResourceId, is_listed: impl Fn(u32) -> bool) {
        let lone = self.of_mut(resource).unlabelled_lone.values_mut();
        lone.filter(|lone| is_listed(lone.namespace)).for_each(|lone| lone.is_listed = false);
    }

    /// It has ended; returns the namespaces of those that are gone.
    pub(super) fn end(&mut self, resource: ResourceId, is_listed: impl Fn(u32) -> bool) -> Vec<u32> {
        let counts = self.of_mut(resource);
        let is_gone = |lone: &Unlabelled| !lone.is_listed && is_listed(lone.namespace);
        let gone: Vec<_> = counts.unlabelled_lone.extract_if(|_, lone| is_gone(lone)).collect();
        counts.example.take_if(|(of, _)| gone.iter().any(|(uid, _)| uid == of));
        gone.into_iter().map(|(_, lone)| lone.namespace).collect()
    }

    /// How many objects a shard has, and how many of these it is asked to release.
    pub(super) fn of_shard(&self, resource: ResourceId, ShardValue(shard): ShardValue) -> OfShard {
        let count = |of: &Vec<u32>| of.get(usize::from(shard)).copied().unwrap_or_default();
        let counts = self.of(resource);
        OfShard { owned: count(&counts.owned), draining: count(&counts.draining) }
    }

    /// The shard values that any object has.
    pub(super) fn shards(&self, resource: ResourceId) -> impl Iterator<Item = ShardValue> {
        let counts = self.of(resource);
        let values = (0..=u16::MAX).take(counts.owned.len().max(counts.draining.len())).map(ShardValue);
        values.filter(move |value| self.of_shard(resource, *value) != OfShard::default())
    }

    pub(super) fn unassigned(&self, resource: ResourceId) -> u32 {
        self.of(resource).unassigned
    }

    /// For how long an object of a main resource has been known to be unassigned.
    pub(super) fn unassigned_for(&self, resource: ResourceId, slot: Slot) -> Option<Duration> {
        let since = self.of(resource).since.get(&slot)?;
        Some(self.began.elapsed().saturating_sub(Duration::from_millis(100) * *since))
    }

    /// Since when the first of the unassigned objects of a main resource has been known to be.
    pub(super) fn unassigned_since(&self, resource: ResourceId) -> Option<SystemTime> {
        let since = self.of(resource).since.values().min()?;
        Some(self.began_at + Duration::from_millis(100) * *since)
    }

    pub(super) fn lone(&self, resource: ResourceId) -> Lone {
        let counts = self.of(resource);
        let of = |why: Why| counts.unlabelled_lone.values().filter(|lone| lone.why == why).count();
        let (foreign, several) = (of(Why::Foreign), of(Why::Several));
        let uncontrolled = counts.unlabelled_lone.len() - foreign;
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let example = counts.example.as_ref().map(|(_, path)| path.clone());
        Lone {
            uncontrolled: count(uncontrolled) + u64::from(counts.lone),
            several: count(several),
            foreign: count(foreign),
            example,
        }
    }

    /// How many bytes all of that takes up, by and large.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let of = |counts: &OfResource| {
            let shards = (counts.owned.capacity() + counts.draining.capacity()) * 4;
            shards + counts.unlabelled_lone.capacity() * 18 + counts.since.capacity() * 10
        };
        self.resources.iter().map(of).sum()
    }
}

impl OfResource {
    fn count(&mut self, class: Class) -> &mut u32 {
        let (counts, shard) = match class {
            Class::Lone => return &mut self.lone,
            Class::Unassigned => return &mut self.unassigned,
            Class::Owned(shard) => (&mut self.owned, shard),
            Class::Draining(shard) => (&mut self.draining, shard),
        };
        let shard = usize::from(shard.0);
        if counts.len() <= shard {
            counts.resize(shard + 1, 0);
        }
        &mut counts[shard]
    }
}

/// How many objects of a resource a shard has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfShard {
    /// Those that it works on.
    pub(crate) owned: u32,
    /// Those that it is asked to release.
    pub(crate) draining: u32,
}
