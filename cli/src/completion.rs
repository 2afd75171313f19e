//! The command `completion`: prints what a shell completes the commands with.

use clap_complete::Shell;

use crate::output::Said;

/// The arguments of `completion`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script by which the shell completes this command.
#[must_use]
pub fn run(arguments: &Arguments, command: &mut clap::Command) -> Said {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, command, "ringside", &mut script);
    Said::good(String::from_utf8_lossy(&script))
}
