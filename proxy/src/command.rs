//! What the program is started for: to be the proxy, or to ask one that runs how it is, or to leave.

use std::{ffi::OsString, fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use ringside_ring::doing::LEAVE;
use ringside_runtime::{
    admin,
    config::{Faults, parse_address, parse_duration, reached_at},
    probe::{self, ProbeError},
};

use crate::config::{Config, Options};

/// How long the proxy may take to answer beyond what it was given.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
#[command(name = "ringside-proxy", version, about = "Narrows a Kubernetes controller to its shard of a ring.")]
struct Line {
    #[command(subcommand)]
    command: Option<Other>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Asks the proxy of this pod how it is, for exec probes: ends with 0, or with 1 and a line for each fault.
    Probe {
        /// What to ask for.
        which: Which,
        /// How long to wait for the answer: less than the probe's timeoutSeconds, or the kubelet hides the reason.
        #[arg(long, default_value = "900ms")]
        timeout: String,
    },
    /// Has the proxy of this pod give its objects to other replicas, for a preStop hook: ends with 0 when none is left, or with 1
    /// and the reason when time is over or no other takes them.
    Leave {
        /// How long that may take: less than the pod's terminationGracePeriodSeconds by what the controller takes to end.
        #[arg(long, default_value = "20s")]
        within: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// Whether the controller can start: the kubeconfig is written, and the Lease was held once.
    Started,
    /// Whether it can do its work: it holds its Lease, knows its ring, and follows what it has to release.
    Ready,
    /// Whether it runs: if not, it should be restarted.
    Live,
    /// Whether the controller knows all that it has to: if it ran through a gap, it should be restarted.
    Controller,
}

/// What the arguments and the environment ask for.
#[derive(Debug)]
pub enum Command {
    /// Be the proxy.
    Run(Box<Config>),
    /// Ask it.
    Probe(Probe),
    /// Have it leave.
    Leave(Leave),
}

/// A request to the proxy that runs beside, to give its objects away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    address: SocketAddr,
    within: Duration,
    /// Where the token is.
    access_dir: PathBuf,
}

/// Why not all objects are handed over.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// The token can't be read.
    #[error("can't read the token in {folder}: {source}; is this the proxy's --access-dir?")]
    Token {
        /// The access folder.
        folder: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The proxy says why, or can't be asked.
    #[error(transparent)]
    Proxy(#[from] ProbeError),
}

/// A question to the proxy that runs beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    which: admin::Probe,
    address: SocketAddr,
    within: Duration,
}

/// Why there is nothing to do.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The arguments are none that we know, or ask for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// What they say can't be.
    #[error(transparent)]
    Faults(#[from] Faults),
}

impl Command {
    /// Returns the command line with all options, for the reference.
    #[must_use]
    pub fn line() -> clap::Command {
        Line::command()
    }

    /// Parses the arguments, the first of which is the program's name; the environment fills in what they leave out.
    ///
    /// # Errors
    /// With every fault.
    pub fn parse(
        arguments: impl IntoIterator<Item = OsString>,
        hostname: Option<String>,
    ) -> Result<Self, CommandError> {
        let Line { command, options } = Line::try_parse_from(arguments)?;
        Ok(match command {
            None => Self::Run(Box::new(Config::check(options, hostname)?)),
            Some(Other::Probe { which, timeout }) => Self::Probe(Probe::check(which, &timeout, &options.admin_listen)?),
            Some(Other::Leave { within }) => Self::Leave(Leave::check(&within, options)?),
        })
    }
}

impl Probe {
    fn check(which: Which, timeout: &str, admin_listen: &str) -> Result<Self, Faults> {
        let (address, within) = beside(admin_listen, ("--timeout", timeout))?;
        let which = match which {
            Which::Started => admin::Probe::Started,
            Which::Ready => admin::Probe::Ready,
            Which::Live => admin::Probe::Live,
            Which::Controller => admin::Probe::Controller,
        };
        Ok(Self { which, address, within })
    }

    /// Asks. In this thread alone: a kubelet starts it every few seconds, in the proxy's own limits.
    ///
    /// # Errors
    /// When the probe does not pass.
    #[tokio::main(flavor = "current_thread")]
    pub async fn run(self) -> Result<(), ProbeError> {
        probe::ask(self.address, self.which, self.within).await
    }
}

impl Leave {
    fn check(within: &str, Options { admin_listen, access_dir, .. }: Options) -> Result<Self, Faults> {
        let (address, within) = beside(&admin_listen, ("--within", within))?;
        Ok(Self { address, within, access_dir })
    }

    /// Asks, and waits until all objects are handed over.
    ///
    /// # Errors
    /// When some are left, or the proxy can't be asked.
    #[tokio::main(flavor = "current_thread")]
    pub async fn run(self) -> Result<(), LeaveError> {
        let Self { address, within, access_dir: folder } = self;
        let token = fs::read_to_string(folder.join("token")).map_err(|source| LeaveError::Token { folder, source })?;
        Ok(probe::post(address, &format!("{LEAVE}/{}", within.as_secs()), &token, within + ANSWERS_WITHIN).await?)
    }
}

/// Where the proxy that runs beside is asked, and how long.
fn beside(admin_listen: &str, (option, time): (&str, &str)) -> Result<(SocketAddr, Duration), Faults> {
    let mut faults = Faults::new();
    let time = faults.check(option, parse_duration(time));
    let address = faults.check("--admin-listen", fixed_address(admin_listen));
    faults.finish()?;
    // Whatever is missing was noted as a fault.
    let (address, time) = address.zip(time).ok_or_else(Faults::new)?;
    Ok((reached_at(address), time))
}

fn fixed_address(text: &str) -> Result<SocketAddr, String> {
    let address = parse_address(text)?;
    if address.port() == 0 {
        return Err(format!("'{text}' leaves the port to the system, so a probe can't know it: name a port"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn probe(arguments: &[&str]) -> Result<Probe, CommandError> {
        let arguments = std::iter::once("ringside-proxy").chain(arguments.iter().copied()).map(OsString::from);
        match Command::parse(arguments, None)? {
            Command::Probe(probe) => Ok(probe),
            Command::Run(_) | Command::Leave(_) => unreachable!("a probe was asked for"),
        }
    }

    #[test]
    fn a_probe_needs_nothing_and_asks_where_the_proxy_listens() {
        let address = |arguments: &[&str]| probe(arguments).unwrap().address.to_string();
        assert_eq!(address(&["probe", "ready"]), "127.0.0.1:6444");
        assert_eq!(address(&["probe", "live", "--admin-listen", "127.0.0.1:7000"]), "127.0.0.1:7000");
        assert_eq!(address(&["--admin-listen", "0.0.0.0:7000", "probe", "live"]), "127.0.0.1:7000");
        assert_eq!(address(&["probe", "ready", "--admin-listen=[::]:7000"]), "[::1]:7000");
        assert_eq!(probe(&["probe", "ready"]).unwrap().which, admin::Probe::Ready);
        assert_eq!(probe(&["probe", "live"]).unwrap().which, admin::Probe::Live);
        assert_eq!(probe(&["probe", "started"]).unwrap().which, admin::Probe::Started);
        // What a kubelet waits by default is a second.
        assert!(probe(&["probe", "live"]).unwrap().within < Duration::from_secs(1));
    }

    #[test]
    fn a_hook_asks_where_the_proxy_listens_and_names_its_time() {
        let leave = |arguments: &[&str]| {
            let arguments = ["ringside-proxy", "leave"].iter().chain(arguments).map(OsString::from);
            Command::parse(arguments, None)
        };
        let address = "127.0.0.1:6444".parse().unwrap();
        let within = Duration::from_secs;
        let expected = Leave { address, within: within(20), access_dir: "/var/run/ringside".into() };
        assert!(matches!(leave(&[]), Ok(Command::Leave(it)) if it == expected));
        assert!(matches!(leave(&["--within=4m"]), Ok(Command::Leave(it)) if it.within == within(240)));
        let text = leave(&["--within=soon"]).unwrap_err().to_string();
        assert!(text.contains("--within: "), "{text}");
    }

    #[test]
    fn what_cannot_be_asked_is_said_with_every_fault() {
        let text = probe(&["probe", "ready", "--timeout=soon", "--admin-listen=127.0.0.1:0"]).unwrap_err().to_string();
        assert!(
            text.contains("--timeout: ") && text.contains("--admin-listen: ") && text.contains("name a port"),
            "{text}"
        );
        for usage in [&["probe"][..], &["probe", "well"], &["prob", "ready"]] {
            assert!(matches!(probe(usage), Err(CommandError::Usage(_))), "{usage:?}");
        }
    }
}
