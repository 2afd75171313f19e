//! Why a system does not run as it should.

use std::io;

use crate::{eventually::TimedOut, process::ProcessError};

/// A system does not run as it should.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// What it is made of failed.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
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
