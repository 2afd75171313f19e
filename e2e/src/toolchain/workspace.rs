//! The workspace's own programs, built in the profile of the running one.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use super::{Environment, ToolchainError, environment::workspace_folder, progress::say};

/// Where the programs of Ringside are.
#[derive(Debug, Clone)]
pub struct RingsidePrograms {
    /// The sidecar.
    pub proxy: PathBuf,
    /// The sharder.
    pub sharder: PathBuf,
}

/// Builds proxy and sharder, once a process: cargo builds the programs of other packages for nobody's tests.
pub fn ringside(environment: &Environment) -> Result<RingsidePrograms, ToolchainError> {
    static BUILT: Mutex<Option<RingsidePrograms>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(programs) = &*built {
        return Ok(programs.clone());
    }
    let programs = build(environment, Command::new(&environment.cargo), &["--quiet"])?;
    *built = Some(programs.clone());
    Ok(programs)
}

/// Builds proxy and sharder as their images hold them: static, and without what only a debugger reads.
pub fn ringside_static(environment: &Environment) -> Result<RingsidePrograms, ToolchainError> {
    let mut command = Command::new(&environment.cargo);
    command
        // The flag of the Dockerfiles. A target of its own keeps it away from build scripts, and gives it a folder
        // beside that of other builds, so that the two don't undo each other.
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_DEV_STRIP", "symbols");
    say(format_args!("building ringside-proxy and ringside-sharder for their images"));
    build(environment, command, &["--target", "host-tuple"])
}

fn build(environment: &Environment, mut command: Command, more: &[&str]) -> Result<RingsidePrograms, ToolchainError> {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let line = format!("cargo build --profile {profile} -p ringside-proxy -p ringside-sharder {}", more.join(" "));
    command
        .args(["build", "--profile", profile])
        .args(["-p", "ringside-proxy", "-p", "ringside-sharder"])
        .args(more)
        // It names the executables itself: no guess about the layout of the target folder.
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--target-dir")
        .arg(&environment.target)
        .current_dir(workspace_folder())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    for variable in &environment.of_package {
        command.env_remove(variable);
    }
    let output = command.output().map_err(|source| ToolchainError::Start { command: line.clone(), source })?;
    if !output.status.success() {
        return Err(ToolchainError::Build {
            command: line,
            dir: workspace_folder().to_owned(),
            status: output.status,
            output: String::new(),
        });
    }
    let mut programs = executables(&String::from_utf8_lossy(&output.stdout));
    let mut take = |program: &str| {
        programs
            .remove(program)
            .ok_or_else(|| ToolchainError::NotBuilt { command: line.clone(), program: program.to_owned() })
    };
    Ok(RingsidePrograms { proxy: take("ringside-proxy")?, sharder: take("ringside-sharder")? })
}

/// The executables in cargo's messages, by target name.
fn executables(messages: &str) -> HashMap<String, PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let executable = message["executable"].as_str()?;
            let name = message["target"]["name"].as_str()?;
            Some((name.to_owned(), PathBuf::from(executable)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_executables_from_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"ringside_proxy"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"ringside-proxy"},"executable":"/t/debug/ringside-proxy"}"#,
            "\nnot json\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let found = executables(messages);
        assert_eq!(found.len(), 1);
        assert_eq!(found["ringside-proxy"], PathBuf::from("/t/debug/ringside-proxy"));
    }
}
