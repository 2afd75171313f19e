//! What a checker is told.

use std::time::Duration;

use serde::Deserialize;

use super::report::Cause;

/// The uid of an object.
pub type Uid = String;

/// Something that happened, at the time at which it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time since the beginning of the run.
    pub at: Duration,
    /// What happened.
    pub event: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An instance is about to work on an object; it waits until this was taken in.
    Started {
        /// The object.
        uid: Uid,
        /// The generation that the instance saw; 0 of work that belongs to none, as that of a timer.
        generation: i64,
        /// The instance: unique to one life of a process.
        instance: String,
    },
    /// An instance has made its last write for an object.
    Ended {
        /// The object.
        uid: Uid,
        /// The generation that the instance worked on, or 0.
        generation: i64,
        /// The instance.
        instance: String,
        /// What came of it.
        outcome: Outcome,
    },
    /// An instance has ended, perhaps without a word: it works on nothing any more.
    Killed {
        /// The instance.
        instance: String,
    },
    /// The API server took a change of an object. A watch shows it a moment later, and perhaps not every generation.
    Written {
        /// The object.
        uid: Uid,
        /// Its namespace and name, for people.
        name: String,
        /// Its generation from then on.
        generation: i64,
    },
    /// A watch showed an object.
    Seen {
        /// The object.
        uid: Uid,
        /// Its namespace and name, for people.
        name: String,
        /// Its generation.
        generation: i64,
        /// The value of its shard label.
        shard: Option<String>,
    },
    /// A watch showed that an object was deleted.
    Gone {
        /// The object.
        uid: Uid,
    },
    /// A shard acquired its Lease.
    ShardAvailable {
        /// The shard.
        shard: String,
    },
    /// A shard released its Lease, or was declared dead.
    ShardUnavailable {
        /// The shard.
        shard: String,
        /// Which of the two.
        cause: Cause,
    },
}

/// What came of a reconcile.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Everything was written.
    Done,
    /// Something failed; the controller will try again.
    #[default]
    Failed,
    /// A child was to be created that existed already: it was made by an owner before.
    AlreadyExists,
}
