//! The handover, small enough to try every order of events: objects, Leases, shards, sharder replicas, the webhook, lagging
//! reads; messages that are late, lost or overtaken; shards that stand still, die and come
//! back, and proxies that do so beside their controllers.
//!
//! What is decided is decided by the functions of `ringside-ring` themselves: the next step of an object, with the ring's
//! patience, the state of a Lease, to whom an object is given, the webhook's verdict; and the writes are its JSON patches,
//! applied to JSON. What the proxy decides (when an acknowledgement may be sent, when the gate is open) stands here a second
//! time, as DESIGN has it; what a watch says without the Lease is not tried.
//!
//! These promises are checked in every state (`promises`):
//! - at most one shard acts on an object, but where one is taken by force behind the fence; and no write of a former owner
//!   lands while it could have been waited for;
//! - where an object is, there is its child. Each is written by itself. So a write without answer can part them, or the end of a
//!   hold, where no sharder could know: then they come together again;
//! - nothing is taken over from a shard that is gone but under a hold on its Lease;
//! - from here, a run without further faults settles, with every object at its shard, and its child too. Said of every state it
//!   is a safety property: no circle of states can feign progress.
//!
//! A hold ends at any time, for all at once: that each knows it early enough by its own clock is the contract's. What was sent
//! under it has ended by then. Its renewal is carried out at any time, also after that, and when another leads. Not tried are two processes of one name, a child that changes its controller, and an API server
//! that has the fence later than another.
//!
//! How much time is tried: with three ticks a shard's Lease can lapse, be taken, and come back. The renewals of a shard that is
//! `steady` take none. With three shards and both objects two of them are, or all but who dies or stands still. Where a mistake
//! is sought, two shards and one object may do: one of them is steady then, or none.
//!
//! [`Mistake`]s are ways to build it wrong. The model must find each: a model that finds nothing proves nothing.
//! And it must find nothing in the same case without the mistake: a broken model finds each of them too.

mod actions;
mod canonical;
mod cluster;
mod config;
mod leases;
mod promises;
mod queue;
mod settle;
mod sharders;
mod shards;
mod state;

pub use actions::Action;
pub use config::{Budget, Case, Handover, Mistake};
pub use promises::{CHILD_FIRST, HELD, NO_FOREIGN_WRITE, ONE_WORKS, ONE_WRITES, SETTLES};
pub use state::State;
