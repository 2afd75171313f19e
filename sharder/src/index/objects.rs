//! What the index knows, for those who decide: a view under its lock.

use std::time::{Duration, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ringside_ring::{MAX_OWNER_DEPTH, RingLabels};
use tokio::time::Instant;

use super::{
    Kind,
    counts::OfShard,
    family,
    lone::Lone,
    record::{Flag, Place, Record, ResourceId, Slot, Uid},
    state::State,
};
use crate::{groups::GroupId, target::Target};

/// All objects as they are known at this moment.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a>(pub(super) &'a State);

/// The value of an object's shard label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shard<'a> {
    /// There is no such label.
    Unassigned,
    /// The label says this.
    Named(&'a str),
    /// There is a label, and what it says must be read from the API server.
    Unnamed,
}

/// What an object is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The head of a family, with the point of its key on the hash ring.
    Root { point: u64 },
    /// It follows its controller.
    Child { controller: Slot },
    /// It follows a controller that is not known (yet).
    Waiting,
    /// It follows no object of the ring. `certain`: its controller is of no resource that may be the ring's.
    Lone { certain: bool },
}

/// Whether the ring covers the namespace of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    Yes,
    /// The object is known for its labels, which have to be removed.
    No,
    /// The namespace is not known (yet).
    Unknown,
}

/// A drain under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    /// The value of the label.
    pub(crate) value: Box<str>,
    /// When this replica saw it first.
    pub(crate) since: Instant,
}

/// A member of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) slot: Slot,
    /// How many controllers are between it and the root, plus one.
    pub(crate) distance: usize,
}

/// An object.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    state: &'a State,
    record: &'a Record,
    pub(crate) slot: Slot,
}

impl<'a> Objects<'a> {
    pub(crate) fn get(self, slot: Slot) -> Option<Object<'a>> {
        Some(Object { state: self.0, record: self.0.table.get(slot)?, slot })
    }

    pub(crate) fn find(self, resource: ResourceId, uid: &str) -> Option<Object<'a>> {
        self.get(self.0.table.find(resource, Uid::parse(uid).0)?)
    }

    /// The head of the object's family: itself, where it is one. None where it is not known.
    pub(crate) fn root(self, slot: Slot) -> Option<Slot> {
        let mut next = slot;
        for _ in 0..=MAX_OWNER_DEPTH {
            match self.0.table.get(next)?.place() {
                Place::Root { .. } => return Some(next),
                Place::Child { parent, .. } => next = parent,
                Place::Waiting { .. } | Place::Lone => return None,
            }
        }
        None
    }

    /// All that follow an object, those furthest from it first.
    pub(crate) fn followers(self, slot: Slot) -> Vec<Member> {
        let mut found: Vec<Member> = Vec::new();
        let mut parents = vec![slot];
        for distance in 1..=MAX_OWNER_DEPTH {
            let children = parents.iter().filter_map(|parent| self.0.table.get(*parent));
            let children: Vec<_> = children.flat_map(|parent| family::of(&self.0.table, parent.children)).collect();
            found.extend(children.iter().map(|slot| Member { slot: *slot, distance }));
            parents = children;
        }
        found.reverse();
        found
    }

    /// The roots of a resource. A walk over all records: [`super::Index::walk`] holds the lock for a part of them at a time.
    #[cfg(test)]
    pub(crate) fn roots(self, resource: ResourceId) -> impl Iterator<Item = Object<'a>> {
        let all = self.0.table.iter().filter(move |(_, record)| record.resource() == resource);
        let all = all.map(move |(slot, record)| Object { state: self.0, record, slot });
        all.filter(|object| matches!(object.role(), Role::Root { .. }))
    }

    pub(super) fn in_chunk(self, chunk: usize) -> impl Iterator<Item = Object<'a>> {
        self.0.table.in_chunk(chunk).map(move |(slot, record)| Object { state: self.0, record, slot })
    }

    /// How many objects of a resource are known.
    #[cfg(test)]
    pub(crate) fn len(self, resource: ResourceId) -> usize {
        self.0.table.len(resource)
    }

    /// How many of a resource each shard has.
    pub(crate) fn by_shard(self, resource: ResourceId) -> impl Iterator<Item = (Shard<'a>, OfShard)> {
        let counters = &self.0.counters;
        counters.shards(resource).map(move |value| (self.0.shard(value), counters.of_shard(resource, value)))
    }

    /// How many of a resource a shard has.
    #[cfg(test)]
    pub(crate) fn of_shard(self, resource: ResourceId, shard: &str) -> OfShard {
        let value = self.0.shards.find(shard).and_then(|value| u16::try_from(value).ok());
        value.map(|value| self.0.counters.of_shard(resource, super::record::ShardValue(value))).unwrap_or_default()
    }

    /// How many of a resource no shard has.
    pub(crate) fn unassigned(self, resource: ResourceId) -> u32 {
        self.0.counters.unassigned(resource)
    }

    /// For how long a root has been known to be unassigned.
    pub(crate) fn unassigned_for(self, slot: Slot) -> Option<Duration> {
        self.0.counters.unassigned_for(self.0.table.get(slot)?.resource(), slot)
    }

    /// Since when the first of the unassigned objects of a main resource has been known to be.
    pub(crate) fn unassigned_since(self, resource: ResourceId) -> Option<SystemTime> {
        self.0.counters.unassigned_since(resource)
    }

    /// The objects of a controlled resource that follow no object of the ring.
    pub(crate) fn lone(self, resource: ResourceId) -> Lone {
        self.0.counters.lone(resource)
    }

    /// For how many unknown controllers children wait.
    #[cfg(test)]
    pub(crate) fn awaited_controllers(self) -> usize {
        self.0.families.awaited_controllers()
    }

    /// The drains under way, by object.
    #[cfg(test)]
    pub(crate) fn drains(self) -> impl Iterator<Item = (Slot, &'a Drain)> {
        self.0.drains.iter().map(|(slot, drain)| (*slot, drain))
    }

    /// The resources, by [`ResourceId`].
    pub(crate) fn kinds(self) -> &'a [Kind] {
        &self.0.kinds
    }

    pub(crate) fn labels(self) -> &'a RingLabels {
        &self.0.labels
    }

    /// The namespaces of all objects, and whether each is selected, as it was last said.
    pub(crate) fn selections(self) -> impl Iterator<Item = (&'a str, Option<bool>)> {
        let namespaces = &self.0.namespaces;
        let known = namespaces.iter().filter_map(|name| Some((name, namespaces.find(name)?)));
        known.map(|(name, number)| (name, namespaces.is_selected(number)))
    }

    /// The namespaces of all objects.
    pub(crate) fn namespaces(self) -> impl Iterator<Item = &'a str> {
        self.0.namespaces.iter()
    }
}

impl<'a> Object<'a> {
    pub(crate) fn resource(self) -> ResourceId {
        self.record.resource()
    }

    pub(crate) fn name(self) -> &'a str {
        self.state.names.get(self.record.name)
    }

    /// Empty for an object without namespace.
    pub(crate) fn namespace(self) -> &'a str {
        if self.state.is_namespaced(self.resource()) { self.selected_by() } else { "" }
    }

    /// The namespace by whose labels it is selected: its own, or the Namespace that it is.
    pub(crate) fn selected_by(self) -> &'a str {
        self.state.namespaces.get(self.record.namespace())
    }

    /// The uid; none where it is no UUID, so that it must be read.
    pub(crate) fn uid(self) -> Option<String> {
        self.record.is(Flag::Uuid).then(|| self.record.uid.to_string())
    }

    pub(crate) fn version(self) -> u64 {
        self.record.version
    }

    pub(crate) fn shard(self) -> Shard<'a> {
        self.state.shard(self.record.shard)
    }

    pub(crate) fn drain(self) -> Option<&'a Drain> {
        self.state.drains.get(&self.slot)
    }

    /// The group of shards that it is for.
    pub(crate) fn group(self) -> GroupId {
        GroupId(self.record.group())
    }

    pub(crate) fn role(self) -> Role {
        match self.record.place() {
            Place::Root { point } => Role::Root { point },
            Place::Child { parent, .. } => Role::Child { controller: parent },
            Place::Waiting { .. } => Role::Waiting,
            Place::Lone => Role::Lone { certain: !self.record.is(Flag::ControllerUnknown) },
        }
    }

    pub(crate) fn selected(self) -> Selected {
        match self.state.namespaces.is_selected(self.record.namespace()) {
            Some(true) => Selected::Yes,
            Some(false) => Selected::No,
            None => Selected::Unknown,
        }
    }

    /// Whether a shard has it, and is not asked to release it.
    pub(crate) fn is_with(self, shard: &str) -> bool {
        self.shard() == Shard::Named(shard) && !self.record.is(Flag::Drained)
    }

    pub(crate) fn is_labelled(self) -> bool {
        self.shard() != Shard::Unassigned || self.record.is(Flag::Drained)
    }

    /// The view that it is a part of.
    pub(crate) fn objects(self) -> Objects<'a> {
        Objects(self.state)
    }

    /// The uid of its controller, as a reference; `None` where that must be read.
    fn controller(self) -> Option<Option<OwnerReference>> {
        let uid = match self.record.place() {
            Place::Root { .. } | Place::Lone => return Some(None),
            Place::Child { parent, .. } => {
                let parent = self.state.table.get(parent)?;
                parent.is(Flag::Uuid).then_some(parent.uid)?
            }
            Place::Waiting { group, .. } => self.state.families.awaited(group)?.0,
        };
        Some(Some(OwnerReference { uid: uid.to_string(), ..OwnerReference::default() }))
    }

    /// What a write of it relies on. None where a part of that must be read from the API server.
    pub(crate) fn target(self) -> Option<Target> {
        let shard = match self.shard() {
            Shard::Unassigned => None,
            Shard::Named(shard) => Some(shard.to_owned()),
            Shard::Unnamed => return None,
        };
        Some(Target {
            uid: self.uid()?,
            resource_version: self.version().to_string(),
            namespace: Some(self.namespace()).filter(|namespace| !namespace.is_empty()).map(str::to_owned),
            name: self.name().to_owned(),
            shard,
            drain: self.drain().map(|drain| drain.value.to_string()),
            has_labels: self.record.is(Flag::HasLabels),
            owners: self.controller()?.into_iter().collect(),
        })
    }
}
