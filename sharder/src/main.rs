//! `ringside-sharder`: assigns the objects of rings to shards.

use std::process::ExitCode;

use clap::Parser as _;
use ringside_sharder::{Config, Options, run};

#[tokio::main]
#[allow(clippy::print_stderr, reason = "faults before there is a log")]
async fn main() -> ExitCode {
    let ended = match Config::try_from(Options::parse()) {
        Ok(config) => run(config).await.map_err(anyhow::Error::from),
        Err(faults) => Err(faults.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringside-sharder: {error}");
            ExitCode::FAILURE
        }
    }
}
