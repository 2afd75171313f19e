//! What the leader is doing now, for those who ask: moves with what each waits for, takeovers, refused objects, writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the admin server answers.
pub const PATH: &str = "/moves";

/// What a replica of the sharder is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Doing {
    /// Whether it leads. Others do nothing that is listed here.
    pub leads: bool,
    /// Its writes to objects.
    pub writes: WritesNow,
    /// Its work on each ring, by the ring's name.
    pub rings: BTreeMap<String, OfRing>,
}

/// The writes to objects of all rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WritesNow {
    /// So many wait for an answer.
    pub under_way: usize,
    /// So many may at once: less where the API server is slow or asks for a pause.
    pub limit: usize,
}

/// The work on one ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfRing {
    /// How many objects are on the move.
    pub moving: usize,
    /// Those of them that are between two shards: the grace is over, and the next shard has them not yet.
    pub between: usize,
    /// So many may be between two shards before others begin.
    pub places: usize,
    /// The moves that began first.
    pub oldest: Vec<Move>,
    /// By shard that is gone, how many of its objects wait until the sharder holds its Lease.
    pub takeovers: BTreeMap<String, usize>,
    /// By resource, the objects whose labels the API server refuses to write.
    pub refused: BTreeMap<String, RefusedNow>,
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// `RESOURCE.GROUP`.
    pub resource: String,
    /// `NAMESPACE/NAME`.
    pub object: String,
    /// The shard that had it.
    pub from: String,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// For how long, in milliseconds.
    pub millis: u64,
}

/// What a move waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WaitsFor {
    /// The API server's answer to the drain label.
    Drain,
    /// The grace that the shard promised.
    Grace,
    /// The shard, whose grace is over.
    Release,
    /// The label of the next shard, on its children and on itself.
    Shard,
}

/// Objects of a resource that are refused for good, or for a minute and longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedNow {
    /// How many.
    pub objects: usize,
    /// The one that has waited for the longest, as `NAMESPACE/NAME`.
    pub first: String,
    /// Why, in the API server's words.
    pub why: String,
}
