//! Whether a Lease may be taken, as a pure function of what was observed.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use ringside_ring::{
    Moment,
    lease::{DEFAULT_LEASE_DURATION, duration, holder},
};

use super::LeaseParams;

/// A Lease as another holder keeps it, and since when it has looked like this.
#[derive(Debug)]
pub(super) struct Observation {
    spec: Option<LeaseSpec>,
    since: Moment,
}

impl Observation {
    /// The first look at a Lease.
    pub(super) fn of(lease: &Lease, now: Moment) -> Self {
        Self { spec: lease.spec.clone(), since: now }
    }

    /// Another look: time counts from zero when the Lease has changed in what its keeper writes.
    pub(super) fn update(&mut self, lease: &Lease, now: Moment) {
        if self.spec != lease.spec {
            *self = Self::of(lease, now);
        }
    }
}

/// What to do about a Lease that we don't hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is free, or ours from before a restart: take it.
    Take,
    /// Another one holds it, and has until then to renew it.
    Wait {
        /// When it may be taken if it does not change.
        until: Moment,
        /// Who holds it.
        holder: String,
    },
}

/// Judges a Lease that we don't hold, by what we observed and not by the times written in it: those
/// come from another machine's wall clock (client-go's leader election judges the same way).
pub(super) fn claim(lease: &Lease, observed: &Observation, terms: &LeaseParams, now: Moment) -> Claim {
    let spec = lease.spec.as_ref();
    let Some(holder) = holder(spec) else { return Claim::Take };
    let annotations = lease.metadata.annotations.as_ref();
    let same_instance = || {
        terms.annotations.iter().all(|(key, value)| annotations.is_some_and(|theirs| theirs.get(key) == Some(value)))
    };
    if holder == terms.holder && same_instance() {
        return Claim::Take;
    }
    let until = observed.since + duration(spec).unwrap_or(DEFAULT_LEASE_DURATION);
    if now < until { Claim::Wait { until, holder: holder.to_owned() } } else { Claim::Take }
}

/// The duration as the Lease's field has it.
pub(super) fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)
}
