//! Why there is no node.

use std::{io, path::PathBuf, time::Duration};

use super::Missing;
use crate::{control_plane::ControlPlaneError, eventually::TimedOut, process::ProcessError, toolchain::ToolchainError};

/// A node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Not on this machine.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program of it is missing.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// One of its processes failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its control plane did not start.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// It runs, but does not get ready.
    #[error(transparent)]
    NotReady(#[from] TimedOut),
    /// The kernel did not give it namespaces.
    #[error("the namespaces are not ready after {within:?}:\n{tail}")]
    Namespaces {
        /// How long they were waited for.
        within: Duration,
        /// What was said about it.
        tail: String,
    },
    /// Its images did not get into containerd.
    #[error("import the image {image}:\n{tail}")]
    Import {
        /// Which one.
        image: String,
        /// What `ctr` said.
        tail: String,
    },
    /// A file could not be used.
    #[error("{action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// There is no cgroup for it.
    #[error("make a cgroup: {0}")]
    Cgroup(#[source] io::Error),
    /// No threads for the work beside it.
    #[error("start a runtime: {0}")]
    Runtime(#[source] io::Error),
}
