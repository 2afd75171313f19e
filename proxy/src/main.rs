//! `ringside-proxy`: parse, build, run.

use std::process::ExitCode;

use ringside_proxy::config::{Config, ConfigError};

#[tokio::main]
async fn main() -> ExitCode {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    let config = match Config::parse(std::env::args_os(), hostname) {
        Ok(config) => config,
        Err(ConfigError::Usage(usage)) => usage.exit(),
        Err(ConfigError::Faults(faults)) => return failure(&faults),
    };
    if let Ok(filter) = ringside_runtime::logging::parse_filter(&config.log_filter) {
        ringside_runtime::logging::init(config.log_format, filter);
    }
    match ringside_proxy::run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

#[allow(clippy::print_stderr, reason = "the last words of a program that can't run belong there, log filter or not")]
fn failure(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("ringside-proxy: {error}");
    ExitCode::FAILURE
}
