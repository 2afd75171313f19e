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
/// One Lease that is held.
#[derive(Debug)]
pub(in crate::leases) struct Held {
    pub(super) name: Name,
    /// How long the shard waits.
    pub(super) lasts: Duration,
    /// Until when something is begun under it: the rest is for its end.
    pub(super) begins_until: Moment,
    /// Where both are locked, this one is first.
    pub(super) term: Mutex<Term, { rank::HOLD }>,
    pub(super) usage: Mutex<Usage>,
}

/// For how long a Lease is held.
#[derive(Debug)]
pub(super) struct Term {
    /// Before the request.
    pub(super) since: Moment,
    /// As the sharder wrote it; none where the Lease of this name is no shard's, or there can be none.
    pub(super) spec: Option<LeaseSpec>,
    pub(super) extension: Extension,
}

/// A hold lasts once more for families of which not all has moved.
#[derive(Debug)]
pub(super) enum Extension {
    NotNeeded,
    /// It was asked for, at first at this time: the Lease is to be this.
    Asked(Moment, LeaseSpec),
    Done,
}

#[derive(Debug)]
pub(super) struct Usage {
    pub(super) users: usize,
    /// The families that were begun and have not moved to their end, by uid of the object.
    pub(super) in_part: BTreeSet<String>,
    /// Nothing is written under it any more.
    pub(super) is_over: bool,
    /// When it was last used.
    pub(super) last: Option<Moment>,
    /// Until when writes without an answer may be carried out.
    pub(super) kept: Moment,
}

impl Held {
    /// `lasts`: how long the shard waits, from any time after `since`.
    pub(in crate::leases) fn new(name: Name, spec: Option<LeaseSpec>, since: Moment, lasts: Duration) -> Self {
        let usage = Usage { users: 0, in_part: BTreeSet::new(), is_over: false, last: None, kept: since };
        let term = Term { since, spec, extension: Extension::NotNeeded };
        Self { name, lasts, begins_until: since + lasts / 2, term: Mutex::new(term), usage: Mutex::new(usage) }
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

    /// Whether a family may be begun, or one that was begun be ended.
    pub(super) fn takes(&self, uid: &str, now: Moment) -> bool {
        let (until, usage) = (self.until(), self.usage.lock());
        let may_begin = now < self.begins_until || usage.in_part.contains(uid);
        may_begin && !usage.is_over && now < until
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

    /// When it is to be acquired again, as it is used now; never once it is too late for that.
    pub(super) fn extends(&self, now: Moment) -> Option<Moment> {
        let is_late = now >= self.until();
        let (term, usage) = (self.term.lock(), self.usage.lock());
        let may = term.spec.is_some() && !is_late && !matches!(term.extension, Extension::Done);
        (may && !usage.is_over && !usage.in_part.is_empty()).then(|| term.since + self.lasts / 10 * 6)
    }

    /// Whether the Lease is as the sharder wrote it. From an extension on it lasts once more.
    pub(super) fn is(&self, lease: &LeaseSpec) -> bool {
        let term = &mut *self.term.lock();
        match &term.extension {
            Extension::Asked(since, spec) if spec == lease => {
                (term.since, term.spec) = (*since, Some(lease.clone()));
                term.extension = Extension::Done;
                true
            }
            Extension::NotNeeded | Extension::Asked(..) | Extension::Done => term.spec.as_ref() == Some(lease),
        }
    }
}
