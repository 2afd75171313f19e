//! The sharder: watches rings and shard Leases, assigns objects, moves them, answers the admission webhook.
//!
//! It carries out what `ringside-ring` decides. Each room uses those below it alone, which a test of the tree looks after:
//!
//! ```text
//! run
//! leader, observe                               what one replica does, what each does
//! status      webhook      cleanup, leftovers   what users and the API server are told; new objects; labels off
//! injector, probe          reconcile            what is kept in the cluster; distribution
//! fence, keep              queue, write, child  the API server's fence; how objects are written
//! index                    leases, rolls        what is seen of objects, and of shards
//! snapshot, groups, resources, rings, namespaces
//! config, api_error, belonging, lock, news, pauses
//! ```
//!
//! `command` is what the program `ringside` runs: `cleanup` alone, and `plan`, which only says what `run` would do.
//!
//! Every replica runs the watches and the webhook; one of them leads and does the rest (`leader`).

mod admin;
mod api_error;
mod belonging;
mod candidate;
mod cel;
mod child;
mod cleanup;
mod client_config;
mod command;
mod config;
pub mod doing;
mod drains;
mod failed_moves;
mod faults;
mod fence;
#[cfg(test)]
mod fixtures;
mod groups;
mod index;
mod injector;
mod keep;
mod leader;
mod leases;
mod leftovers;
mod lock;
mod metrics;
mod move_id;
mod mutating_policies;
mod namespaces;
mod news;
mod notices;
mod observe;
mod owners;
mod pages;
mod pauses;
mod probe;
mod queue;
mod reconcile;
mod release;
mod resources;
mod rings;
mod rolls;
mod run;
mod snapshot;
mod status;
mod target;
mod verdict;
mod webhook;
mod write;
mod writes;

#[cfg(any(test, fuzzing))]
pub use webhook::fuzzing;

pub use candidate::{ELECTION, parts_of};
pub use command::{AddedShard, Cleanup, CleanupError, Forecast, Plan, PlanError, Report};
pub use config::{CertificateSource, Config, FailurePolicy, Injector, Options, WebhookUrl, parse_tokens};
pub use move_id::age as move_age;
pub use run::{RunError, run};

/// Who the sharder is to server-side apply.
const FIELD_MANAGER: &str = "ringside-sharder";

/// As the API server knows what the sharder asks.
const AGENT: &str = concat!("ringside-sharder/", env!("CARGO_PKG_VERSION"));
