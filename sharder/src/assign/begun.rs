//! Owners whose children were sent ahead of them.
//!
//! The work on a batch can be dropped between the children and their owner, because the shards have changed; and a write
//! that was dropped may still be carried out. The owner may then belong to another shard than the one that its children
//! went to, and they are no longer where the owner was. Who remembers that looks for them everywhere.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use ringside_ring::ShardName;

/// Owners remembered at most: memory must not grow with the objects (DESIGN, "Sharder"). More than a few batches of them
/// are there only when writes fail for long; the children of those that are forgotten are found by a pass.
const CAPACITY: usize = 10_000;

/// The owners of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<HashMap<String, Place>>>);

/// Where the children of an owner may be, besides where the owner was.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    With(ShardName),
    Anywhere,
}

impl Begun {
    /// The children of the owner are about to be sent to `to`. Returns whether all of them are there or where the owner
    /// was: if not they can be with any shard.
    pub(super) fn begin(&self, uid: &str, to: &ShardName) -> bool {
        let mut begun = self.0.lock();
        match begun.get_mut(uid) {
            Some(Place::With(before)) if before == to => true,
            Some(place) => {
                *place = Place::Anywhere;
                false
            }
            None => {
                if begun.len() < CAPACITY {
                    begun.insert(uid.to_owned(), Place::With(to.clone()));
                }
                true
            }
        }
    }

    /// The owner has followed its children.
    pub(super) fn end(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn children_that_were_sent_elsewhere_may_be_anywhere_until_their_owner_follows() {
        let (begun, a, b) = (Begun::default(), "a".parse().unwrap(), "b".parse().unwrap());
        assert!(begun.begin("owner", &a));
        assert!(begun.begin("owner", &a), "some of them are there already");
        assert!(!begun.begin("owner", &b));
        assert!(!begun.begin("owner", &b), "some of them may still be with a");
        begun.end("owner");
        assert!(begun.begin("owner", &a));
    }
}
