//! `ringside-proxy`: parse, and run, ask or leave.

use std::{fmt::Display, process::ExitCode};

use ringside_proxy::{Command, CommandError, Config, RunError, run};

fn main() -> ExitCode {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    match Command::parse(std::env::args_os(), hostname) {
        Ok(Command::Run(config)) => ended("ringside-proxy: ", serve(*config)),
        // The output of a probe or hook that fails is shown by `kubectl describe pod`, behind words of its own.
        Ok(Command::Probe(probe)) => ended("", probe.run()),
        Ok(Command::Leave(leave)) => ended("", leave.run()),
        Err(CommandError::Usage(usage)) => usage.exit(),
        Err(CommandError::Faults(faults)) => ended("ringside-proxy: ", Err(faults)),
    }
}

fn serve(config: Config) -> Result<(), RunError> {
    let _flushed = config.log();
    run(config)
}

#[allow(clippy::print_stderr, reason = "the last words of a program that can't run belong there, log filter or not")]
fn ended(by: &str, outcome: Result<(), impl Display>) -> ExitCode {
    outcome.inspect_err(|error| eprintln!("{by}{error}")).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
