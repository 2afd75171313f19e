//! One Lease that is held: for how long, and what uses it.

use std::{collections::BTreeSet, time::Duration};

use crate::lock::Mutex;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use ringside_ring::Moment;

use super::Name;

/// How long a hold that was used is kept: the next objects of its shard come meanwhile.
pub(super) const QUIET: Duration = Duration::from_secs(1);
/// How long a hold is kept that was never used: the objects of a shard that died have to be found first.
pub(super) const UNUSED: Duration = Duration::from_secs(5);
/// How often a hold is renewed at most: a shard that waits has to get its Lease in the end.
pub(super) const MAX_RENEWALS: usize = 10;

/// One Lease that is held.
#[derive(Debug)]
pub(in crate::leases) struct Held {
    pub(super) name: Name,
    /// How long the shard waits, after the acquisition and each renewal.
    pub(super) lasts: Duration,
    pub(super) state: Mutex<State>,
}

/// For how long a Lease is held, since the acquisition or the last renewal, and what uses the hold.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Before the request.
    pub(super) since: Moment,
    /// As the sharder wrote it; none where the Lease of this name is no shard's, or there can be none.
    pub(super) spec: Option<LeaseSpec>,
    /// A renewal that was asked for, at first at this time: the Lease is to be this.
    pub(super) asked: Option<(Moment, LeaseSpec)>,
    /// How many there were.
    pub(super) renewals: usize,
    pub(super) users: usize,
    /// The families that were begun and have not moved to their end, by uid of the object.
    pub(super) in_part: BTreeSet<String>,
    /// Whether a write was carried out since the last renewal.
    pub(super) has_progress: bool,
    /// Nothing is written under it any more.
    pub(super) is_over: bool,
    /// When it was last used, or renewed.
    pub(super) last: Option<Moment>,
    /// Until when writes without an answer may be carried out.
    pub(super) kept: Moment,
}

impl Held {
    /// `lasts`: how long the shard waits, from any time after `since`.
    pub(in crate::leases) fn new(name: Name, spec: Option<LeaseSpec>, since: Moment, lasts: Duration) -> Self {
        let state = State { since, spec, kept: since, ..State::default() };
        Self { name, lasts, state: Mutex::new(state) }
    }

    /// The same where a leader before holds the Lease: it is not released early, as that one may still have a write under way.
    pub(in crate::leases) fn over_another(self) -> Self {
        let since = self.state.lock().since;
        self.state.lock().kept = since + self.lasts;
        self
    }

    /// For how long the sharder relies on it.
    fn reliable(&self) -> Duration {
        self.lasts / 5 * 4
    }

    /// Until when the sharder relies on it.
    pub(super) fn until(&self) -> Moment {
        self.state.lock().since + self.reliable()
    }

    /// Whether a family may be begun: what is begun has a third of the hold at least.
    pub(super) fn may_begin(&self, now: Moment) -> bool {
        self.until().since(now) >= self.lasts / 3
    }

    /// Whether a family may be begun, or one that was begun be ended.
    pub(super) fn takes(&self, uid: &str, now: Moment) -> bool {
        let state = self.state.lock();
        let left = (state.since + self.reliable()).since(now);
        !state.is_over && (left >= self.lasts / 3 || (!left.is_zero() && state.in_part.contains(uid)))
    }

    /// When it is to be released, as it is used now.
    pub(super) fn ends(&self) -> Moment {
        let state = self.state.lock();
        let (since, end) = (state.since, state.since + self.lasts);
        if state.is_over {
            return since;
        }
        if state.users > 0 || !state.in_part.is_empty() {
            return end;
        }
        state.last.map_or(since + UNUSED, |last| last + QUIET).max(state.kept + QUIET).min(end)
    }

    /// When it is to be renewed: from the first third on, while there is progress. None where it is not, or it is too late.
    pub(super) fn renews(&self, now: Moment) -> Option<Moment> {
        let state = self.state.lock();
        let may = state.spec.is_some() && state.renewals < MAX_RENEWALS && now < state.since + self.reliable();
        (may && state.has_progress && !state.is_over).then(|| state.since + self.lasts / 3)
    }

    /// Whether the Lease is as the sharder wrote it. A renewal begins its duration again.
    pub(super) fn is(&self, lease: &LeaseSpec, now: Moment) -> bool {
        let state = &mut *self.state.lock();
        if let Some((since, spec)) = state.asked.take_if(|(_, spec)| spec == lease) {
            (state.since, state.spec, state.renewals) = (since, Some(spec), state.renewals + 1);
            // What waited for it comes now.
            (state.has_progress, state.last) = (false, Some(now));
        }
        state.spec.as_ref() == Some(lease)
    }
}
