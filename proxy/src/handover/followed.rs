//! Whether the drained objects of every main resource are followed: a readiness check.
//!
//! Without its watch a shard releases nothing, and every move away from it hangs.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::admin::Check;

/// What fails the check, by resource. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    check: Check,
    missing: Arc<Mutex<BTreeMap<GroupResource, Option<String>>>>,
}

impl Followed {
    pub(super) fn new(check: Check) -> Self {
        Self { check, missing: Arc::default() }
    }

    /// These are the resources from now on; those that are new are not followed yet.
    pub(super) fn expect(&self, resources: &[GroupResource]) {
        let mut missing = self.missing.lock();
        missing.retain(|resource, _| resources.contains(resource));
        for resource in resources {
            missing.entry(resource.clone()).or_insert_with(|| Some("its watch has not started yet".to_owned()));
        }
        self.tell(&missing);
    }

    /// Nothing of it is missed: its watch goes on, or the API server does not serve it, and work on the ring's other
    /// resources need not wait.
    pub(super) fn nothing_missed(&self, resource: &GroupResource) {
        self.set(resource, |state| *state = None);
    }

    /// Notes that the resource can't be followed until a user fixes that.
    pub(super) fn broken(&self, resource: &GroupResource, reason: &str) {
        self.set(resource, |state| *state = Some(reason.to_owned()));
    }

    /// Notes a temporary error: a watch that was open will be opened again.
    pub(super) fn disturbed(&self, resource: &GroupResource, reason: &str) {
        self.set(resource, |state| *state = state.is_some().then(|| reason.to_owned()));
    }

    fn set(&self, resource: &GroupResource, change: impl FnOnce(&mut Option<String>)) {
        let mut missing = self.missing.lock();
        if let Some(state) = missing.get_mut(resource) {
            change(state);
            self.tell(&missing);
        }
    }

    fn tell(&self, missing: &BTreeMap<GroupResource, Option<String>>) {
        let reasons: Vec<_> = missing
            .iter()
            .filter_map(|(resource, reason)| {
                Some(format!("drained {resource} can't be released: {}", reason.as_ref()?))
            })
            .collect();
        if reasons.is_empty() { self.check.pass() } else { self.check.fail(reasons.join("; ")) }
    }
}
