//! The index of a ring: what is known of its objects, some 90 bytes each.
//!
//! Feeds write into it what watches show, and those who decide read it. It is a hint: every write tests what it relies on,
//! and children are known to be complete only by [`Progress`].
//!
//! A change of the ring's shards changes nothing here. One of its resources makes a new index.
//!
//! | file | what it does |
//! | --- | --- |
//! | `record`, `names`, `namespaces`, `table` | storage |
//! | `family` | children by controller |
//! | `counts` | counters |
//! | `state`, `objects` | changes it; reads it |
//! | `feed`, `sources`, `repair` | list and watch; which of these; lists of a part |
//! | `progress` | whether a watch has shown all that there was at some moment |

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ringside_ring::{PlacedBy, RingLabels, partition::group_of};

mod counts;
mod family;
mod feed;
mod lone;
mod names;
mod namespaces;
mod objects;
mod progress;
mod record;
pub(crate) mod repair;
mod sources;
mod state;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    lone::Lone,
    objects::{Object, Objects, Role, Selected, Shard},
    progress::{Mark, Progress},
    record::{ResourceId, Slot},
    repair::{ChildrenOf, SharedLists},
    sources::{Mode, Scope, Source, Sources},
};
use self::{
    record::{Flag, Record, ShardValue, Uid},
    state::State,
};
use crate::{
    groups::Groups,
    lock::{Mutex, rank},
    resources::Resource,
};

/// A resource of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: Arc<Resource>,
    /// Whether an object of it that follows no other one is placed by its own key.
    pub(crate) is_root: bool,
    /// Whether an object of it follows another one, if the ring has one above it.
    pub(crate) is_controlled: bool,
    /// By what, where it is not by the name.
    pub(crate) placed_by: PlacedBy,
    /// The resources whose objects its own follow.
    pub(crate) controllers: Vec<ResourceId>,
    /// Groups of which resources of the ring are not served now.
    pub(crate) unserved_groups: Vec<String>,
}

impl Kind {
    /// Whether one of both may control the other, or they are the same.
    pub(crate) fn is_akin((id, kind): (ResourceId, &Self), (other, of): (ResourceId, &Self)) -> bool {
        id == other || kind.controllers.contains(&other) || of.controllers.contains(&id)
    }

    /// Whether `controller` may turn out to be of the ring.
    fn may_be_followed(&self, controller: &OwnerReference) -> bool {
        self.unserved_groups.iter().any(|group| group == group_of(&controller.api_version))
    }
}

/// Says whether a namespace is selected, as far as is known. Asked under the lock of the index.
pub(crate) type Selection = Box<dyn Fn(&str) -> Option<bool> + Send + Sync>;

/// Is told what changes in the index, under its lock: it must not call the index.
pub(crate) trait Observer: Send + Sync {
    /// The family of a root changed, or an object without known root did.
    fn changed(&self, objects: Objects<'_>, slot: Slot);
    /// The object of a slot is gone. Another one may have the slot from now on.
    fn removed(&self, slot: Slot, uid: Option<&str>);
    /// A list or watch of a resource failed, or works again.
    fn watched(&self, resource: ResourceId, error: Option<&kube::Error>);
}

/// Which objects a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// Those without shard label.
    Unlabelled,
}

/// What an update of the index changed.
#[derive(Default)]
struct Changes {
    changed: Vec<Slot>,
    removed: Vec<(Slot, Option<String>)>,
}

/// The objects of one ring.
pub(crate) struct Index {
    state: Mutex<State, { rank::INDEX }>,
    observer: Box<dyn Observer>,
}

impl Index {
    /// Empty.
    pub(crate) fn new(
        kinds: Vec<Kind>,
        (labels, groups): (RingLabels, Groups),
        selection: Selection,
        observer: Box<dyn Observer>,
    ) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::new(kinds, labels, groups, selection)), observer })
    }

    /// Looks at what is known, under the lock: `look` must be short, and must not call the index.
    pub(crate) fn read<T>(&self, look: impl FnOnce(Objects<'_>) -> T) -> T {
        look(Objects(&self.state.lock()))
    }

    /// Shows every object once to `look`, and lets others have the lock in between. What changes meanwhile is told to the observer.
    pub(crate) fn walk(&self, mut look: impl FnMut(Object<'_>)) {
        for chunk in 0.. {
            let state = self.state.lock();
            if chunk >= state.table.chunks() {
                return;
            }
            Objects(&state).in_chunk(chunk).for_each(&mut look);
        }
    }

    /// Takes in an object that was shown; returns whether it is the ring's.
    pub(crate) fn apply(&self, resource: ResourceId, seen: &ObjectMeta) -> bool {
        self.update(|state, changes| state.apply(resource, seen, changes))
    }

    /// Takes in an object that was read or written, if it is known.
    pub(crate) fn refresh(&self, resource: ResourceId, seen: &ObjectMeta) {
        self.update(|state, changes| {
            let uid = Uid::parse(seen.uid.as_deref().unwrap_or_default()).0;
            if state.table.find(resource, uid).is_some() {
                state.apply(resource, seen, changes);
            }
        });
    }

    /// The API server's time went back: what a scope shows next may be of earlier versions.
    pub(crate) fn went_back(&self, resource: ResourceId, scope: &Scope) {
        let state = &mut *self.state.lock();
        let namespaces = listed(state, scope);
        for record in state.table.iter_mut().filter(|record| is_listed(record, resource, &namespaces, Part::All)) {
            record.version = 0;
        }
    }

    /// An object is gone: a watch shows that, or the API server answers 404 for this uid.
    pub(crate) fn remove(&self, resource: ResourceId, uid: &str) {
        let uid = Uid::parse(uid).0;
        self.update(|state, changes| match state.table.find(resource, uid) {
            Some(slot) => state.remove(slot, changes),
            None => state.forget_lone(resource, uid),
        });
    }

    /// A list begins. What it does not show is gone at its end.
    pub(crate) fn begin(&self, resource: ResourceId, scope: &Scope, part: Part) {
        let state = &mut *self.state.lock();
        let namespaces = listed(state, scope);
        state.counters.begin(resource, &namespaces);
        for record in state.table.iter_mut().filter(|record| is_listed(record, resource, &namespaces, part)) {
            record.set(Flag::Listed, false);
        }
    }

    /// The list has ended.
    pub(crate) fn end(&self, resource: ResourceId, scope: &Scope, part: Part) {
        let mut chunks = 0..;
        while let Some(chunk) = chunks.next().filter(|chunk| *chunk < self.state.lock().table.chunks()) {
            self.update(|state, changes| {
                let namespaces = listed(state, scope);
                let listed = |record: &Record| is_listed(record, resource, &namespaces, part);
                let gone = state.table.in_chunk(chunk);
                let gone = gone.filter(|(_, record)| !record.is(Flag::Listed) && listed(record));
                let gone: Vec<_> = gone.map(|(slot, _)| slot).collect();
                gone.into_iter().for_each(|slot| state.remove(slot, changes));
            });
        }
        let state = &mut *self.state.lock();
        let namespaces = listed(state, scope);
        for namespace in state.counters.end(resource, &namespaces) {
            state.namespaces.release(namespace);
        }
    }

    /// A namespace is selected from now on, or not any more: then objects without labels are forgotten. The objects of
    /// one that is selected again have to be listed.
    pub(crate) fn select(&self, namespace: &str, selected: Option<bool>) {
        self.select_each(vec![(namespace.to_owned(), selected)]);
    }

    /// The same of several namespaces, by one walk.
    pub(crate) fn select_each(&self, selections: Vec<(String, Option<bool>)>) {
        let changed: HashSet<u32> = self.update(|state, _| {
            let known = |(namespace, selected): (String, _)| {
                let number = state.namespaces.find(&namespace)?;
                state.namespaces.select(number, selected);
                Some(number)
            };
            selections.into_iter().filter_map(known).collect()
        });
        if changed.is_empty() {
            return;
        }
        let mut chunks = 0..;
        while let Some(chunk) = chunks.next().filter(|chunk| *chunk < self.state.lock().table.chunks()) {
            self.update(|state, changes| {
                let of_namespaces =
                    state.table.in_chunk(chunk).filter(|(_, record)| changed.contains(&record.namespace()));
                let of_namespaces = of_namespaces.map(|(slot, record)| {
                    let is_labelled = record.shard != ShardValue::NONE || record.is(Flag::Drained);
                    // The number may be another namespace's by now.
                    let is_left = state.namespaces.is_selected(record.namespace()) == Some(false);
                    (slot, is_left && !is_labelled)
                });
                for (slot, is_forgotten) in of_namespaces.collect::<Vec<_>>() {
                    if is_forgotten {
                        state.remove(slot, changes);
                    } else {
                        changes.changed.push(slot);
                        changes.changed.extend(Objects(state).root(slot));
                    }
                }
            });
        }
    }

    /// How many bytes what is known takes up, by and large.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let state = &*self.state.lock();
        let texts = state.shards.bytes() + state.namespaces.bytes() + state.drains.capacity() * 64;
        state.table.bytes() + state.names.bytes() + state.families.bytes() + state.counters.bytes() + texts
    }

    fn update<T>(&self, change: impl FnOnce(&mut State, &mut Changes) -> T) -> T {
        let (state, mut changes) = (&mut *self.state.lock(), Changes::default());
        let result = change(state, &mut changes);
        changes.removed.into_iter().for_each(|(slot, uid)| self.observer.removed(slot, uid.as_deref()));
        changes.changed.sort_unstable();
        changes.changed.dedup();
        let objects = Objects(state);
        for slot in changes.changed.into_iter().filter(|slot| objects.get(*slot).is_some()) {
            self.observer.changed(objects, slot);
        }
        result
    }
}

/// Which namespaces a scope has, by their numbers.
fn listed(state: &State, scope: &Scope) -> impl Fn(u32) -> bool + use<> {
    let only = match scope {
        Scope::Cluster => None,
        Scope::Namespace(namespace) => Some(state.namespaces.find(namespace)),
    };
    move |namespace| only.is_none_or(|only| only == Some(namespace))
}

fn is_listed(record: &Record, resource: ResourceId, namespaces: impl Fn(u32) -> bool, part: Part) -> bool {
    let is_part = part == Part::All || record.shard == ShardValue::NONE;
    record.resource() == resource && is_part && namespaces(record.namespace())
}
