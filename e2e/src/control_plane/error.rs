//! Why a control plane did not start.

use std::{io, path::PathBuf};

use crate::{eventually::TimedOut, process::ProcessError, toolchain::ToolchainError};

/// A control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// A program of it is missing.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// One of its processes failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It runs, but does not get ready.
    #[error(transparent)]
    NotReady(#[from] TimedOut),
    /// No port of loopback is free.
    #[error("find a free port: {0}")]
    NoFreePort(#[source] io::Error),
    /// A key or certificate could not be made.
    #[error("make the {what}: {source}")]
    Certificate {
        /// Which one.
        what: &'static str,
        /// Why not.
        source: rcgen::Error,
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
    /// etcd did not forget the past.
    #[error("compact etcd: {0}")]
    Compact(Box<dyn std::error::Error + Send + Sync>),
    /// No client could be made for it.
    #[error("make a client: {0}")]
    Client(Box<dyn std::error::Error + Send + Sync>),
}

impl ControlPlaneError {
    /// Whether a server found its port taken.
    pub(super) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Process(ProcessError::Ended { tail, .. }) if tail.contains("address already in use"))
    }
}
