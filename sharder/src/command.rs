//! What the program is started for: to be the sharder, to say what one would do, to clean up after a ring, or to print permissions.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use ringside_runtime::config::Faults;

mod cleanup;
mod of_ring;
mod plan;
mod report;
mod rights;

pub use self::{
    cleanup::{Cleanup, CleanupError},
    plan::{Forecast, Plan, PlanError},
    report::Report,
    rights::{Rights, RightsError},
};
use crate::config::{Config, Options};

#[derive(Debug, Parser)]
#[command(
    name = "ringside-sharder",
    version,
    about = "Assigns the objects of rings to shards",
    args_conflicts_with_subcommands = true
)]
struct Line {
    #[command(subcommand)]
    command: Option<Other>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Takes a ring off the cluster: the ClusterRing, if it is still there, what was made for it, and the labels of its
    /// objects. Prints how many, and which templates and selectors hold the labels: those stay, with the copies that come of
    /// them. Ends with 1 when something is left. May be repeated.
    Cleanup(cleanup::Arguments),
    /// Says what the sharder would do with the objects of a ring, by shard, and writes nothing. Ends with 1 when not all could
    /// be looked at.
    Plan(plan::Arguments),
    /// Prints the permissions that a ring needs beyond the sharder's manifest, as YAML for `kubectl apply`.
    Rights(rights::Arguments),
}

/// What the arguments and the environment ask for.
#[derive(Debug)]
pub enum Command {
    /// Be the sharder.
    Run(Box<Config>),
    /// Take a ring off.
    Cleanup(Cleanup),
    /// Say what would be done with a ring's objects.
    Plan(Plan),
    /// Print what a ring's sharder and proxies may do.
    Rights(Rights),
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
    /// Parses the arguments, the first of which is the program's name; the environment fills in what they leave out.
    ///
    /// # Errors
    /// With every fault.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, CommandError> {
        let Line { command, options } = Line::try_parse_from(arguments)?;
        Ok(match command {
            None => Self::Run(Box::new(Config::try_from(options)?)),
            Some(Other::Cleanup(arguments)) => Self::Cleanup(arguments.check()?),
            Some(Other::Plan(arguments)) => Self::Plan(arguments.check()?),
            Some(Other::Rights(arguments)) => Self::Rights(arguments.check()?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Command, CommandError> {
        Command::parse(std::iter::once("ringside-sharder").chain(arguments.iter().copied()).map(OsString::from))
    }

    #[test]
    fn without_a_command_it_is_the_sharder() {
        assert!(matches!(parse(&["--namespace=x"]).unwrap(), Command::Run(config) if config.namespace == "x"));
        assert!(matches!(parse(&["cleanup", "--ring=x", "--dry-run"]).unwrap(), Command::Cleanup(_)));
        assert!(matches!(parse(&["rights", "-f=-", "--shards=a", "--shards=b/c"]).unwrap(), Command::Rights(_)));
    }

    #[test]
    fn what_a_command_cannot_do_is_said_with_every_fault() {
        let text = parse(&["cleanup", "--ring=A_B", "--resource=.x", "--resource="]).unwrap_err().to_string();
        assert!(text.contains("--ring: the ring name 'A_B'") && text.matches("--resource: ").count() == 2, "{text}");
        let text = parse(&["plan", "--ring=A", "--add-shard=a=heavy", "--remove-shard=B", "--tokens-per-shard=0"]);
        let text = text.unwrap_err().to_string();
        for option in ["ring", "add-shard", "remove-shard", "tokens-per-shard"] {
            assert!(text.contains(&format!("--{option}: ")), "{option} in {text}");
        }
        let text = parse(&["rights", "-f=-", "--shards=A/x", "--namespace=B"]).unwrap_err().to_string();
        assert!(text.contains("--shards: ") && text.contains("--namespace: "), "{text}");
        for usage in [
            &["cleanup"][..],
            &["plan"],
            &["plan", "--ring=x", "--output=xml"],
            &["cleanup", "--ring=x", "--namespace=y"],
            &["clean"],
            &["rights", "-f=-"],
        ] {
            assert!(matches!(parse(usage), Err(CommandError::Usage(_))), "{usage:?}");
        }
    }
}
