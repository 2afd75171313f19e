//! Which resources may have labels of a ring that the ring names no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::lock::Mutex;
use ringside_ring::cluster_ring::{ClusterRingSpec, GroupResource, LabelledResource};
use tokio::sync::watch;

use crate::snapshot::Snapshot;

/// The resources of one ring; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leftovers {
    register: Arc<Mutex<Register>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Register {
    /// Whatever may have labels: main resources with what follows them.
    labelled: BTreeMap<GroupResource, BTreeSet<GroupResource>>,
    /// Whose labels are off. A status that was not written yet may say otherwise.
    clean: BTreeSet<GroupResource>,
}

impl Register {
    fn take_in(&mut self, snapshot: &Snapshot) {
        let named = snapshot.spec.all_resources();
        self.clean.retain(|name| !named.contains(name));
        let stored = snapshot.status.iter().flat_map(|status| status.resources.clone());
        let now = snapshot.spec.resources.iter().map(LabelledResource::from);
        for entry in stored.chain(now) {
            let followers = self.labelled.entry(entry.group_resource()).or_default();
            followers.extend(entry.controlled_resources);
        }
        let Self { labelled, clean } = self;
        labelled.retain(|main, followers| {
            let entries = snapshot.spec.resources.iter().filter(|entry| entry.group_resource() == *main);
            let controlled: BTreeSet<_> = entries.flat_map(|entry| &entry.controlled_resources).collect();
            // What follows another main resource now is named there. What is clean may control what is not.
            followers.retain(|name| controlled.contains(name) || !named.contains(name));
            if followers.iter().all(|name| controlled.contains(name) || clean.contains(name)) {
                followers.retain(|name| controlled.contains(name));
            }
            named.contains(main) || !(clean.contains(main) && followers.is_empty())
        });
    }

    fn open(&self, spec: &ClusterRingSpec) -> BTreeSet<GroupResource> {
        let named = spec.all_resources();
        let all = self.labelled.iter().flat_map(|(main, followers)| followers.iter().chain([main]));
        all.filter(|name| !named.contains(name) && !self.clean.contains(name)).cloned().collect()
    }
}

impl Leftovers {
    /// Takes in what the ring names, and what its status says; returns the resources that it names no more.
    pub(crate) fn take_in(&self, snapshot: &Snapshot) -> BTreeSet<GroupResource> {
        let mut register = self.register.lock();
        register.take_in(snapshot);
        register.open(&snapshot.spec)
    }

    /// Whether it is the resource's turn: what follows the objects of another comes after these.
    pub(crate) fn is_next(&self, snapshot: &Snapshot, name: &GroupResource) -> bool {
        let register = self.register.lock();
        let open = register.open(&snapshot.spec);
        let mut before = register.labelled.iter().filter(|(main, _)| *main != name && open.contains(main));
        !before.any(|(_, followers)| followers.contains(name))
    }

    /// Whether shards were asked for objects of this resource, rather than for what they follow.
    pub(crate) fn is_main(&self, name: &GroupResource) -> bool {
        let register = self.register.lock();
        let follows_none = || !register.labelled.values().any(|followers| followers.contains(name));
        // One that controls nothing, and follows others as well, is a main resource too.
        register.labelled.get(name).is_some_and(|own| own.is_empty() || follows_none())
    }

    /// No object of the resource has labels any more.
    pub(crate) fn done(&self, name: &GroupResource) {
        let mut register = self.register.lock();
        register.clean.insert(name.clone());
        drop(register);
        self.changed.send_replace(());
    }

    /// What the status says of the ring.
    pub(crate) fn record(&self, snapshot: &Snapshot) -> Vec<LabelledResource> {
        let mut register = self.register.lock();
        register.take_in(snapshot);
        let entries = register.labelled.iter().map(|(main, followers)| LabelledResource {
            group: main.group.clone(),
            resource: main.resource.clone(),
            controlled_resources: followers.iter().cloned().collect(),
        });
        entries.collect()
    }

    /// Tells when labels of a resource are off.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
