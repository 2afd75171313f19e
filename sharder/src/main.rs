//! `ringside-sharder`: assigns the objects of rings to shards.

use std::process::ExitCode;

use ringside_sharder::{Command, CommandError, run};

#[tokio::main]
#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a command has to say, and faults before there is a log"
)]
async fn main() -> ExitCode {
    let outcome = match Command::parse(std::env::args_os()) {
        Ok(Command::Run(config)) => run(*config).await.map_err(anyhow::Error::from),
        Ok(Command::Cleanup(cleanup)) => match cleanup.run().await {
            Ok(report) => {
                println!("{report}");
                return if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            Err(error) => Err(error.into()),
        },
        Err(CommandError::Usage(usage)) => usage.exit(),
        Err(faults) => Err(faults.into()),
    };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("ringside-sharder: {error}");
    ExitCode::FAILURE
}
