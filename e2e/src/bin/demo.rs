//! Shows Ringside at work and gives a verdict: `cargo demo`.

use std::process::ExitCode;

use clap::Parser;
use ringside_e2e::demo::{Arguments, run};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    run(Arguments::parse()).await
}
