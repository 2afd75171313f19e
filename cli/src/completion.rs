//! The command `completion`: prints what a shell completes the commands with.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{command::Line, output::Said};

/// The arguments of `completion`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for the shell.
#[must_use]
pub fn run(arguments: &Arguments) -> Said {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Line::command(), "ringside", &mut script);
    Said::good(String::from_utf8_lossy(&script))
}
