//! The main resources of a ring, and what follows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ringside_ring::{PlacedBy, Ring, cluster_ring::GroupResource};

use crate::{
    namespaces::selector::check_key,
    resources::{Catalog, Resource, Unusable, labelled},
};

/// A resource whose objects are distributed, with the resources that they control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Main {
    pub(crate) resource: Arc<Resource>,
    pub(crate) controlled: Vec<Arc<Resource>>,
    pub(crate) placed_by: PlacedBy,
}

impl Main {
    /// The resource whose objects follow its own, by its name.
    pub(super) fn controls(&self, child: &GroupResource) -> Option<&Arc<Resource>> {
        self.controlled.iter().find(|controlled| controlled.id == *child)
    }

    /// What stands above a child that `controller` controls.
    pub(super) fn above(&self, child: &GroupResource, controller: &OwnerReference) -> Option<Above<'_>> {
        let child = self.controls(child)?;
        let is_above = |above: &&Arc<Resource>| above.is_named_by(controller) && child.may_follow(above);
        let owner = Some(&self.resource).filter(is_above).map(|_| Above::Owner(self));
        owner.or_else(|| self.controlled.iter().find(is_above).map(Above::Link))
    }
}

/// What the controller of a controlled object is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Above<'a> {
    /// An object of a main resource: the child goes where that is.
    Owner(&'a Main),
    /// A controlled object itself: both go where its own controller is.
    Link(&'a Arc<Resource>),
}

/// What is known of the resources that the spec names no more, and whose objects may have labels.
pub(super) fn departing(ring: &Ring, catalog: &Catalog) -> BTreeMap<GroupResource, Result<Arc<Resource>, Unusable>> {
    let named = ring.spec.all_resources();
    let labelled = labelled(ring).filter(|name| !named.contains(name));
    labelled.filter_map(|name| Some((name.clone(), catalog.get(&name)?.clone()))).collect()
}

/// The main resources that are served. One without all of its controlled resources is distributed all the same, but
/// its ring is not ready: the children would stay behind.
///
/// A resource that another one controls, and that controls others, is a link of a chain, and none of them.
pub(super) fn mains(ring: &Ring, catalog: &Catalog, problems: &mut Vec<String>) -> Vec<Main> {
    let mut find = |name: &GroupResource| match catalog.get(name) {
        Some(Ok(resource)) => {
            let faults: Vec<_> = resource.version_faults().filter(|fault| !problems.contains(fault)).collect();
            problems.extend(faults);
            Some(resource.clone())
        }
        Some(Err(problem)) => {
            let problem = format!("resource '{name}' {problem}");
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            None
        }
        // Asked for just now: neither known nor a problem yet.
        None => None,
    };
    let mut mains: BTreeMap<GroupResource, Main> = BTreeMap::new();
    let (mut circular, mut unusable) = (BTreeSet::new(), Vec::new());
    for entry in &ring.spec.resources {
        let Some(resource) = find(&entry.group_resource()) else { continue };
        if !ring.spec.is_main(&resource.id) {
            circular.insert(resource.id.clone());
            if entry.key != PlacedBy::Name {
                unusable.push(format!(
                    "resource '{}' has a key, and its objects follow their owners: give the owners' resource the key",
                    resource.id
                ));
            }
        } else {
            let controlled = ring.spec.family(&resource.id).iter().filter_map(&mut find).collect();
            let placed_by = match &entry.key {
                PlacedBy::Label(key) | PlacedBy::Annotation(key) if check_key(key).is_err() => {
                    PlacedBy::Unusable(format!("{{{}}}", entry.key))
                }
                usable => usable.clone(),
            };
            if let PlacedBy::Unusable(said) = &placed_by {
                unusable.push(format!(
                    "resource '{}' has the key {said}, so its objects are left where they are: \
                     write Namespace, {{label: KEY}} or {{annotation: KEY}}",
                    resource.id
                ));
            }
            mains.insert(resource.id.clone(), Main { resource, controlled, placed_by });
        }
    }
    // What controls itself in the end has no main resource above it, whether that is served or not.
    let families = ring.spec.families();
    circular.retain(|name| !families.values().any(|family| family.contains(name)));
    problems.extend(unusable);
    problems.extend(circular.iter().map(|name| {
        format!("resource '{name}' controls itself in the end, so its objects have no shard; remove it from controlledResources")
    }));
    mains.into_values().collect()
}
