//! The programs that a live test runs: found where a user may have them, else built once and cached under `target/`.
//!
//! Everything here blocks, for minutes where a control plane has to be compiled: async callers use
//! `tokio::task::spawn_blocking`.

mod cache;
mod environment;
mod go;
mod libraries;
mod programs;
mod progress;
mod version;
mod workspace;

use std::{io, path::PathBuf, process::ExitStatus};

pub use environment::Environment;
pub use libraries::{java, python, without_java, without_python};
pub use programs::{
    ControlPlanePrograms, NodePrograms, control_plane, elector, guest, kube_controller_manager, kubectl, node,
    operator, other_sharder, own_shard,
};
pub(crate) use progress::say;
pub use version::Minor;
pub use workspace::{RingsidePrograms, ringside, ringside_static, rust_elector};

/// A program is neither there nor could it be built.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// There is no Go toolchain to build with.
    #[error(
        "`go` is not on PATH, and {wanted} has to be built with it: install Go 1.26 or newer (https://go.dev/dl/, \
         or `apt-get install golang-go` where that is new enough){otherwise}"
    )]
    GoMissing {
        /// What would have been built.
        wanted: String,
        /// Another way to get it, if there is one.
        otherwise: &'static str,
    },

    /// The user's set lacks a program, and what would be built does not fit the rest.
    #[error(
        "KUBEBUILDER_ASSETS ({}) has no {missing}, and the one to be built is of {wanted}, but the {beside} there is of \
         {}: add {missing} to the folder, name a set of {wanted}, or unset the variable",
        folder.display(),
        found.map_or_else(|| "an unknown version".to_owned(), |found| found.to_string())
    )]
    AssetsDiffer {
        /// The folder.
        folder: PathBuf,
        /// What it lacks.
        missing: &'static str,
        /// The version that would be built.
        wanted: Minor,
        /// What is there.
        beside: &'static str,
        /// The version of that.
        found: Option<Minor>,
    },

    /// The user's API server lacks what the live systems need.
    #[error(
        "KUBEBUILDER_ASSETS ({}) has a kube-apiserver of {}, and {oldest} or newer is needed: its fence is a \
         ValidatingAdmissionPolicy. Name a newer set (`setup-envtest use {oldest}`), or unset the variable",
        folder.display(),
        found.map_or_else(|| "an unknown version".to_owned(), |found| found.to_string())
    )]
    AssetsTooOld {
        /// The folder.
        folder: PathBuf,
        /// The version of the API server there.
        found: Option<Minor>,
        /// The oldest version that is taken.
        oldest: Minor,
    },

    /// A build ended with an error; what it said went to stderr as it ran.
    #[error("`{command}` in {dir} ended with {status}{}", last_words(output))]
    Build {
        /// The command line.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },

    /// A build ended well but left no such program.
    #[error("`{command}` built no {program}")]
    NotBuilt {
        /// The command line.
        command: String,
        /// The program that it should have built.
        program: String,
    },

    /// A command could not be started.
    #[error("start `{command}`: {source}")]
    Start {
        /// The command line.
        command: String,
        /// Why not.
        source: io::Error,
    },

    /// The thread that was at it ended early.
    #[error("building was interrupted: {0}")]
    Interrupted(String),

    /// The cache folder can't be used.
    #[error("{action} {path}: {source}")]
    Cache {
        /// What was tried.
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// Finds or builds a program. That blocks, perhaps for minutes, so it has a thread of its own.
pub async fn built<T: Send + 'static>(
    build: fn(&Environment) -> Result<T, ToolchainError>,
) -> Result<T, ToolchainError> {
    let built = tokio::task::spawn_blocking(move || build(&Environment::of_process())).await;
    built.map_err(|error| ToolchainError::Interrupted(error.to_string()))?
}

fn last_words(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(":\n{output}") }
}
