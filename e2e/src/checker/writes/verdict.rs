//! What the writes come to.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{Change, Write};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Writes of a shard to objects, or for owners, that were another's.
    pub foreign: Vec<Landed>,
    /// Writes of a shard to objects that had no owner any more.
    pub late: Vec<Landed>,
    /// Objects that shards lost without having released them.
    pub lost: Vec<Landed>,
    /// Those that the sharder took from shards which had been asked, and had not released them.
    pub forced: Vec<Landed>,
    /// Creates of shards that were refused, as there was such an object, and children that were created once more.
    pub second_creates: Vec<Landed>,
    /// Creates of shards that were refused, because an owner that was gone by then had left what was in the way, or was the one
    /// that it was to be made for.
    pub of_the_gone: usize,
    /// The same, because the shard had made it itself within a second before, and no other shard had it since.
    pub just_made: usize,
    /// Children that were deleted, by any client, while their owner was there.
    pub deleted: Vec<Landed>,
    /// Children that left a shard while it worked on their owner.
    pub overtaken: Vec<Landed>,
    /// Children that were not there when their owner came to its next shard.
    pub left_behind: Vec<Landed>,
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

/// A write by which a promise is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The request's audit id.
    pub id: String,
    /// The shard that wrote, or lost the object; of a child its own; empty where there is none.
    pub shard: String,
    /// What the write did.
    pub change: Change,
    /// Resource, namespace and name of the object.
    pub object: String,
    /// The version that came of it; of a child left behind, the one of its owner.
    pub version: String,
    /// When the API server got it.
    pub received: Timestamp,
    /// When the API server answered it.
    pub answered: Timestamp,
    /// Whose the object was; of what was lost, whose it is since; of a child, its owner's shard; of a create that was refused,
    /// whose what was in the way.
    pub owner: Option<String>,
    /// For how long the shard had been asked to release it by then, where it had been.
    pub drained: Option<Duration>,
    /// Of a create that was refused: when what was in the way came to its owner, if it had been another's.
    pub moved: Option<Timestamp>,
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
    /// Whether no shard wrote what was another's, was kept from what was its own, or lost that without having released
    /// it. And no child was created twice, deleted, or apart from its owner.
    pub fn is_clean(&self) -> bool {
        self.unknown == 0 && self.faults().iter().all(|(_, found)| found.is_empty())
    }

    /// What may not be, and what was found of each.
    pub fn faults(&self) -> [(&'static str, &[Landed]); 9] {
        [
            ("foreign writes that landed", &self.foreign),
            ("writes that landed on what had no owner", &self.late),
            ("objects lost without an acknowledgement", &self.lost),
            ("objects taken before their drain was overdue", &self.forced),
            ("second creates of children", &self.second_creates),
            ("children deleted while their owner was there", &self.deleted),
            ("children moved before their owner was released", &self.overtaken),
            ("children left behind", &self.left_behind),
            ("writes of owners that the fence refused", &self.barred),
        ]
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
    pub(super) fn of(write: &Write, shard: Option<&str>, owner: Option<&str>) -> Self {
        Self {
            id: write.id.clone(),
            shard: shard.unwrap_or_default().to_owned(),
            change: write.change,
            object: format!("{} {}", write.resource, write.object.name),
            version: write.object.version.as_ref().map(ToString::to_string).unwrap_or_default(),
            received: write.received,
            answered: write.answered,
            owner: owner.map(str::to_owned),
            drained: None,
            moved: None,
        }
    }
}
