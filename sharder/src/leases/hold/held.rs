//! One Lease that is held: for how long, and what uses it.

use std::{collections::BTreeSet, time::Duration};

use crate::lock::{Mutex, rank};
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
    /// Where both are locked, this one is first.
    pub(super) term: Mutex<Term, { rank::HOLD }>,
    pub(super) usage: Mutex<Usage>,
}

/// For how long a Lease is held, since the acquisition or the last renewal.
#[derive(Debug)]
pub(super) struct Term {
    /// Before the request.
    pub(super) since: Moment,
    /// As the sharder wrote it; none where the Lease of this name is no shard's, or there can be none.
    pub(super) spec: Option<LeaseSpec>,
    /// A renewal that was asked for, at first at this time: the Lease is to be this.
    pub(super) asked: Option<(Moment, LeaseSpec)>,
    /// How many there were.
    pub(super) renewals: usize,
}

#[derive(Debug)]
pub(super) struct Usage {
    pub(super) users: usize,
    /// The families that were begun and have not moved to their end, by uid of the object.
    pub(super) in_part: BTreeSet<String>,
    /// Whether a write was carried out in this term.
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
        let in_part = BTreeSet::new();
        let usage = Usage { users: 0, in_part, has_progress: false, is_over: false, last: None, kept: since };
        let term = Term { since, spec, asked: None, renewals: 0 };
        Self { name, lasts, term: Mutex::new(term), usage: Mutex::new(usage) }
    }

    /// The same where a leader before holds the Lease: it is not released early, as that one may still have a write under way.
    pub(in crate::leases) fn over_another(self) -> Self {
        let kept = self.term.lock().since + self.lasts;
        self.usage.lock().kept = kept;
        self
    }

    /// Until when the sharder relies on it.
    pub(super) fn until(&self) -> Moment {
        self.term.lock().since + self.lasts / 5 * 4
    }

    /// Whether a family may be begun: what is begun has a third of the hold at least.
    pub(super) fn may_begin(&self, now: Moment) -> bool {
        self.until().since(now) >= self.lasts / 3
    }

    /// Whether a family may be begun, or one that was begun be ended.
    pub(super) fn takes(&self, uid: &str, now: Moment) -> bool {
        let (may_begin, until, usage) = (self.may_begin(now), self.until(), self.usage.lock());
        !usage.is_over && (may_begin || (now < until && usage.in_part.contains(uid)))
    }

    /// When it is to be released, as it is used now.
    pub(super) fn ends(&self) -> Moment {
        let (since, usage) = (self.term.lock().since, self.usage.lock());
        let end = since + self.lasts;
        if usage.is_over {
            return since;
        }
        if usage.users > 0 || !usage.in_part.is_empty() {
            return end;
        }
        usage.last.map_or(since + UNUSED, |last| last + QUIET).max(usage.kept + QUIET).min(end)
    }

    /// When it is to be renewed: from the first third on, while there is progress. None where it is not, or it is too late.
    pub(super) fn renews(&self, now: Moment) -> Option<Moment> {
        let is_late = now >= self.until();
        let (term, usage) = (self.term.lock(), self.usage.lock());
        let may = term.spec.is_some() && term.renewals < MAX_RENEWALS && !is_late;
        (may && usage.has_progress && !usage.is_over).then(|| term.since + self.lasts / 3)
    }

    /// Whether the Lease is as the sharder wrote it. From a renewal on it lasts anew.
    pub(super) fn is(&self, lease: &LeaseSpec, now: Moment) -> bool {
        let term = &mut *self.term.lock();
        if let Some((since, spec)) = term.asked.take_if(|(_, spec)| spec == lease) {
            (term.since, term.spec, term.renewals) = (since, Some(spec), term.renewals + 1);
            let mut usage = self.usage.lock();
            // What waited for it comes now.
            (usage.has_progress, usage.last) = (false, Some(now));
        }
        term.spec.as_ref() == Some(lease)
    }
}
