//! How long writes of one ring wait that can't: for a permit, and behind others in the API server.

use std::{collections::HashMap, time::Duration};

use ringside_ring::cluster_ring::GroupResource;

/// The share of itself by which the shortest answer grows with each answer, so that slower admission is soon none of it.
const GROWTH: u32 = 1_000;

/// The longest wait, and what answers take at least.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) longest: Duration,
    shortest: HashMap<GroupResource, Duration>,
}

impl Waits {
    /// Records a wait for a permit.
    pub(super) fn record(&mut self, waited: Duration) {
        self.longest = self.longest.max(waited);
    }

    /// Records an answer that took so long, after such a wait.
    pub(super) fn record_answer(&mut self, resource: &GroupResource, waited: Duration, took: Duration) {
        let shortest = self.shortest.entry(resource.clone()).or_insert(took);
        *shortest = took.min(*shortest + *shortest / GROWTH);
        let behind_others = took - *shortest;
        self.record(waited + behind_others);
    }
}
