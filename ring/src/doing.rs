//! What a proxy is doing now, as its admin server tells those who ask.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the admin server answers.
pub const PATH: &str = "/doing";
/// Where it is asked to have the shard leave, with the seconds for that behind it.
pub const LEAVE: &str = "/leave";
/// Where it answers once the shard has left.
pub const LEFT: &str = "/left";

/// Returns a time as it is told, in milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a proxy is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Doing {
    /// The ring that it is of.
    pub ring: String,
    /// Why the shard Lease is not held; none while it is.
    pub lease_lost: Option<String>,
    /// The state of the controller, as the Lease says it; none where that is not known yet.
    pub controller: Option<String>,
    /// How many objects it was asked to release, and has not.
    pub draining: usize,
    /// Those of them that began first.
    pub drains: Vec<Drain>,
    /// How many streams and lists of the controller are open, or may be gone on from.
    pub open: usize,
    /// Those that began first.
    pub streams: Vec<Stream>,
    /// Writes without an answer, those included that the controller has given up.
    pub writes: usize,
    /// The age of the oldest of these, in milliseconds.
    pub oldest_write_millis: u64,
    /// The locks by which the controller may lead.
    pub leads_by: Vec<String>,
    /// A lock of another replica that the controller waits for.
    pub waits_for_lock: Option<String>,
}

/// An object that is to be released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// `RESOURCE.GROUP`.
    pub resource: String,
    /// `NAMESPACE/NAME`.
    pub object: String,
    /// What it waits for, for people.
    pub waits_for: String,
    /// For how long, in milliseconds.
    pub millis: u64,
}

/// A watch or a list of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stream {
    /// `RESOURCE.GROUP`.
    pub resource: String,
    /// Whether it is a watch, and no list.
    pub is_watch: bool,
    /// How far it is.
    pub state: StreamState,
    /// The resourceVersion that its client has been shown; none before that is known.
    pub version: Option<String>,
    /// What its client calls itself.
    pub client: String,
    /// The bytes that wait here for its client.
    pub unread: usize,
    /// How long ago the API server answered, or else was asked, in milliseconds.
    pub millis: u64,
}

/// How far a watch or a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamState {
    /// The API server has not answered yet.
    Opening,
    /// It is open.
    Open,
    /// It has ended, and its client may go on from it: it holds what it has shown until then.
    Ended,
}
