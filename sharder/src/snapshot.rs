//! What is known of each ring, as one immutable snapshot: its spec, its resources, its shards and their hash ring.
//!
//! Each decision about objects is made on one snapshot, so that all its parts fit together. A new one is made when
//! something changes, not a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::{Resource as _, core::Selector};
use ringside_ring::{
    HashRing, Members, PlacedBy, Ring, RingLabels, RingName, ShardName,
    cluster_ring::{ClusterRingSpec, ClusterRingStatus, GroupResource},
    decide::{Action, Covered, Family, Holder, Object, View, decide},
    partition::{Owner, group_of, owner_of},
};
use tokio::time::Instant;

mod mains;

pub(crate) use mains::{Above, Main};
use mains::{departing, mains};

use crate::{
    belonging::belonging_labels,
    groups::{self, GroupId, Groups},
    namespaces::selector,
    resources::{Catalog, Resource, Unusable},
};

/// All rings.
pub(crate) type Snapshots = BTreeMap<RingName, Arc<Snapshot>>;

/// What says where an object belongs: the point of its key on the hash ring, and the group of shards that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: u64,
    pub(crate) group: GroupId,
}

/// One ring.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) ring: RingName,
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) labels: RingLabels,
    pub(crate) spec: ClusterRingSpec,
    pub(crate) mains: Vec<Main>,
    /// All resources that the spec names, also those that are not served (yet).
    pub(crate) named: Vec<GroupResource>,
    /// Those of them of which is not known what they are: not served, or not looked up yet.
    pub(crate) unresolved: Vec<GroupResource>,
    /// Those that are not served: they have no objects.
    pub(crate) unserved: Vec<GroupResource>,
    pub(crate) namespace_selector: LabelSelector,
    /// The same, ready to be asked.
    pub(crate) namespaces: Selector,
    /// What is known of the resources that the spec names no more, and whose objects may have labels.
    pub(crate) departing: BTreeMap<GroupResource, Result<Arc<Resource>, Unusable>>,
    /// Whether resources of the spec are still being looked up: too early to say how the ring is.
    pub(crate) pending: bool,
    /// Why parts of the spec can't be carried out.
    pub(crate) problems: Vec<String>,
    pub(crate) members: Members,
    /// The same shards, as decisions about objects need them, by the group that an object is for.
    pub(crate) views: Vec<View>,
    pub(crate) groups: Groups,
    /// Main resources whose objects are assigned to no shard yet. The API server's fence is about to be around them, or
    /// not all shards know them.
    pub(crate) withheld: BTreeSet<GroupResource>,
    /// Those of them that are new in the ring while not all shards know that, and since when.
    pub(crate) unheard: BTreeMap<GroupResource, Instant>,
    /// The status as it is stored.
    pub(crate) status: Option<ClusterRingStatus>,
}

/// How long shards may take to read what is new in the ring before that is told: a renewal or two of their Leases.
const LONG_UNHEARD: Duration = Duration::from_secs(30);

impl Snapshot {
    /// The metadata of an object that belongs to the ring: its name, its label, and the ring as its owner.
    pub(crate) fn belonging(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            labels: Some(belonging_labels()),
            // The garbage collector removes it together with its ring.
            owner_references: Some(vec![OwnerReference {
                api_version: Ring::api_version(&self.ring.kind()).into_owned(),
                kind: self.ring.kind().to_string(),
                name: self.ring.name().to_owned(),
                uid: self.uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        }
    }

    /// Puts together what is known of a ring. `previous` lends its hash ring when the available shards are the same.
    pub(crate) fn build(
        name: RingName,
        ring: &Ring,
        catalog: &Catalog,
        members: Members,
        previous: Option<&Self>,
        tokens_per_shard: NonZeroU32,
    ) -> Self {
        let mut problems = Vec::new();
        let namespace_selector = ring.spec.effective_namespace_selector();
        let namespaces = selector::parse(&namespace_selector).unwrap_or_else(|error| {
            problems.push(format!("namespaceSelector can't be used: {error}"));
            select_nothing()
        });
        let groups = Groups::parse(&ring.spec.groups).unwrap_or_else(|problem| {
            problems.push(format!("{problem}, so the objects are left where they are"));
            Groups::default()
        });
        let mains = mains(ring, catalog, &mut problems);
        problems.extend(groups::faults(&ring.spec.groups, &members));
        let unresolved =
            ring.spec.all_resources().into_iter().filter(|name| !matches!(catalog.get(name), Some(Ok(_)))).collect();
        let weighted = || members.weighted().map(|(shard, weight)| (shard.clone(), weight));
        let is_unserved = |name: &GroupResource| matches!(catalog.get(name), Some(Err(Unusable::NotServed)));
        let hash_ring = match previous.filter(|previous| previous.hash_ring().is_of(weighted(), tokens_per_shard)) {
            Some(previous) => previous.hash_ring().clone(),
            None => Arc::new(HashRing::weighted(weighted(), tokens_per_shard)),
        };
        Self {
            labels: RingLabels::of(&name),
            uid: ring.metadata.uid.clone().unwrap_or_default(),
            generation: ring.metadata.generation.unwrap_or_default(),
            pending: ring.spec.all_resources().iter().any(|name| !catalog.contains_key(name)),
            named: ring.spec.all_resources().into_iter().collect(),
            unserved: ring.spec.all_resources().into_iter().filter(is_unserved).collect(),
            unresolved,
            departing: departing(ring, catalog),
            status: ring.status.clone(),
            spec: ring.spec.clone(),
            withheld: BTreeSet::new(),
            unheard: BTreeMap::new(),
            ring: name,
            mains,
            namespace_selector,
            namespaces,
            problems,
            views: groups
                .members(&members)
                .iter()
                .map(|of| View::new(of, hash_ring.clone()).paused(ring.spec.paused))
                .collect(),
            groups,
            members,
        }
    }

    /// The hash ring of the available shards.
    pub(crate) fn hash_ring(&self) -> &Arc<HashRing> {
        self.views[0].ring()
    }

    /// The shards as decisions about objects of this group need them.
    pub(crate) fn view(&self, group: GroupId) -> &View {
        self.views.get(usize::from(group.0)).unwrap_or(&self.views[0])
    }

    /// What a shard label means.
    pub(crate) fn holder(&self, label: Option<&str>) -> Holder {
        self.views[0].holder(label)
    }

    /// The ring, for Events about it.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(Ring::api_version(&self.ring.kind()).into_owned()),
            kind: Some(self.ring.kind().to_string()),
            name: Some(self.ring.name().to_owned()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// Returns the ring with these main resources withheld: their objects are assigned to no shard yet.
    pub(crate) fn withholding(self, withheld: BTreeSet<GroupResource>) -> Self {
        Self { withheld, ..self }
    }

    /// The same ring, which was `before`. `all_know`: every shard knows what it names. A proxy that does not know a main resource
    /// shows all of its objects, so they are assigned to no shard meanwhile. What was distributed before goes on.
    pub(crate) fn after(mut self, before: Option<&Self>, all_know: bool, now: Instant) -> Self {
        let Some(before) = before.filter(|_| !all_know) else { return self };
        let since = |main: &GroupResource| {
            before.unheard.get(main).copied().or_else(|| (!before.named.contains(main)).then_some(now))
        };
        let mains = self.spec.families().into_keys();
        self.unheard = mains.filter_map(|main| since(&main).map(|since| (main, since))).collect();
        self.withheld.extend(self.unheard.keys().cloned());
        self
    }

    /// The main resources that not all shards know of since long ago.
    pub(crate) fn long_unheard(&self, now: Instant) -> Vec<String> {
        let long = self.unheard.iter().filter(|(_, since)| now.duration_since(**since) >= LONG_UNHEARD);
        long.map(|(main, _)| main.to_string()).collect()
    }

    /// Whether objects of the resource, and what they control, are given to no shard yet. Where the ring does not say how they are
    /// placed, they stay where they are.
    pub(crate) fn withholds(&self, main: &Main) -> bool {
        let is_placed =
            !matches!(main.placed_by, PlacedBy::Unusable(_)) && self.groups.is_empty() == self.spec.groups.is_empty();
        !is_placed || self.withheld.contains(&main.resource.id)
    }

    /// Whether no shard takes part, so that no object can be assigned.
    pub(crate) fn is_vacant(&self) -> bool {
        self.hash_ring().shards().is_empty()
    }

    /// The main resource of this name.
    pub(crate) fn main(&self, name: &GroupResource) -> Option<&Main> {
        self.mains.iter().find(|main| main.resource.id == *name)
    }

    /// The resource of this name, a main or a controlled one.
    pub(crate) fn resource(&self, name: &GroupResource) -> Option<&Arc<Resource>> {
        let mut all = self.mains.iter().flat_map(|main| std::iter::once(&main.resource).chain(&main.controlled));
        all.find(|resource| resource.id == *name)
    }

    /// What an object with these owner references follows, if its resource is a controlled one.
    pub(crate) fn owner<'a>(&self, references: &'a [OwnerReference]) -> Owner<&'a OwnerReference> {
        owner_of(references, |owner| self.is_of_ring(owner))
    }

    /// Whether an owner is of a kind of the ring, or may be: what is not served now may turn out to be.
    fn is_of_ring(&self, owner: &OwnerReference) -> bool {
        let mut all = self.mains.iter().flat_map(|main| main.controlled.iter().chain([&main.resource]));
        all.any(|resource| resource.is_named_by(owner)) || self.may_be_above(owner)
    }

    /// What stands above a `child` that `controller` controls; none when that is not of the ring.
    pub(crate) fn above(&self, child: &GroupResource, controller: &OwnerReference) -> Option<Above<'_>> {
        let above = || self.mains.iter().filter_map(|main| main.above(child, controller));
        above().find(|above| matches!(above, Above::Owner(_))).or_else(|| above().next())
    }

    /// Whether `controller` may be of a resource of the ring that is not served, or could not be looked up. An API server that
    /// starts, or one behind it that is away, serves a group a little later.
    pub(crate) fn may_be_above(&self, controller: &OwnerReference) -> bool {
        self.unresolved.iter().any(|resource| resource.group == group_of(&controller.api_version))
    }

    /// Whether an object with this controller follows another one of the ring, or may: its owner's resource may not be served now.
    pub(crate) fn follows(&self, resource: &GroupResource, controller: &OwnerReference) -> bool {
        self.above(resource, controller).is_some() || self.spec.is_controlled(resource) && self.may_be_above(controller)
    }

    /// Whether both are of one ring with one spec.
    pub(crate) fn asks_the_same(&self, other: &Self) -> bool {
        (&self.uid, self.generation) == (&other.uid, other.generation)
    }

    /// Whether the same objects are to be distributed in both.
    pub(crate) fn distributes_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.mains == other.mains
            && self.namespace_selector == other.namespace_selector
            && self.spec.groups == other.spec.groups
    }

    /// Whether they are to be distributed among the same shards, and as evenly.
    pub(crate) fn among_the_same(&self, other: &Self) -> bool {
        self.hash_ring().places_like(other.hash_ring())
    }

    /// Whether the same of the shards get what has no owner.
    pub(crate) fn receives_alike(&self, other: &Self) -> bool {
        self.receivers().eq(other.receivers())
    }

    /// The shards that get what has no owner.
    fn receivers(&self) -> impl Iterator<Item = &ShardName> {
        self.members.available().filter(|shard| self.members.may_receive(shard.as_str()))
    }

    /// Whether name and namespace alone say where an object of a main resource belongs.
    pub(crate) fn is_placed_by_name(&self, main: &Main) -> bool {
        !main.placed_by.may_change() && self.groups.is_empty()
    }

    /// What says where an object of a main resource belongs.
    pub(crate) fn place_of(&self, main: &Main, object: &ObjectMeta) -> Place {
        Place { key: main.resource.key(object, &main.placed_by).point(), group: self.groups.of(object.labels.as_ref()) }
    }

    /// The shard that an object without owner is given to.
    pub(crate) fn receiver(&self, place: Place) -> Option<&ShardName> {
        self.hash_ring().name(self.view(place.group).receiver(place.key)?)
    }

    /// The shard that a new object of a main resource is given to; none while it waits for one.
    pub(crate) fn shard_for_new(&self, main: &Main, place: Place) -> Option<ShardName> {
        let covered = if self.withholds(main) { Covered::Withheld } else { Covered::InRing };
        let object = Object { key: place.key, holder: Holder::Nobody, drain: None, covered };
        let view = self.view(place.group);
        match decide(&object, Family::default(), view).named(view) {
            Action::Assign { to, .. } => Some(to),
            _ => None,
        }
    }
}

/// Fails closed: a ring whose selector is unusable must not take objects of all namespaces.
fn select_nothing() -> Selector {
    let nothing =
        kube::core::Expression::In("kubernetes.io/metadata.name".to_owned(), std::collections::BTreeSet::new());
    let mut selector = Selector::default();
    selector.extend(nothing);
    selector
}

#[cfg(test)]
pub(crate) mod tests;
