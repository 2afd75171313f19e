//! `ringside`: installs, checks, injects and shows what Ringside does in a cluster.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    ringside_cli::main(std::env::args_os()).await
}
