//! The contract of Ringside: everything that sharder, proxy and shards that shard themselves must agree on.
//!
//! Types and pure functions only: no I/O, no async, and no clock of its own. Time is an argument
//! ([`Moment`]), randomness is an argument, and each rule stands here once, with its properties tested.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`cluster_ring`] | the spec and the status of a ring; [`manifest`] makes the CustomResourceDefinitions |
//! | [`kind`] | the two kinds of ring, by the names in which they differ |
//! | [`ring`] | a ring of either kind, as the API server has it |
//! | [`name`] | which ring and shard names are possible at all |
//! | [`labels`] | the keys and values of all labels |
//! | [`lease`] | the state of a shard Lease, and when it changes next |
//! | [`controller`] | whether the controller of a shard works |
//! | [`grace`] | how long a shard keeps still about an object before it releases it |
//! | [`members`] | the shards of a ring and which of them take part in partitioning |
//! | [`generation`] | which Pods of a Deployment are about to be replaced |
//! | [`partition`] | the key of an object |
//! | [`placed_by`] | objects that have one key, so that they are together |
//! | [`placement`] | the hash ring: from key to shard |
//! | [`decide`] | what the sharder does next with an object |
//! | [`handover`] | the next step for an object, at the sharder, the webhook and the proxy |
//! | [`patch`] | the writes that carry out those steps, each testing what it relies on |
//! | [`weight`] | how much of the objects a shard gets |
//! | [`doing`] | what a proxy tells of its work |
//! | [`resource_version`] | the order of resourceVersions |
//! | [`rights`] | the permissions of a ring's sharder and proxies |

pub mod cluster_ring;
pub mod controller;
pub mod decide;
pub mod doing;
pub mod generation;
pub mod grace;
pub mod handover;
pub mod kind;
pub mod labels;
pub mod lease;
pub mod manifest;
pub mod members;
pub mod moment;
pub mod name;
pub mod partition;
pub mod patch;
pub mod placed_by;
pub mod placement;
pub mod resource_version;
pub mod rights;
pub mod ring;
mod schema;
pub mod weight;

pub use cluster_ring::ClusterRing;
pub use controller::Controller;
pub use grace::Grace;
pub use kind::RingKind;
pub use labels::{Ownership, RingLabels};
pub use members::Members;
pub use moment::Moment;
pub use name::{RingName, ShardName};
pub use partition::PartitionKey;
pub use placed_by::PlacedBy;
pub use placement::HashRing;
pub use resource_version::ResourceVersion;
pub use ring::Ring;
pub use weight::Weight;

/// How long the API server may still carry out a request that its client has left: the handler goes on until its own deadline of 34 s
/// (tried).
pub const REQUEST_LIFETIME: core::time::Duration = core::time::Duration::from_secs(35);

/// How many controllers may stand above an object, one above the other: more than any chain of resources has.
pub const MAX_OWNER_DEPTH: usize = 8;
