//! The commands of `ringside`, which is `kubectl ringside` as well.

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use clap::Parser as _;
use ringside_runtime::explain::with_remedy;

pub mod check;
pub mod cleanup;
pub mod cluster;
pub mod command;
pub mod completion;
pub mod drain;
pub mod exit;
pub mod fit;
pub mod inject;
pub mod managed;
pub mod neighbours;
pub mod output;
pub mod owner;
pub mod pause;
pub mod plan;
pub mod rbac;
pub mod ring;
pub mod rings;
pub mod status;
pub mod version;

use self::{command::Line, exit::Exit};

/// Runs what the arguments ask for, the first of which is the program's name, and returns how it ended.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "what a command says")]
pub async fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let line = match Line::try_parse_from(arguments) {
        Ok(line) => line,
        Err(usage) => {
            // Help and version are answers, not faults.
            let exit = if usage.use_stderr() { Exit::Usage } else { Exit::Good };
            let _ = usage.print();
            return exit.into();
        }
    };
    match line.run().await {
        Ok(said) => {
            if !said.text.is_empty() {
                // A reader that has seen enough, as `head`, is no fault.
                let _ = writeln!(std::io::stdout(), "{}", said.text.trim_end_matches('\n'));
            }
            said.exit.into()
        }
        Err(error) => {
            eprintln!("ringside: {}", with_remedy(format!("{error:#}")));
            Exit::Failed.into()
        }
    }
}
