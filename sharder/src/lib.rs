//! The sharder: watches rings and shard Leases, assigns objects, moves them, answers the admission webhook.
//!
//! It carries out what `ringside-ring` decides. Arrows between its rooms point one way:
//!
//! ```text
//! config → leases → snapshot → assign → rebalance → distribute → leader → run
//!                      ├─────→ rings  ───────────────────────────↗       ↗
//!                      ├─────→ cleanup ──────────────────────────↗      ↗
//!                      └─────→ webhook ─────────────────────────────────
//! ```
//!
//! `command` starts `run`, or `cleanup` alone.
//!
//! Every replica runs the watches and the webhook; one of them leads and does the rest (`leader`).

mod assign;
mod cleanup;
mod command;
mod config;
mod crd;
mod distribute;
mod drains;
mod faults;
mod fence;
#[cfg(test)]
mod fixtures;
mod leader;
mod leases;
mod metrics;
mod namespaces;
mod notices;
mod observe;
mod owners;
mod pauses;
mod rebalance;
mod resources;
mod rings;
mod run;
mod snapshot;
mod target;
mod webhook;

pub use command::{Cleanup, CleanupError, Command, CommandError, Report};
pub use config::{Config, Options, WebhookUrl};
pub use run::{RunError, run};

/// Who the sharder is to server-side apply.
const FIELD_MANAGER: &str = "ringside-sharder";
