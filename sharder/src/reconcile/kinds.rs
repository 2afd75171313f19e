//! The resources of a ring, as the index needs them.

use std::sync::Arc;

use crate::{
    index::{Kind, ResourceId},
    resources::Resource,
    snapshot::Snapshot,
};

/// The resources of a ring: roots first, so that those who follow them are listed after them.
pub(crate) fn kinds_of(ring: &Snapshot) -> Vec<Kind> {
    let controlled = ring.mains.iter().flat_map(|main| &main.controlled);
    let mut resources: Vec<_> = ring.mains.iter().map(|main| &main.resource).chain(controlled).collect();
    let roots = ring.mains.len();
    let mut seen = Vec::new();
    resources.retain(|resource| {
        !seen.contains(&&resource.id) && {
            seen.push(&resource.id);
            true
        }
    });
    let id = |resource: &Resource| resources.iter().position(|known| known.id == resource.id);
    let id = |resource: &Arc<Resource>| u8::try_from(id(resource)?).ok().map(ResourceId);
    let kind = |(at, resource): (usize, &&Arc<Resource>)| {
        let families = ring.mains.iter().filter(|main| main.controlled.contains(resource));
        let above = families.flat_map(|main| std::iter::once(&main.resource).chain(&main.controlled));
        let above = above.filter(|controller| resource.may_follow(controller));
        Kind {
            resource: Arc::clone(resource),
            is_root: at < roots,
            is_controlled: ring.spec.is_controlled(&resource.id),
            placed_by: ring.mains.get(at).map(|main| main.placed_by.clone()).unwrap_or_default(),
            controllers: above.filter_map(id).collect(),
            unserved_groups: ring.unresolved.iter().map(|resource| resource.group.clone()).collect(),
        }
    };
    resources.iter().enumerate().take(usize::from(u8::MAX)).map(kind).collect()
}
