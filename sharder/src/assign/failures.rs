//! The failures of one batch: told once, by the first of them that somebody must do something about. There may be as many as
//! there are objects.

use ringside_ring::{RingName, cluster_ring::GroupResource};
use ringside_runtime::explain::explain;

use crate::faults::graver;

/// How many there were, and the one to tell.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: usize,
    first: Option<kube::Error>,
}

impl Failures {
    /// One more.
    pub(crate) fn add(&mut self, error: kube::Error) {
        self.count += 1;
        self.first = graver(self.first.take(), Some(error));
    }

    /// Logs them; returns the one that was told.
    pub(crate) fn tell(self, ring: &RingName, resource: &GroupResource, what: &'static str) -> Option<kube::Error> {
        let first = self.first?;
        tracing::warn!(%ring, %resource, objects = self.count, first_error = explain(&first), "{what}");
        Some(first)
    }
}
