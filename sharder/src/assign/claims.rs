//! Objects that were drained because their shard was away, when it is there again.
//!
//! What was drained while it is known to have been away it was never shown: nobody works on it, so it goes on to where it
//! belongs, or is its shard's again, without an acknowledgement. Of what was drained when nobody knows where the shard was, as
//! it came back about then, its controller may have begun with some. Nobody but that shard has had it, so it can be given back
//! to it at once where it belongs to it; to go elsewhere it has to be let go of. One that is forgotten here is acknowledged
//! like any other, which costs time.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use ringside_ring::{ShardName, cluster_ring::GroupResource};

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
    /// Whether its shard is known to have been away by then.
    away: bool,
}

impl Claims {
    /// The object is about to be drained by `id`, as its shard seems to be away.
    pub(super) fn asking(&self, resource: &GroupResource, target: &Target, id: &str) {
        self.remember(resource, target, id, false);
    }

    /// The object was drained, as it is, when its shard was away.
    pub(super) fn add(&self, resource: &GroupResource, target: &Target) {
        if let Some(id) = &target.drain {
            self.remember(resource, target, id, true);
        }
    }

    fn remember(&self, resource: &GroupResource, target: &Target, id: &str, away: bool) {
        let mut claims = self.0.lock();
        if claims.len() < CAPACITY || claims.contains_key(&target.uid) {
            let (resource, namespace, name) = (resource.clone(), target.namespace.clone(), target.name.clone());
            claims.insert(target.uid.clone(), Claim { resource, namespace, name, id: id.to_owned(), away });
        }
    }

    /// Whether the object may be given to `to` without an acknowledgement.
    pub(crate) fn allow(&self, target: &Target, to: &ShardName) -> bool {
        let claims = self.0.lock();
        let claim = claims.get(&target.uid).filter(|claim| target.drain.as_ref() == Some(&claim.id));
        claim.is_some_and(|claim| claim.away || target.shard.as_deref() == Some(to.as_str()))
    }

    /// The object was read, and is not drained by what is remembered.
    pub(super) fn seen(&self, target: &Target) {
        let mut claims = self.0.lock();
        if claims.get(&target.uid).is_some_and(|claim| target.drain.as_ref() != Some(&claim.id)) {
            claims.remove(&target.uid);
        }
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
