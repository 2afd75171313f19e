//! The rules for one object, one walk over all members at a time: slow, and plain enough to see that they are right.

use super::*;

/// The deadline has passed, and the shard can't write to the object any more once it is another's.
pub(super) const OVER: Drain = Drain::Overdue { fenced: true };

/// What is next for a main object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: it is where it belongs.
    Keep,
    /// Nothing yet: its shard was asked to release it and has not acknowledged.
    AwaitAcknowledgement,
    /// Nothing possible: no shard takes part in partitioning.
    NoShard,
    /// It has no shard: give it to `to`.
    Assign {
        /// The shard that the hash ring names.
        to: ShardName,
    },
    /// Its shard is available and must release it first: set the drain label.
    Drain {
        /// The shard that the hash ring names, for the log: the assignment decides again.
        to: ShardName,
    },
    /// Its shard released its Lease, is dead, or never was: move it without asking, once the sharder holds its Lease.
    Move {
        /// The shard that the hash ring names.
        to: ShardName,
    },
    /// Its shard has not released it in time, and can't write to it any more once it is another's: move it although no shard
    /// has acknowledged.
    Force {
        /// The shard that the hash ring names.
        to: ShardName,
    },
}

/// The shard that an object without owner is given to: the one that it belongs to, or while that one's Lease has expired
/// the one that it would belong to without those whose Leases have.
///
/// None where more than one process may work under each name ([`Members::sharing`]).
///
/// If such a shard is gone for good the object is where it belongs then; if the shard is back it belongs there again. So
/// it moves once more at most ([`next_step`] leaves it where it is until that is decided).
pub(super) fn receiver<'a>(key: &PartitionKey, members: &Members, ring: &'a HashRing) -> Option<&'a ShardName> {
    let home = ring.owner(key)?;
    if members.may_receive(home.as_str()) {
        return Some(home);
    }
    ring.owner_among(key, |shard| members.may_receive(shard.as_str()))
}

/// Decides what the sharder does next with a main object.
///
/// No object leaves its shard for one whose Lease has expired: that one may be gone. Nor for one whose controller is absent.
/// And none leaves its shard while Pods are being replaced, or for a shard that comes and goes: it would move again. All are
/// scanned when that is over. But what a shard without a working controller has goes to one that works, at any time.
///
/// A drain has until its deadline, also when the hash ring meanwhile names the same shard again. Behind the fence it is completed
/// in the shard's place then; its acknowledgement, should it come, tests labels that are no longer there.
pub(super) fn next_step(
    object: Ownership<'_>,
    drain: Drain,
    key: &PartitionKey,
    members: &Members,
    ring: &HashRing,
) -> Step {
    let (Some(home), Some(to)) = (ring.owner(key), receiver(key, members, ring)) else { return Step::NoShard };
    let to = to.clone();
    match object {
        Ownership { shard: None, .. } => Step::Assign { to },
        Ownership { shard: Some(shard), .. } if !members.is_available(shard) => Step::Move { to },
        Ownership { drain: Some(_), .. } if drain == OVER => Step::Force { to },
        Ownership { drain: Some(_), .. } => Step::AwaitAcknowledgement,
        Ownership { shard: Some(shard), .. } if to.as_str() != shard && members.is_relieved(shard) => {
            Step::Drain { to }
        }
        Ownership { shard: Some(shard), .. } if shard == home.as_str() => Step::Keep,
        Ownership { .. } if *home != to || members.are_replaced() || members.gives_away(to.as_str()) => Step::Keep,
        Ownership { .. } if members.unstable().contains(home) => Step::Keep,
        Ownership { .. } => Step::Drain { to },
    }
}
