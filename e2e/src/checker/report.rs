//! What a checker found.

use std::{collections::BTreeMap, time::Duration};

use super::record::Uid;

/// The verdict, with what it rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that two instances worked on at once.
    pub overlaps: Vec<Overlap>,
    /// Objects that no shard worked on, or owned, for too long.
    pub forgotten: Vec<Forgotten>,
    /// Times without an owner, those not ended yet included.
    pub gaps: Vec<Gap>,
    /// Children that are not beside their owners at the end.
    pub apart: Vec<Apart>,
    /// How many times a child was created that existed already.
    pub second_creates: usize,
    /// Reconciles that came to a good end, by instance.
    pub reconciles: BTreeMap<String, usize>,
    /// Objects by shard, as their labels say at the end.
    pub objects: BTreeMap<String, usize>,
}

/// An object that two instances worked on at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The object.
    pub uid: Uid,
    /// Who worked on it first, and since when.
    pub first: (String, Duration),
    /// Who began while the first had not ended, and when.
    pub second: (String, Duration),
}

/// An object that no shard worked on, or owned, for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The object.
    pub uid: Uid,
    /// Its namespace and name.
    pub name: String,
    /// The generation that was not worked on; `None` when the object had no owner.
    pub generation: Option<i64>,
    /// For how long.
    pub waited: Duration,
}

/// A child that is not beside its owner: the owner's shard does not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The child's kind.
    pub kind: String,
    /// Namespace and name of the owner.
    pub owner: String,
    /// The owner's shard.
    pub owner_shard: Option<String>,
    /// The child's shard; `None` also where there is no child.
    pub child_shard: Option<String>,
}

/// Why an object had no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It was new.
    Created,
    /// Its owner acknowledged a drain, or a client took the label off.
    Unassigned,
    /// Its shard released its Lease.
    Released,
    /// Its shard was declared dead.
    Dead,
}

/// A time in which an object had no owner that was available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The object.
    pub uid: Uid,
    /// Its namespace and name.
    pub name: String,
    /// Why.
    pub cause: Cause,
    /// The write that took the owner away.
    pub from: Duration,
    /// The write that named the next one; `None` while there is none.
    pub until: Option<Duration>,
}

impl Report {
    /// Whether the promises were kept.
    pub fn is_clean(&self) -> bool {
        self.overlaps.is_empty() && self.forgotten.is_empty() && self.apart.is_empty()
    }

    /// The times without owner for this cause, shortest first; those not ended yet are left out, because
    /// [`Report::forgotten`] has them once they matter.
    pub fn times_without_owner(&self, cause: Cause) -> Vec<Duration> {
        let ended = |gap: &Gap| (gap.cause == cause).then(|| Some(gap.until?.saturating_sub(gap.from))).flatten();
        let mut times: Vec<_> = self.gaps.iter().filter_map(ended).collect();
        times.sort_unstable();
        times
    }
}

/// The value below or at which `percent` of the sorted `times` lie (nearest rank).
pub fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.max(1) - 1).copied()
}

/// One of each fault, of the object of this name.
#[cfg(test)]
pub(crate) mod samples {
    use k8s_openapi::jiff::Timestamp;

    use super::{
        super::writes::{Change, Landed},
        Apart, Duration, Forgotten, Overlap,
    };

    pub(crate) fn overlap() -> Overlap {
        let at = |instance: &str, millis| (instance.to_owned(), Duration::from_millis(millis));
        Overlap { uid: "u".to_owned(), first: at("a.1", 0), second: at("b.2", 7) }
    }

    pub(crate) fn forgotten(name: &str) -> Forgotten {
        Forgotten { uid: "u".to_owned(), name: name.to_owned(), generation: Some(4), waited: Duration::from_secs(20) }
    }

    pub(crate) fn apart(owner: &str) -> Apart {
        let [kind, owner, shard] = ["Secret", owner, "b"].map(str::to_owned);
        Apart { kind, owner, owner_shard: Some(shard), child_shard: None }
    }
    pub(crate) fn landed(name: &str) -> Landed {
        let [id, shard, version, next] = ["id", "a", "7", "b"].map(str::to_owned);
        let (object, owner) = (format!("websites {name}"), Some(next));
        let (change, received, answered) = (Change::Updated, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        Landed { id, shard, change, object, version, received, answered, owner, drained: None, moved: None }
    }
}
