//! The failures of one batch: told once, by the first of them. There may be as many as there are objects.

use ringside_ring::{RingName, cluster_ring::GroupResource};
use ringside_runtime::explain::explain;

/// How many there were, and the first.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: usize,
    first: Option<kube::Error>,
}

impl Failures {
    /// One more.
    pub(crate) fn add(&mut self, error: kube::Error) {
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// Logs them; returns the first.
    pub(crate) fn tell(self, ring: &RingName, resource: &GroupResource, what: &'static str) -> Option<kube::Error> {
        let first = self.first?;
        tracing::warn!(%ring, %resource, objects = self.count, first_error = explain(&first), "{what}");
        Some(first)
    }
}
