//! How many objects are where, kept with each change of a record.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

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
}

#[derive(Default)]
struct OfResource {
    /// By shard value.
    owned: Vec<u32>,
    draining: Vec<u32>,
    unassigned: u32,
    /// Lone objects with labels of the ring, which have records.
    lone: u32,
    /// Lone objects without, which have none: a part of the uid, the namespace, and whether the list under way has shown it.
    unlabelled_lone: HashMap<u64, (u32, bool)>,
    /// The part of the uid of one of them, and where it is.
    example: Option<(u64, String)>,
    /// Since when roots are unassigned, in tenths of a second since the index began.
    since: HashMap<Slot, u32>,
}

impl Counters {
    pub(super) fn new(resources: usize) -> Self {
        Self { resources: (0..resources).map(|_| OfResource::default()).collect(), began: Instant::now() }
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
        let is_unassigned = |record: Option<&Record>| {
            record
                .is_some_and(|record| matches!(record.place(), Place::Root { .. }) && record.shard == ShardValue::NONE)
        };
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
        (namespace, path): (u32, (&str, &str)),
    ) -> bool {
        if IN_EACH_NAMESPACE.contains(&(resource.1, path.1)) {
            return false;
        }
        let counts = self.of_mut(resource.0);
        counts.example.get_or_insert_with(|| (uid.hash(), format!("{}/{}", path.0, path.1)));
        counts.unlabelled_lone.insert(uid.hash(), (namespace, true)).is_none()
    }

    /// It is gone, or follows something; returns the namespace where it was counted.
    pub(super) fn remove_lone(&mut self, resource: ResourceId, uid: Uid) -> Option<u32> {
        let counts = self.of_mut(resource);
        counts.example.take_if(|(of, _)| *of == uid.hash());
        counts.unlabelled_lone.remove(&uid.hash()).map(|(namespace, _)| namespace)
    }

    /// A list begins of these namespaces.
    pub(super) fn begin(&mut self, resource: ResourceId, is_listed: impl Fn(u32) -> bool) {
        let lone = self.of_mut(resource).unlabelled_lone.values_mut();
        lone.filter(|(namespace, _)| is_listed(*namespace)).for_each(|(_, listed)| *listed = false);
    }

    /// It has ended; returns the namespaces of those that are gone.
    pub(super) fn end(&mut self, resource: ResourceId, is_listed: impl Fn(u32) -> bool) -> Vec<u32> {
        let counts = self.of_mut(resource);
        let is_gone = |(namespace, listed): (u32, bool)| !listed && is_listed(namespace);
        let gone: Vec<_> = counts.unlabelled_lone.extract_if(|_, lone| is_gone(*lone)).collect();
        counts.example.take_if(|(of, _)| gone.iter().any(|(uid, _)| uid == of));
        gone.into_iter().map(|(_, (namespace, _))| namespace).collect()
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

    /// For how long the first of the unassigned roots has been known to be.
    pub(super) fn longest_unassigned(&self, resource: ResourceId) -> Option<Duration> {
        let since = self.of(resource).since.values().min()?;
        Some(self.began.elapsed().saturating_sub(Duration::from_millis(100) * *since))
    }

    pub(super) fn lone(&self, resource: ResourceId) -> Lone {
        let counts = self.of(resource);
        let unlabelled = u32::try_from(counts.unlabelled_lone.len()).unwrap_or(u32::MAX);
        let example = counts.example.as_ref().map(|(_, path)| path.clone());
        Lone { objects: counts.lone.saturating_add(unlabelled), example }
    }

    /// How many bytes all of that takes up, by and large.
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

/// The objects of a controlled resource that follow no object of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lone {
    pub(crate) objects: u32,
    /// Namespace and name of one of them.
    pub(crate) example: Option<String>,
}
