//! Owners whose children may be apart from them.
//!
//! The work on a batch can be dropped between the children and their owner, because the shards have changed. The owner
//! may then go to another shard than the one that its children went to, or stay where it is, as the shard that it was to
//! leave is there again. Who remembers that looks for the children everywhere.
//!
//! What a leader before began, nobody remembers. So a new one looks for children everywhere, and makes the passes anew for
//! each change of the shards, until it has seen every owner and every child for the same set of shards: then each owner
//! is with its children, or remembered here; but for children that a policy keeps elsewhere, which every pass tells.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use ringside_ring::{ShardName, cluster_ring::GroupResource};

use crate::target::Target;

/// Owners remembered at most: memory must not grow with the objects (DESIGN, "Sharder"). More than a few batches of them
/// are there only when writes fail for long.
const CAPACITY: usize = 10_000;

/// The owners of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<Register>>);

#[derive(Default)]
struct Register {
    by_uid: HashMap<String, Owner>,
    /// Whether there was no room for one.
    overflowed: bool,
    /// The resources of which all owners have been seen with their children, or are remembered.
    known: BTreeSet<GroupResource>,
}

struct Owner {
    resource: GroupResource,
    namespace: Option<String>,
    name: String,
    children: Place,
}

/// Where the children of an owner may be, besides where the owner was.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    With(ShardName),
    Anywhere,
}

impl Register {
    fn insert(&mut self, resource: &GroupResource, owner: &Target, children: Place) {
        if self.by_uid.len() >= CAPACITY {
            self.overflowed = true;
            return;
        }
        let (namespace, name) = (owner.namespace.clone(), owner.name.clone());
        self.by_uid.insert(owner.uid.clone(), Owner { resource: resource.clone(), namespace, name, children });
    }
}

impl Begun {
    /// The children of the owner are about to be sent to `to`. Returns whether all of them are there or where the owner
    /// was: if not they can be with any shard.
    pub(super) fn begin(&self, resource: &GroupResource, owner: &Target, to: &ShardName) -> bool {
        let mut register = self.0.lock();
        match register.by_uid.get_mut(&owner.uid).map(|owner| &mut owner.children) {
            Some(Place::With(before)) if before == to => true,
            Some(place) => {
                *place = Place::Anywhere;
                false
            }
            None => {
                register.insert(resource, owner, Place::With(to.clone()));
                true
            }
        }
    }

    /// A child of the owner is neither where the owner is nor where it was.
    pub(crate) fn scatter(&self, resource: &GroupResource, owner: &Target) {
        let mut register = self.0.lock();
        match register.by_uid.get_mut(&owner.uid) {
            Some(known) => known.children = Place::Anywhere,
            None => register.insert(resource, owner, Place::Anywhere),
        }
    }

    /// The owner is with its children, which were looked for `everywhere` or where they could be. Returns whether that was
    /// enough: it is not when they turned out to be scattered meanwhile.
    pub(super) fn end(&self, uid: &str, everywhere: bool) -> bool {
        let mut register = self.0.lock();
        let scattered = register.by_uid.get(uid).is_some_and(|owner| owner.children == Place::Anywhere);
        if scattered && !everywhere {
            return false;
        }
        register.by_uid.remove(uid);
        true
    }

    /// Whether children of the owner may be apart from it.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.0.lock().by_uid.contains_key(uid)
    }

    /// The owners of one resource, as far as they are needed to read them.
    pub(super) fn of(&self, resource: &GroupResource) -> Vec<Target> {
        let register = self.0.lock();
        let of_resource = register.by_uid.iter().filter(|(_, owner)| owner.resource == *resource);
        let target = |(uid, owner): (&String, &Owner)| Target {
            uid: uid.clone(),
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
            ..Target::default()
        };
        of_resource.map(target).collect()
    }

    /// All owners and all children of the resource were seen, for one set of shards, and who was not with his children is
    /// remembered; unless there was no room for that.
    pub(crate) fn know(&self, resource: &GroupResource) {
        let mut register = self.0.lock();
        if !register.overflowed {
            register.known.insert(resource.clone());
        }
    }

    /// Whether the children of every owner that is not remembered are where it is, or was.
    pub(crate) fn knows(&self, resource: &GroupResource) -> bool {
        self.0.lock().known.contains(resource)
    }

    /// The ring's main resources are these now. What is kept of others would be old when they come back.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        let mut register = self.0.lock();
        register.by_uid.retain(|_, owner| resources.contains(&owner.resource));
        register.known.retain(|resource| resources.contains(resource));
    }

    /// Whether there were more than could be remembered since this was asked: only a pass finds the children of those.
    pub(crate) fn overflowed(&self) -> bool {
        std::mem::take(&mut self.0.lock().overflowed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn xs() -> GroupResource {
        GroupResource { group: String::new(), resource: "xs".into() }
    }

    fn owner(uid: &str) -> Target {
        Target { uid: uid.into(), name: format!("name-of-{uid}"), ..Target::default() }
    }

    #[test]
    fn children_that_were_sent_elsewhere_may_be_anywhere_until_their_owner_follows() {
        let (begun, a, b) = (Begun::default(), "a".parse().unwrap(), "b".parse().unwrap());
        let begin = |to: &ShardName| begun.begin(&xs(), &owner("u"), to);
        assert!(begin(&a));
        assert!(begin(&a), "some of them are there already");
        assert!(!begin(&b));
        assert!(!begin(&b), "some of them may still be with a");
        assert!(!begun.end("u", false), "they must be looked for everywhere");
        assert_eq!(begun.of(&xs()), [owner("u")]);
        assert!(begun.end("u", true));
        assert_eq!(begun.of(&xs()), []);
        assert!(begin(&a));
        assert!(begun.end("u", false));
    }

    #[test]
    fn a_child_that_is_met_apart_while_its_owner_moves_is_looked_for_once_more() {
        let (begun, a) = (Begun::default(), "a".parse().unwrap());
        assert!(begun.begin(&xs(), &owner("u"), &a));
        begun.scatter(&xs(), &owner("u"));
        assert!(!begun.end("u", false));
        assert!(!begun.begin(&xs(), &owner("u"), &a));
    }

    #[test]
    fn what_left_the_ring_is_forgotten() {
        let begun = Begun::default();
        begun.scatter(&xs(), &owner("u"));
        begun.know(&xs());
        begun.keep_only(&[&xs()].into());
        assert!(begun.knows(&xs()) && begun.has("u"));
        begun.keep_only(&BTreeSet::new());
        assert!(!begun.knows(&xs()) && !begun.has("u"), "it may have changed when it comes back");
    }

    #[test]
    fn memory_is_bounded_and_says_when_it_did_not_suffice() {
        let begun = Begun::default();
        for i in 0..CAPACITY {
            begun.scatter(&xs(), &owner(&i.to_string()));
        }
        assert!(!begun.overflowed());
        begun.scatter(&xs(), &owner("one more"));
        begun.know(&xs());
        assert!(!begun.knows(&xs()));
        assert_eq!(begun.of(&xs()).len(), CAPACITY);
        assert!(begun.overflowed());
        assert!(!begun.overflowed(), "said once");
    }
}
