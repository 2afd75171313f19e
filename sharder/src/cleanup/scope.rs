//! Which of the objects that carry labels of a ring a cleanup may write to.
//!
//! An object of a controller that is not of the ring has a copy of the labels, out of a template. A selector may need that
//! copy: a ReplicaSet makes another Pod for one that it does not select any more.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use ringside_ring::{cluster_ring::GroupResource, partition::Controls as _};

use crate::{resources::Resource, target::Target};

/// The resources of one ring.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scope {
    /// All of them, owners before what they control.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// Those whose objects the ring distributes, whatever controls them.
    pub(crate) roots: BTreeSet<GroupResource>,
    /// The uids of objects that hold labels of the ring in a template or a selector.
    pub(crate) holders: HashSet<String>,
}

impl Scope {
    /// Whether the labels of an object may be taken off.
    pub(crate) fn includes(&self, resource: &GroupResource, object: &Target) -> bool {
        let Some(controller) = object.owners.iter().find(|owner| owner.controls()) else { return true };
        let is_of_ring = || self.resources.iter().any(|resource| resource.is_named_by(controller));
        !self.holders.contains(&controller.uid) && (self.roots.contains(resource) || is_of_ring())
    }

    /// Adds the resources of the objects that it includes, for a ring that is gone: what these control is of the ring as well.
    pub(crate) fn infer(&mut self, found: &[(Arc<Resource>, Vec<Target>)]) {
        loop {
            let new = found.iter().find(|(resource, objects)| {
                !self.resources.contains(resource) && objects.iter().any(|object| self.includes(&resource.id, object))
            });
            let Some((resource, _)) = new else { return };
            self.resources.push(resource.clone());
        }
    }
}
