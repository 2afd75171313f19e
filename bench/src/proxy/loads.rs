//! The loads, each for one way and for so many units.

mod events;
mod requests;

use std::time::{Duration, Instant};

use anyhow::Context as _;

pub(super) use self::events::Watches;
use super::started::Target;
use crate::processes::cpu_time;

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A request at a time on a connection.
    Http1,
    /// Many at once.
    Http2,
}

impl Protocol {
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

/// What a watch is asked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON alone.
    Json,
    /// Protobuf, or else JSON, as client-go asks.
    Protobuf,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Reads a pod, from so many connections at once.
    Get(Protocol, usize),
    /// Changes a pod, from `MANY` connections at once.
    Patch,
    /// Lists pods.
    List,
    /// Takes events from `WATCHES` watches on one connection.
    Events(Encoding),
}

/// Connections at once.
pub(super) const MANY: usize = 32;
/// Watches with events.
pub(super) const WATCHES: usize = 20;

/// All of them, in the order of the table.
pub(super) const LOADS: [Load; 8] = [
    Load::Get(Protocol::Http1, 1),
    Load::Get(Protocol::Http2, 1),
    Load::Get(Protocol::Http1, MANY),
    Load::Get(Protocol::Http2, MANY),
    Load::Patch,
    Load::List,
    Load::Events(Encoding::Json),
    Load::Events(Encoding::Protobuf),
];

impl Load {
    /// As the table calls it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Get(protocol, connections) => format!("GET, {connections} x {}", protocol.name()),
            Self::Patch => format!("PATCH, {MANY} x HTTP/2"),
            Self::List => "list, HTTP/2".to_owned(),
            Self::Events(Encoding::Json) => format!("events, {WATCHES} watches, JSON"),
            Self::Events(Encoding::Protobuf) => format!("events, {WATCHES} watches, protobuf"),
        }
    }

    /// What it is counted in.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Get(..) | Self::Patch => "request",
            Self::List => "MB",
            Self::Events(_) => "event",
        }
    }
}

/// What one turn of a load took.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) units: f64,
    /// Of the process between.
    pub(super) cpu: Duration,
    pub(super) took: Duration,
    /// Of each request.
    pub(super) latencies: Vec<Duration>,
}

/// Puts a load on a way; `units` are requests, bytes, or events.
pub(super) async fn turn(target: &Target, load: Load, units: usize) -> anyhow::Result<Turn> {
    let turn = match load {
        Load::Get(protocol, connections) => requests::run(target, protocol, connections, &requests::get(), units).await,
        Load::Patch => requests::run(target, Protocol::Http2, MANY, &requests::patch(), units).await,
        Load::List => requests::lists(target, units).await,
        Load::Events(encoding) => events::run(target, encoding, units).await,
    };
    turn.with_context(|| format!("{}, {}", load.name(), target.way.name()))
}

/// A moment, and what the process had used until then.
struct Mark(Instant, Duration);

impl Mark {
    fn of(target: &Target) -> anyhow::Result<Self> {
        let used = target.process.map(cpu_time).transpose().context("the process has ended")?.unwrap_or_default();
        Ok(Self(Instant::now(), used))
    }

    fn turn(self, target: &Target, units: f64, latencies: Vec<Duration>) -> anyhow::Result<Turn> {
        let now = Self::of(target)?;
        Ok(Turn { units, cpu: now.1.saturating_sub(self.1), took: now.0 - self.0, latencies })
    }
}
