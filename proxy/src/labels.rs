//! Hides the labels of the ring from the controller: a copy or a hash of an object's labels is the same on every shard.
//!
//! [`filter`] removes them from JSON that passes, [`websocket`] from the messages of a watch, and [`insert`] puts the shard's
//! label into an object that is written without it.

pub mod filter;
pub mod insert;
pub mod websocket;

pub use filter::{Filter, Keys};
