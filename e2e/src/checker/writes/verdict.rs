//! What the writes come to.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{Change, Write, history::Version};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Writes of a shard to objects, or for owners, that were another's.
    pub foreign: Vec<Landed>,
    /// Writes of a shard to objects that were nobody's any more.
    pub late: Vec<Landed>,
    /// Objects that shards lost without having let go of them.
    pub lost: Vec<Lost>,
    /// Those that the sharder took from shards which had been asked, and had not let go.
    pub forced: Vec<Lost>,
    /// Creates of shards that were refused, as there was such an object, and children that were created once more.
    pub second_creates: Vec<Landed>,
    /// Creates of shards that were refused, because an owner that was gone by then had left what was in the way, or was the one
    /// that it was to be made for.
    pub of_the_gone: usize,
    /// The same, because the shard had made it itself within a second before, and nobody else had it since.
    pub just_made: usize,
    /// Children that were deleted, by whomever, while their owner was there.
    pub deleted: Vec<Child>,
    /// Children that left a shard while it worked on their owner.
    pub overtaken: Vec<Child>,
    /// Children that were not there when their owner came to its next shard.
    pub left_behind: Vec<Child>,
    /// Writes of shards to what was their own that the API server's fence refused.
    pub barred: Vec<Landed>,
    /// How many writes of former owners it refused.
    pub kept_out: usize,
    /// Every move that was acknowledged, in no order.
    pub handovers: Vec<Handover>,
    /// Writes of shards to objects of which nothing is known.
    pub unknown: usize,
    /// How many writes of shards were judged.
    pub by_shards: usize,
}

/// A write of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The request's audit id.
    pub id: String,
    /// Which shard's.
    pub shard: String,
    /// What it did.
    pub change: Change,
    /// Resource, namespace and name of the object.
    pub object: String,
    /// The version that came of it.
    pub version: String,
    /// When the API server got it.
    pub received: Timestamp,
    /// When the API server answered it.
    pub answered: Timestamp,
    /// Whose the object was; of a create that was refused, whose what was in the way.
    pub owner: Option<String>,
    /// Of a create that was refused: when what was in the way came to its owner, if it had been another's.
    pub moved: Option<Timestamp>,
}

/// An object whose shard held its Lease, and lost it all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Resource, namespace and name.
    pub object: String,
    /// The shard.
    pub shard: String,
    /// Whose it was then.
    pub to: Option<String>,
    /// The audit id of the write that did it.
    pub id: String,
    /// The version that came of that.
    pub version: String,
    /// When it was answered.
    pub at: Timestamp,
    /// For how long the shard had been asked to let go by then; zero where it had not been.
    pub drained: Duration,
}

/// A child that was elsewhere than its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Resource, namespace and name.
    pub object: String,
    /// Its owner's shard.
    pub owner: Option<String>,
    /// Its own.
    pub shard: Option<String>,
    /// The version of the write that parted them.
    pub version: String,
    /// When that was answered.
    pub at: Timestamp,
    /// For how long its owner's shard had been asked to let go by then.
    pub drained: Option<Duration>,
}

/// A move that was acknowledged, as the API server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The shard that was asked, and the next one.
    pub between: [String; 2],
    /// From the answer to the drain to that to the acknowledgement.
    pub let_go: Duration,
    /// From there to the next shard's label.
    pub assigned: Duration,
    /// From the drain to the answer to the shard's last write to the object, or to what follows it: only there the grace
    /// begins (DESIGN, "Handover", 2 c). Zero where it wrote nothing any more.
    pub busy: Duration,
    /// What it took besides that.
    pub stages: Stages,
    /// When it was over.
    pub at: Timestamp,
}

/// What a move consists of, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// From the drain, or the shard's last write, to the arrival of the acknowledgement: the grace, and what is longer.
    pub rest: Duration,
    /// To its answer.
    pub acknowledgement: Duration,
    /// Until the sharder writes: it has seen the object, and knows what follows it.
    pub search: Duration,
    /// Until all that follows it is moved.
    pub children: Duration,
    /// Until it has its next shard.
    pub assignment: Duration,
}

impl Verdict {
    /// Whether nobody wrote what was not his, or was kept from what was, or lost it without having let go, and no child was
    /// created twice, deleted, or apart from its owner.
    pub fn is_clean(&self) -> bool {
        self.foreign.is_empty()
            && self.late.is_empty()
            && self.lost.is_empty()
            && self.forced.is_empty()
            && self.unknown == 0
            && self.barred.is_empty()
            && self.second_creates.is_empty()
            && self.deleted.is_empty()
            && self.overtaken.is_empty()
            && self.left_behind.is_empty()
    }

    /// What the moves took beyond the `grace`: shortest first.
    pub fn beyond(&self, grace: Duration) -> Vec<Duration> {
        let mut times: Vec<_> = self.handovers.iter().map(|one| one.beyond(grace)).collect();
        times.sort_unstable();
        times
    }
}

impl Handover {
    /// From the drain to the next owner.
    pub fn whole(&self) -> Duration {
        self.let_go + self.assigned
    }

    /// What it took beyond the grace, which begins with the drain, or with the last write of the shard that was still at
    /// work on the object: for that everybody waits who must not work beside it.
    pub fn beyond(&self, grace: Duration) -> Duration {
        self.whole().saturating_sub(self.busy + grace)
    }
}

impl Landed {
    pub(super) fn of(write: &Write, shard: String, owner: Option<String>) -> Self {
        Self {
            id: write.id.clone(),
            shard,
            change: write.change,
            object: named(write),
            version: version(write),
            received: write.received,
            answered: write.answered,
            owner,
            moved: None,
        }
    }
}

impl Lost {
    pub(super) fn of(version: &Version, shard: &str, drained: Duration) -> Self {
        Self {
            object: named(&version.write),
            shard: shard.to_owned(),
            to: version.labels.shard.clone(),
            id: version.write.id.clone(),
            version: self::version(&version.write),
            at: version.write.answered,
            drained,
        }
    }
}

impl Child {
    pub(super) fn of(child: &Version, owner: Option<&str>, at: &Version) -> Self {
        Self {
            object: named(&child.write),
            owner: owner.map(str::to_owned),
            shard: child.labels.shard.clone(),
            version: version(&at.write),
            at: at.write.answered,
            drained: None,
        }
    }
}

fn named(write: &Write) -> String {
    format!("{} {}", write.resource, write.object.name)
}

fn version(write: &Write) -> String {
    write.object.version.as_ref().map(ToString::to_string).unwrap_or_default()
}
