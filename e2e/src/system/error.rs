//! Why a system does not run as it should.

use std::io;

use crate::{
    audit::AuditError, control_plane::ControlPlaneError, eventually::TimedOut, manifests::ApplyError,
    process::ProcessError, shard_identity::IdentityError, toolchain::ToolchainError,
};

/// A system does not run as it should.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A program is missing.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// The control plane did not start.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A manifest could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A Pod's identity could not be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A part does not get ready; the end of its log says more.
    #[error("{source}; the end of the log of {name}:\n{tail}")]
    NotReady {
        /// The process.
        name: String,
        /// What was waited for.
        source: TimedOut,
        /// The end of its log.
        tail: String,
    },
    /// The objects could not be created.
    #[error("create the objects: {0}")]
    Create(#[source] Box<kube::Error>),
    /// The objects could not be changed.
    #[error("change the objects: {0}")]
    Change(#[source] Box<kube::Error>),
    /// The children could not be looked at.
    #[error("list owners and children: {0}")]
    Children(#[source] Box<kube::Error>),
    /// What was waited for did not come about.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    /// There is no folder for logs.
    #[error("create a folder: {0}")]
    Folder(#[source] io::Error),
    /// The collector did not start.
    #[error("start the collector: {0}")]
    Collector(#[source] io::Error),
    /// No port of loopback is free.
    #[error("find a free port: {0}")]
    NoFreePort(#[source] io::Error),
    /// The watches for the checker have ended.
    #[error("the observer has ended")]
    ObserverEnded,
    /// What the API server wrote down can't be read.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A line could not be laid.
    #[error("lay a line: {0}")]
    Line(#[source] io::Error),
    /// There is no ring yet.
    #[error("there is no ring whose writes could be judged")]
    NoRing,
    /// No shard of this name runs.
    #[error("no shard {0} runs")]
    NoSuchShard(String),
    /// No replica of the sharder of this name runs.
    #[error("no sharder {0} runs")]
    NoSuchSharder(String),
}
