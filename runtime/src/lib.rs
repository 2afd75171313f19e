//! What both binaries need around their work: a clock, supervised tasks, shutdown, an admin server and who asks it, a
//! Lease that is kept, a connection to the API server and what is served there, certificates, configuration
//! faults, logs.
//!
//! Nothing here knows about sharding; the contract is in `ringside-ring`, the work in the two binaries.

pub mod admin;
pub mod certificates;
pub mod client;
pub mod clock;
pub mod config;
pub mod connection_limit;
pub mod contained;
pub mod discovery;
pub mod explain;
pub mod heartbeat;
pub mod lease;
pub mod listen;
pub mod logging;
mod no_answer;
pub mod probe;
pub mod shutdown;
pub mod tasks;
