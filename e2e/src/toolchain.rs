//! The programs that a live test runs: found where a user may have them, else built once and cached under `target/`.
//!
//! Everything here blocks, for minutes where a control plane has to be compiled: async callers use
//! `tokio::task::spawn_blocking`.

mod before;
mod cache;
mod environment;
mod go;
mod libraries;
mod need;
mod operators;
mod programs;
mod progress;
mod version;
mod workspace;

use std::{path::Path, process::ExitStatus, sync::OnceLock};

use anyhow::anyhow;

pub use before::{Before, ringside_before, without_history};
pub use environment::{Environment, choose};
pub use libraries::{java, python};
pub use need::Need;
pub(crate) use need::seal;
pub use operators::Operator;
pub use programs::{
    ControlPlanePrograms, NodePrograms, cert_manager, control_plane, elector, external_secrets, guest, helm,
    kube_controller_manager, kubectl, neighbouring_api_server, node, operator, other_sharder, own_shard,
};
pub(crate) use progress::say;
pub use version::Minor;
pub use workspace::{RingsidePrograms, ringside, ringside_static, rust_elector};

/// Finds or builds a program. That blocks, perhaps for minutes, so it has a thread of its own.
pub async fn built<T: Send + 'static>(build: fn(&Environment) -> anyhow::Result<T>) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(move || build(&Environment::of_process())).await?
}

/// The version of the API servers that this process starts, where it is known.
pub fn minor() -> Option<Minor> {
    static MINOR: OnceLock<Option<Minor>> = OnceLock::new();
    *MINOR.get_or_init(|| programs::kubernetes(&Environment::of_process()).ok())
}

/// Says how a build failed, with the end of its output.
fn failed_build(line: &str, dir: &Path, status: ExitStatus, output: &str) -> anyhow::Error {
    anyhow!("`{line}` in {} ended with {status}:\n{output}", dir.display())
}
