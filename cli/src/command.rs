//! What can be asked of `ringside`.

use clap::{Parser, Subcommand};

use crate::{cluster::Global, completion, output::Said};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "ringside", version, about = "Shares the work of a Kubernetes controller among its replicas")]
pub struct Line {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The commands, each in a module of its own.
#[derive(Debug, Subcommand)]
enum Command {
    /// Prints what a shell completes the commands with.
    Completion(completion::Arguments),
}

impl Line {
    /// Runs the command.
    ///
    /// # Errors
    /// When it could not be done.
    #[allow(clippy::unused_async, reason = "commands ask the API server")]
    pub async fn run(self) -> anyhow::Result<Said> {
        let Self { global: _, command } = self;
        match command {
            Command::Completion(arguments) => Ok(completion::run(&arguments)),
        }
    }
}
