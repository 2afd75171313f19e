//! What the sharder does next with one object: one pure function for the controller, the webhook and `plan`.
//!
//! CONTRACT, "Handover". It knows shards by number, and time only as a deadline that has passed or has not. The write that
//! carries a decision out tests what the decision relied on ([`crate::patch`]). So two replicas that see different things
//! can't both succeed.

use std::{sync::Arc, time::Duration};

use crate::{
    members::{Members, Standing},
    name::ShardName,
    placement::{HashRing, ShardId},
};

/// What an object's shard label means by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// There is no label.
    Nobody,
    /// The shard is available: it may be working on the object.
    Available(ShardId),
    /// The shard does not take part any more, or never did. The caller holds its Lease before it writes.
    Gone,
}

/// How far a drain is: the shard was asked to release the object, and has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The deadline has not passed.
    InTime,
    /// The deadline has passed. `fenced`: the API server refuses what the shard writes to objects of others.
    Overdue {
        /// Whether the fence is around the shard, the object and its children.
        fenced: bool,
    },
}

impl Drain {
    /// Of a drain that was seen for `age`.
    pub fn after(age: Duration, deadline: Duration, fenced: bool) -> Self {
        if age < deadline { Self::InTime } else { Self::Overdue { fenced } }
    }
}

/// Whether the ring distributes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covered {
    /// It does.
    InRing,
    /// It does no longer: the object's namespace or resource left the ring.
    Leaving,
    /// It does not yet: the API server's fence is not in place, or not all shards know the resource.
    Withheld,
}

/// A main object, as far as a decision about it needs that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where its key stands on the hash ring ([`crate::PartitionKey::point`]).
    pub key: u64,
    /// What its shard label means.
    pub holder: Holder,
    /// How far its drain is; none without a drain label.
    pub drain: Option<Drain>,
    /// Whether the ring distributes it.
    pub covered: Covered,
}

/// What is known of an object's children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// Whether some are on another shard than the object, or may be.
    pub is_apart: bool,
}

/// What the sharder does next with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<Shard = ShardId> {
    /// Nothing: it is where it belongs, or has no labels to lose.
    Keep,
    /// Nothing: it belongs elsewhere, and would move twice if it moved now, or the ring is paused. It is decided again once that is
    /// over.
    Stay,
    /// Nothing possible: no shard may receive it.
    NoShard,
    /// Nothing yet.
    Wait(Waiting),
    /// Nothing: its drain has passed the deadline, and may be neither forced nor taken back. That is reported.
    Overdue,
    /// Take the drain label off again: its shard has not acknowledged in time, and works on the object again by that.
    TakeBack,
    /// Set the drain label: its shard is available and must acknowledge first.
    Drain {
        /// The shard that has it.
        from: Shard,
    },
    /// Bring its children to its shard.
    Gather {
        /// The shard that has the object.
        to: Shard,
    },
    /// Give it to a shard, its children first.
    Assign {
        /// The shard that gets it.
        to: Shard,
        /// On what ground.
        how: How,
    },
    /// Take its labels off, and then those of its children.
    Release,
}

/// What an object waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The acknowledgement of its shard.
    Acknowledgement,
    /// The ring to distribute it.
    Distribution,
}

/// On what ground an object gets a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It has none: it is new, or its shard acknowledged.
    Unassigned,
    /// Its shard is gone.
    Takeover,
    /// Its shard did not acknowledge in time, and the fence refuses what that shard writes from then on.
    Forced,
}

/// The shards of a ring as decisions need them: computed once, used for each object.
#[derive(Clone, Debug)]
pub struct View {
    ring: Arc<HashRing>,
    /// By number.
    shards: Vec<Standing>,
    /// Whether any shard with a place on the ring is a member.
    has_member: bool,
    /// Whether any of these may receive.
    has_receiver: bool,
    /// Whether Pods of shards are being replaced.
    is_rolling: bool,
    /// Whether the ring is paused.
    is_paused: bool,
}

impl View {
    /// `ring` is that of the available shards: of `members`, or of more, of which only these members count.
    pub fn new(members: &Members, ring: Arc<HashRing>) -> Self {
        let shards = members.standings(ring.shards());
        let placed = || shards.iter().zip(ring.shares()).filter(|(_, (_, share))| *share > 0).map(|(shard, _)| shard);
        let has_member = placed().any(|shard| shard.is_member);
        let has_receiver = placed().any(|shard| shard.may_receive);
        Self { has_member, has_receiver, is_rolling: members.are_replaced(), is_paused: false, ring, shards }
    }

    /// The same shards, of a ring that may be paused.
    #[must_use]
    pub fn paused(self, is_paused: bool) -> Self {
        Self { is_paused, ..self }
    }

    /// The hash ring.
    pub const fn ring(&self) -> &Arc<HashRing> {
        &self.ring
    }

    /// What a shard label means.
    pub fn holder(&self, label: Option<&str>) -> Holder {
        label.map_or(Holder::Nobody, |shard| self.ring.id(shard).map_or(Holder::Gone, Holder::Available))
    }

    /// The shard that an object without one is given to: its home, or the next one on the hash ring that may receive.
    ///
    /// If the home is gone for good, the object is where it belongs then. If it is back, the object belongs there again. So
    /// it moves once more at most.
    pub fn receiver(&self, key: u64) -> Option<ShardId> {
        self.has_receiver.then(|| self.ring.place_among(key, |shard| self.is(shard, |shard| shard.may_receive)))?
    }

    /// The shard that gets an object of which these children can't be written, where it was to go `to` another: the first that
    /// has one of them, is there, and keeps what it has. Where there is none, the children stay behind.
    pub fn receiver_beside(&self, to: ShardId, children: impl IntoIterator<Item = Holder>) -> ShardId {
        let mut children = children.into_iter();
        let can_have = |holder| match holder {
            Holder::Available(shard) if !self.is_relieved(shard) => Some(shard),
            _ => None,
        };
        children.find_map(can_have).unwrap_or(to)
    }

    /// Whether what a shard has is to go elsewhere, as its controller does not work or is about to end
    /// ([`Members::is_relieved`]).
    pub fn is_relieved(&self, shard: ShardId) -> bool {
        self.is(shard, |shard| shard.is_relieved)
    }

    /// The shard to which objects with this key belong.
    pub fn home(&self, key: u64) -> Option<ShardId> {
        self.has_member.then(|| self.ring.place_among(key, |shard| self.is(shard, |shard| shard.is_member)))?
    }

    /// The shard that objects with this key settle at, from wherever they are; none while some stay elsewhere.
    ///
    /// No object leaves its shard for one whose Lease has expired: that one may be gone. Nor for one whose controller is
    /// absent or about to end. And none leaves while Pods are being replaced, or for a shard that comes and goes: it would move again. In a paused
    /// ring none leaves at all.
    pub fn settles_at(&self, key: u64) -> Option<ShardId> {
        let home = self.home(key)?;
        let is_open = |shard: &Standing| shard.may_receive && !shard.gives_away && !shard.is_unstable;
        (!self.is_paused && !self.is_rolling && self.is(home, is_open)).then_some(home)
    }

    fn is(&self, shard: ShardId, what: impl Fn(&Standing) -> bool) -> bool {
        self.shards.get(shard.index()).is_some_and(what)
    }
}

impl Action {
    /// The same with names in place of numbers.
    pub fn named(self, view: &View) -> Action<ShardName> {
        // Every number is one of the view's.
        self.try_named(view).unwrap_or(Action::NoShard)
    }

    fn try_named(self, view: &View) -> Option<Action<ShardName>> {
        let name = |shard| view.ring.name(shard).cloned();
        Some(match self {
            Self::Keep => Action::Keep,
            Self::Stay => Action::Stay,
            Self::NoShard => Action::NoShard,
            Self::Wait(waiting) => Action::Wait(waiting),
            Self::Overdue => Action::Overdue,
            Self::TakeBack => Action::TakeBack,
            Self::Drain { from } => Action::Drain { from: name(from)? },
            Self::Gather { to } => Action::Gather { to: name(to)? },
            Self::Assign { to, how } => Action::Assign { to: name(to)?, how },
            Self::Release => Action::Release,
        })
    }
}

/// Decides what the sharder does next with an object.
pub fn decide(object: &Object, family: Family, view: &View) -> Action {
    match object.covered {
        Covered::InRing => place(object, family, view),
        Covered::Leaving => withdraw(object, view),
        Covered::Withheld => Action::Wait(Waiting::Distribution),
    }
}

/// A drain has until its deadline, also when the object belongs to the same shard again meanwhile.
///
/// Children that are apart are brought to the object first, unless its shard gives it away: then all move on.
fn place(object: &Object, family: Family, view: &View) -> Action {
    let Object { key, holder, drain, .. } = *object;
    match (holder, drain) {
        (Holder::Available(shard), None) if family.is_apart && !view.is_relieved(shard) => {
            return Action::Gather { to: shard };
        }
        (Holder::Available(_), Some(Drain::InTime)) => return Action::Wait(Waiting::Acknowledgement),
        (Holder::Available(shard), Some(Drain::Overdue { fenced: false })) => return overdue(shard, family, view),
        _ => {}
    }
    let Some(to) = view.receiver(key) else { return Action::NoShard };
    match (holder, drain) {
        (Holder::Nobody, _) => Action::Assign { to, how: How::Unassigned },
        (Holder::Gone, _) => Action::Assign { to, how: How::Takeover },
        (Holder::Available(_), Some(_)) => Action::Assign { to, how: How::Forced },
        (Holder::Available(shard), None) => compare(shard, to, key, view),
    }
}

/// What becomes of an object of the ring that `shard` has not released in time, and that may not be taken from it.
///
/// The drain is taken back, whatever it was for: other shards, another weight, or a shard that left its group. So the object is
/// worked on again. The write tests the drain's value, as the acknowledgement does: one of them wins. Exceptions:
/// - The fence stands around the shard: the move is forced, and nothing is taken back.
/// - A child is with another shard, by a move that was forced while the fence stood: its owner would be apart from it.
/// - The shard gives its objects away, and others have a working controller: it would be asked for the object again at once.
/// - The object leaves the ring ([`withdraw`]): no shard is to work on it.
fn overdue(shard: ShardId, family: Family, view: &View) -> Action {
    if family.is_apart || view.is_relieved(shard) { Action::Overdue } else { Action::TakeBack }
}

/// What becomes of an object that `shard` has and that would be given `to` another, or the same, if it had none.
///
/// What a shard has whose controller does not work, or is about to end, goes to one that works, at any time.
fn compare(shard: ShardId, to: ShardId, key: u64, view: &View) -> Action {
    if shard == to {
        Action::Keep
    } else if view.is_relieved(shard) {
        Action::Drain { from: shard }
    } else if view.home(key) == Some(shard) {
        Action::Keep
    } else if view.settles_at(key).is_none() {
        Action::Stay
    } else {
        Action::Drain { from: shard }
    }
}

/// The labels come off in the order of a handover: the object's shard may be working on it. No drain is taken back.
fn withdraw(object: &Object, view: &View) -> Action {
    match (object.holder, object.drain) {
        (Holder::Nobody, None) => Action::Keep,
        (Holder::Available(_), None) if view.is_paused => Action::Stay,
        (Holder::Available(from), None) => Action::Drain { from },
        (Holder::Available(_), Some(Drain::InTime)) => Action::Wait(Waiting::Acknowledgement),
        (Holder::Available(_), Some(Drain::Overdue { fenced: false })) => Action::Overdue,
        (Holder::Available(_), Some(Drain::Overdue { fenced: true })) | (Holder::Nobody | Holder::Gone, _) => {
            Action::Release
        }
    }
}

#[cfg(test)]
mod tests;
