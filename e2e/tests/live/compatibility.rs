//! The proxy speaks the whole API: each behaviour is asked for through it and without it, on a real API server, and
//! both answers must be the same, or that of the shard alone. What arrives at the API server is compared with what
//! was sent. `docs/dev/compatibility.md` is made from the results.
//!
//! All cases stand on one control plane. Each is a trial of its own: `cargo test --test compatibility -- watch` runs
//! those with `watch` in their name.

mod cases;
mod compare;
mod fixture;
mod objects;
mod query;
mod shard;
mod status;
mod stream;
mod table;

use ringside_e2e::compatibility::{changes, client, raw};

pub(crate) use self::table::group;
