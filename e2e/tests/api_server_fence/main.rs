//! The API server's fence, alone: shards with real pod-bound tokens write to the API server itself, with no proxy between
//! that would refuse anything.
#![allow(clippy::unwrap_used)]

mod forced;
mod ground;
mod kept;
mod others;
mod tricks;
mod unseen;
mod whole;
mod writes;
