//! The objects that were let go: a bounded memory, in which the oldest make room.
//!
//! What concerns an object that is not remembered is compared with its live labels. Those say nothing of one that was let go
//! a moment ago and is nobody's yet: while one is forgotten that may be such, nothing that is nobody's is written to
//! ([`super::Fence::has_forgotten`]).

use std::collections::{HashMap, VecDeque};

use ringside_ring::ResourceVersion;
use tokio::time::Instant;

use super::{Moving, Uid, writes::Target};

/// How many are remembered. Each takes some hundred bytes; to forget one costs a question when its former owner writes.
const MAX_MOVED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Moved {
    by_uid: HashMap<Uid, Left>,
    by_name: HashMap<Target, Uid>,
    /// In the order in which they were let go, with what tells several moves of one object apart.
    order: VecDeque<(u64, Uid)>,
    next: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Left {
    object: Moving,
    /// Of which version it was seen drained.
    version: ResourceVersion,
    /// How many had been let go by then.
    at: u64,
    when: Instant,
}

impl Moved {
    /// Returns when the last of those was let go that had to be forgotten for it.
    pub(super) fn remember(&mut self, object: Moving, version: ResourceVersion, now: Instant) -> Option<Instant> {
        let mut forgotten = None;
        self.next += 1;
        self.by_name.insert(Target::of(&object), object.uid.clone());
        self.order.push_back((self.next, object.uid.clone()));
        self.by_uid.insert(object.uid.clone(), Left { object, version, at: self.next, when: now });
        // What was forgotten on purpose or remembered anew still stands in the order, at its old place.
        // Each is remembered twice as a rule: when the fence closes, and when its drain has ended.
        while (self.by_uid.len() > MAX_MOVED || self.order.len() > 2 * MAX_MOVED)
            && let Some((at, uid)) = self.order.pop_front()
        {
            if let Some(left) = self.by_uid.get(&uid).filter(|left| left.at == at) {
                forgotten = forgotten.max(Some(left.when));
                self.forget(&uid);
                self.evicted += 1;
            }
        }
        forgotten
    }

    /// How many were let go so far.
    pub(super) fn last(&self) -> u64 {
        self.next
    }

    /// Of which version this one was seen drained, if it was let go after so many.
    pub(super) fn left_since(&self, uid: &str, before: u64) -> Option<&ResourceVersion> {
        self.by_uid.get(uid).filter(|left| left.at > before).map(|left| &left.version)
    }

    pub(super) fn forget(&mut self, uid: &str) {
        let Some(Left { object, .. }) = self.by_uid.remove(uid) else { return };
        let name = Target::of(&object);
        if self.by_name.get(&name) == Some(&object.uid) {
            self.by_name.remove(&name);
        }
    }

    /// Another object has that name now.
    pub(super) fn release_name(&mut self, name: &Target) {
        self.by_name.remove(name);
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<&Moving> {
        self.by_uid.get(uid).map(|left| &left.object)
    }

    pub(super) fn by_name(&self, target: &Target) -> Option<&Moving> {
        self.by_uid(self.by_name.get(target)?)
    }

    pub(super) fn count(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }
}
