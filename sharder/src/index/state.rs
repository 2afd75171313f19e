//! What the index knows, and how an object that was shown changes it.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ringside_ring::{
    RingLabels,
    partition::{Controls as _, Owner, owner_of},
};
use tokio::time::Instant;

use super::{
    Changes, Kind, Selection,
    counts::Counters,
    family::{self, Controller, Families},
    lone::Why,
    names::{Interner, Names},
    namespaces::Namespaces,
    objects::{Drain, Objects, Shard},
    record::{Flag, Place, Record, ResourceId, ShardValue, Slot, Uid},
    table::Table,
};
use crate::groups::Groups;

const MAX_SHARDS: u32 = u16::MAX as u32 - 1;

/// All that is known.
pub(super) struct State {
    pub(super) kinds: Vec<Kind>,
    pub(super) labels: RingLabels,
    groups: Groups,
    pub(super) table: Table,
    pub(super) names: Names,
    pub(super) families: Families,
    pub(super) counters: Counters,
    pub(super) shards: Interner,
    pub(super) namespaces: Namespaces,
    pub(super) drains: HashMap<Slot, Drain>,
}

/// What an object follows, by what it says itself.
#[derive(Clone, Copy)]
enum Follows {
    Itself,
    Controller { resource: ResourceId, uid: Uid },
    Nothing { may_be_served_later: bool },
}

impl State {
    pub(super) fn new(kinds: Vec<Kind>, labels: RingLabels, groups: Groups, selection: Selection) -> Self {
        Self {
            table: Table::new(kinds.len()),
            names: Names::default(),
            families: Families::default(),
            counters: Counters::new(kinds.iter().map(|kind| kind.is_root)),
            shards: Interner::new(MAX_SHARDS),
            namespaces: Namespaces::new(selection),
            drains: HashMap::new(),
            kinds,
            labels,
            groups,
        }
    }

    pub(super) fn shard(&self, value: ShardValue) -> Shard<'_> {
        match value {
            ShardValue::NONE => Shard::Unassigned,
            ShardValue::OTHER => Shard::Unnamed,
            ShardValue(value) => Shard::Named(self.shards.get(u32::from(value))),
        }
    }

    /// Takes in an object that was shown; returns whether it is the ring's.
    pub(super) fn apply(&mut self, resource: ResourceId, seen: &ObjectMeta, changes: &mut Changes) -> bool {
        let Some((uid, is_uuid)) = seen.uid.as_deref().map(Uid::parse) else { return false };
        let version =
            seen.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok()).unwrap_or_default();
        let known = self.table.find(resource, uid);
        if let Some(slot) = known {
            let record = self.table.at_mut(slot);
            record.set(Flag::Listed, true);
            // A list, or a watch that comes after an answer, may show an older state.
            if version != 0 && version <= record.version {
                return true;
            }
        }
        let namespace = self.selected_by(resource, seen);
        let ownership = self.labels.ownership(seen.labels.as_ref());
        let (shard, drain) = (ownership.shard.map(str::to_owned), ownership.drain);
        let is_labelled = shard.is_some() || drain.is_some();
        let owner = self.owner(resource, known, seen, shard.as_deref());
        let follows = self.follows(resource, owner.one());
        let is_lone = matches!(follows, Follows::Nothing { .. });
        let may_be_served_later = matches!(follows, Follows::Nothing { may_be_served_later: true });
        let is_excluded = self.namespaces.excludes(namespace);
        if !is_labelled && (is_lone || is_excluded) {
            if let Some(slot) = known {
                self.remove(slot, changes);
            }
            let counts = is_lone && !is_excluded && !may_be_served_later;
            self.count_lone(resource, uid, seen, counts.then(|| why(owner)));
            return false;
        }
        self.forget_lone(resource, uid);
        let slot = known.unwrap_or_else(|| self.insert(resource, uid, seen));
        let before = *self.table.at(slot);
        self.place(slot, follows, seen, changes);
        let shard = shard.map_or(ShardValue::NONE, |shard| self.acquire_shard(&shard));
        self.release_shard(before.shard);
        let record = self.table.at_mut(slot);
        (record.version, record.shard) = (version, shard);
        record.set(Flag::Uuid, is_uuid);
        record.set(Flag::Listed, true);
        record.set(Flag::HasLabels, seen.labels.is_some());
        record.set(Flag::Drained, drain.is_some());
        record.set(Flag::ControllerUnknown, may_be_served_later);
        record.set_group(self.groups.of(seen.labels.as_ref()).0);
        let after = *record;
        match drain {
            None => drop(self.drains.remove(&slot)),
            Some(value) if self.drains.get(&slot).is_some_and(|known| *known.value == *value) => {}
            Some(value) => drop(self.drains.insert(slot, Drain { value: value.into(), since: Instant::now() })),
        }
        self.counters.change(slot, known.map(|_| &before), Some(&after));
        self.note_shown(slot, changes);
        true
    }

    /// What an object names as what it follows. Of several it keeps the one that it followed, or the first that is on its shard: an
    /// object that is worked on stays where it is.
    fn owner<'a>(
        &self,
        resource: ResourceId,
        known: Option<Slot>,
        seen: &'a ObjectMeta,
        shard: Option<&str>,
    ) -> Owner<&'a OwnerReference> {
        let references = seen.owner_references.as_deref().unwrap_or_default();
        let of_ring = |owner: &OwnerReference| {
            let mut kinds = self.kinds.iter();
            kinds.any(|kind| kind.resource.is_named_by(owner) || kind.may_be_followed(owner))
        };
        let owner = owner_of(references, of_ring);
        let Some(shard) = shard.filter(|_| owner == Owner::Several) else { return owner };
        let followed = known.and_then(|slot| match self.table.at(slot).place() {
            Place::Child { parent, .. } => Some(self.table.at(parent).uid),
            Place::Waiting { group, .. } => self.families.awaited(group).map(|(uid, _)| uid),
            Place::Root { .. } | Place::Lone => None,
        });
        let is_followed = |owner: &&OwnerReference| followed == Some(Uid::parse(&owner.uid).0);
        let is_beside = |owner: &&OwnerReference| {
            let above = &self.kinds[usize::from(resource.0)].controllers;
            let mut found = above.iter().filter_map(|id| self.table.find(*id, Uid::parse(&owner.uid).0));
            found.any(|slot| self.shard(self.table.at(slot).shard) == Shard::Named(shard))
        };
        let owners: Vec<_> = references.iter().filter(|owner| of_ring(owner)).collect();
        let all = || owners.iter().copied();
        let kept = all().find(is_followed).or_else(|| all().find(is_beside));
        let (namespace, name) = (seen.namespace.as_deref(), seen.name.as_deref());
        let named: Vec<_> = owners.iter().map(|owner| format!("{} {}", owner.kind, owner.name)).collect();
        tracing::warn!(
            namespace,
            name,
            owners = named.join(", "),
            follows = kept.map(|it| &it.name),
            "an object has several owners of the ring, and none controls it: set `controller: true` on one of them"
        );
        kept.map_or(Owner::Several, Owner::One)
    }

    fn follows(&self, resource: ResourceId, controller: Option<&OwnerReference>) -> Follows {
        let kind = &self.kinds[usize::from(resource.0)];
        let is_named = |id: &&ResourceId| {
            controller.is_some_and(|controller| self.kinds[usize::from(id.0)].resource.is_named_by(controller))
        };
        match (kind.controllers.iter().find(is_named), controller) {
            (Some(id), Some(controller)) => Follows::Controller { resource: *id, uid: Uid::parse(&controller.uid).0 },
            (_, controller) => {
                let may_be_served_later = controller.is_some_and(|controller| kind.may_be_followed(controller));
                match kind.is_root && !(may_be_served_later && kind.is_controlled) {
                    true => Follows::Itself,
                    false => Follows::Nothing { may_be_served_later },
                }
            }
        }
    }

    /// The namespace by whose labels an object is selected; empty for none.
    fn selected_by<'a>(&self, resource: ResourceId, seen: &'a ObjectMeta) -> &'a str {
        let kind = &self.kinds[usize::from(resource.0)].resource;
        kind.selected_by(seen.namespace.as_deref(), seen.name.as_deref()).unwrap_or_default()
    }

    fn insert(&mut self, resource: ResourceId, uid: Uid, seen: &ObjectMeta) -> Slot {
        let namespace = self.selected_by(resource, seen);
        let namespace = self.namespaces.acquire(namespace);
        let name = self.names.add(seen.name.as_deref().unwrap_or_default());
        let slot = self.table.insert(Record::new(uid, name, namespace, resource));
        let known_as = self.known_as(slot);
        self.families.adopt(&mut self.table, slot, known_as);
        slot
    }

    /// What children of an object name as their controller.
    fn known_as(&self, slot: Slot) -> Controller {
        let record = self.table.at(slot);
        (record.uid, if self.is_namespaced(record.resource()) { record.namespace() } else { 0 })
    }

    pub(super) fn is_namespaced(&self, resource: ResourceId) -> bool {
        self.kinds[usize::from(resource.0)].resource.namespaced
    }

    /// Puts an object where it belongs.
    fn place(&mut self, slot: Slot, follows: Follows, seen: &ObjectMeta, changes: &mut Changes) {
        let (now, kind) = (self.table.at(slot).place(), &self.kinds[usize::from(self.table.at(slot).resource().0)]);
        let point = || kind.resource.key(seen, &kind.placed_by).point();
        // An object with namespace is followed there alone, as Kubernetes has it: who may make objects elsewhere has no say.
        let named = |resource: ResourceId, uid| {
            (uid, if self.is_namespaced(resource) { self.table.at(slot).namespace() } else { 0 })
        };
        let stays = match (now, follows) {
            (Place::Root { point: known }, Follows::Itself) => !kind.placed_by.may_change() || known == point(),
            (Place::Lone, Follows::Nothing { .. }) => true,
            (Place::Child { parent, .. }, Follows::Controller { uid, .. }) => self.table.at(parent).uid == uid,
            (Place::Waiting { group, .. }, Follows::Controller { resource, uid }) => {
                self.families.awaited(group) == Some(named(resource, uid))
            }
            _ => false,
        };
        if stays {
            return;
        }
        let controller = match follows {
            Follows::Controller { resource, uid } => Some((resource, named(resource, uid))),
            Follows::Itself | Follows::Nothing { .. } => None,
        };
        let point = matches!(follows, Follows::Itself).then(point);
        self.note(slot, changes);
        self.families.unlink(&mut self.table, slot);
        if let Some(point) = point {
            self.table.at_mut(slot).set_place(Place::Root { point });
        }
        if let Some((resource, controller)) = controller {
            match self.table.find(resource, controller.0).filter(|parent| self.known_as(*parent) == controller) {
                Some(parent) => Families::link(&mut self.table, slot, parent),
                None => self.families.wait(&mut self.table, slot, controller),
            }
        }
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, slot: Slot, changes: &mut Changes) {
        let Some(record) = self.table.get(slot).copied() else { return };
        self.note(slot, changes);
        self.families.unlink(&mut self.table, slot);
        // What they are by now may be another matter.
        changes.changed.extend(family::of(&self.table, record.children));
        let known_as = self.known_as(slot);
        self.families.orphan(&mut self.table, slot, known_as);
        self.counters.change(slot, Some(&record), None);
        self.drains.remove(&slot);
        self.names.remove(record.name);
        self.release_shard(record.shard);
        self.namespaces.release(record.namespace());
        self.table.remove(slot);
        let uid = record.is(Flag::Uuid).then(|| record.uid.to_string());
        changes.removed.push((slot, uid));
    }

    /// Notes that the object's family has changed.
    fn note(&self, slot: Slot, changes: &mut Changes) {
        changes.changed.push(Objects(self).root(slot).unwrap_or(slot));
    }

    /// Notes what there may be to do about an object that was shown: for one that follows another, only where they are apart.
    fn note_shown(&self, slot: Slot, changes: &mut Changes) {
        let objects = Objects(self);
        let root = objects.root(slot);
        if root.is_some_and(|root| root != slot) && self.kinds[usize::from(self.table.at(slot).resource().0)].is_root {
            // It may be drained by itself.
            changes.changed.push(slot);
        }
        if let Some(head) = root.filter(|root| *root != slot).and_then(|root| self.table.get(root)) {
            let is_apart = |slot| {
                let of = self.table.get(slot);
                of.is_some_and(|of| of.shard != head.shard || of.is(Flag::Drained))
            };
            if !is_apart(slot) && !objects.followers(slot).iter().any(|member| is_apart(member.slot)) {
                return;
            }
        }
        changes.changed.push(root.unwrap_or(slot));
    }

    fn count_lone(&mut self, resource: ResourceId, uid: Uid, seen: &ObjectMeta, why: Option<Why>) {
        let Some(why) = why else { return self.forget_lone(resource, uid) };
        let path = (seen.namespace.as_deref().unwrap_or_default(), seen.name.as_deref().unwrap_or_default());
        let namespace = self.selected_by(resource, seen);
        let namespace = self.namespaces.acquire(namespace);
        let plural = self.kinds[usize::from(resource.0)].resource.id.resource.clone();
        if !self.counters.add_lone((resource, &plural), uid, (namespace, path, why)) {
            self.namespaces.release(namespace);
        }
    }

    pub(super) fn forget_lone(&mut self, resource: ResourceId, uid: Uid) {
        if let Some(namespace) = self.counters.remove_lone(resource, uid) {
            self.namespaces.release(namespace);
        }
    }

    fn acquire_shard(&mut self, shard: &str) -> ShardValue {
        let value = self.shards.acquire(shard).and_then(|value| u16::try_from(value).ok());
        value.map_or(ShardValue::OTHER, ShardValue)
    }

    fn release_shard(&mut self, shard: ShardValue) {
        if shard != ShardValue::OTHER {
            self.shards.release(u32::from(shard.0));
        }
    }
}

/// Why an object that names this follows nothing of the ring.
fn why(owner: Owner<&OwnerReference>) -> Why {
    match owner {
        Owner::One(owner) if owner.controls() => Why::Foreign,
        Owner::None | Owner::One(_) => Why::Unowned,
        Owner::Several => Why::Several,
    }
}
