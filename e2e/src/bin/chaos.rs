//! Lets everything fail at random and gives a verdict: `cargo run --release -p ringside-tests --bin chaos -- --seed 1`.

use std::process::ExitCode;

use clap::Parser;
use ringside_e2e::chaos::{Arguments, run};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    run(&Arguments::parse()).await
}
