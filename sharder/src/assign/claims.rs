//! Drained objects that no controller works on, although their shard may be there: it was away when they were drained
//! already, and what is drained it is not shown.
//!
//! Such an object goes on to where it belongs, or is its shard's again, without an acknowledgement. One that is forgotten
//! here is acknowledged like any other, which costs time.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;

use crate::target::Target;

/// Objects remembered at most: memory must not grow with the objects (DESIGN, "Sharder").
const CAPACITY: usize = 10_000;

/// The objects of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Claims(Arc<Mutex<HashMap<String, Claim>>>);

struct Claim {
    resource: GroupResource,
    namespace: Option<String>,
    name: String,
    /// The value of the drain label: another one is another drain.
    id: String,
}

impl Claims {
    /// The object was drained, as it is, when its shard was away.
    pub(super) fn add(&self, resource: &GroupResource, target: &Target) {
        let Some(id) = target.drain.clone() else { return };
        let mut claims = self.0.lock();
        if claims.len() < CAPACITY || claims.contains_key(&target.uid) {
            let (namespace, name) = (target.namespace.clone(), target.name.clone());
            claims.insert(target.uid.clone(), Claim { resource: resource.clone(), namespace, name, id });
        }
    }

    /// Whether nobody works on the object.
    pub(crate) fn has(&self, target: &Target) -> bool {
        let claims = self.0.lock();
        claims.get(&target.uid).is_some_and(|claim| target.drain.as_ref() == Some(&claim.id))
    }

    /// The object has an owner, or is gone.
    pub(super) fn end(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// The ring's main resources are these now.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        self.0.lock().retain(|_, claim| resources.contains(&claim.resource));
    }

    /// The objects of one resource, as far as they are needed to read them.
    pub(super) fn of(&self, resource: &GroupResource) -> Vec<Target> {
        let claims = self.0.lock();
        let of_resource = claims.iter().filter(|(_, claim)| claim.resource == *resource);
        let target = |(uid, claim): (&String, &Claim)| Target {
            uid: uid.clone(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            ..Target::default()
        };
        of_resource.map(target).collect()
    }
}
