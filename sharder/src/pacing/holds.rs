//! The pauses that the API server asks for: of all writes, or of those of one API group.

use std::collections::HashMap;

use ringside_ring::cluster_ring::GroupResource;
use tokio::time::Instant;

/// Until when nobody begins, and how often that was asked for.
#[derive(Debug, Default)]
pub(super) struct Holds {
    all: Hold,
    /// As many as there are groups that an extension serves.
    groups: HashMap<String, Hold>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    until: Option<Instant>,
    asked: u64,
}

impl Hold {
    fn ask(&mut self, until: Instant) {
        self.until = self.until.max(Some(until));
        self.asked += 1;
    }

    fn until(self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }
}

impl Holds {
    /// Nobody is to write to objects of this group before then; none: to any.
    pub(super) fn ask(&mut self, group: Option<&str>, until: Instant) {
        match group {
            None => self.all.ask(until),
            Some(group) => self.groups.entry(group.to_owned()).or_default().ask(until),
        }
    }

    /// Until when nobody begins, whatever is written to.
    pub(super) fn of_all(&self) -> Option<Instant> {
        self.all.until()
    }

    /// Until when nobody begins to write to such an object.
    pub(super) fn of(&self, resource: &GroupResource) -> Option<Instant> {
        self.of_all().max(self.group(resource).until())
    }

    /// How many pauses were asked for that hold such a write.
    pub(super) fn asked(&self, resource: &GroupResource) -> u64 {
        self.all.asked + self.group(resource).asked
    }

    fn group(&self, resource: &GroupResource) -> Hold {
        self.groups.get(&resource.group).copied().unwrap_or_default()
    }
}
