//! `ringside-sharder`: assigns the objects of rings to shards.

use std::process::ExitCode;

use clap::Parser;
use ringside_sharder::{Config, Options};

#[tokio::main]
#[allow(clippy::print_stderr, reason = "a configuration fault ends the process before there is a log")]
async fn main() -> ExitCode {
    let outcome = match Config::try_from(Options::parse()) {
        Ok(config) => ringside_sharder::run(config).await.map_err(anyhow::Error::from),
        Err(faults) => Err(faults.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringside-sharder: {error}");
            ExitCode::FAILURE
        }
    }
}
