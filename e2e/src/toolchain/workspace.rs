//! What cargo builds: the workspace's own programs, in the profile of the running one, and an elector beside it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::Context as _;
use serde_json::Value;

use super::{Environment, environment::workspace_folder, failed_build, need, progress::say};

/// Where the programs of Ringside are.
#[derive(Debug, Clone)]
pub struct RingsidePrograms {
    /// The sidecar.
    pub proxy: PathBuf,
    /// The sharder.
    pub sharder: PathBuf,
    /// The command for those who run rings.
    pub cli: PathBuf,
}

/// Builds proxy, sharder and the command, once a process: cargo builds no programs of other packages for tests.
pub fn ringside(environment: &Environment) -> anyhow::Result<RingsidePrograms> {
    static BUILT: Mutex<Option<RingsidePrograms>> = Mutex::new(None);
    need::ask("ringside")?;
    once(&BUILT, || {
        let command = Command::new(&environment.cargo);
        // Among all members, as the launcher and `cargo test` build: by their packages alone their dependencies would have
        // fewer features, and be compiled once more.
        let names = ["ringside-proxy", "ringside-sharder", "ringside"];
        let programs = names.iter().flat_map(|name| ["--bin", *name]);
        let all: Vec<_> = ["--quiet", "--profile", profile()].into_iter().chain(programs).collect();
        let mut built = cargo(environment, command, (workspace_folder(), &environment.target), ("build", &all, &[]))?;
        let [proxy, sharder, cli] = names.map(|name| built.take(name));
        Ok(RingsidePrograms { proxy: proxy?, sharder: sharder?, cli: cli? })
    })
}

/// Builds the sample operator in Rust, in the same way.
pub(super) fn rust_operator(environment: &Environment) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    need::ask("rust-operator")?;
    once(&BUILT, || {
        let command = Command::new(&environment.cargo);
        let options = ["--quiet", "--profile", profile(), "--bin", "rust-operator"];
        cargo(environment, command, (workspace_folder(), &environment.target), ("build", &options, &[]))?
            .take("rust-operator")
    })
}

/// Builds programs of another version, whose source is in a folder, in a target folder of its own: the optimization of
/// dependencies and their versions are those of before.
pub(super) fn programs_of<const N: usize>(
    environment: &Environment,
    folders: (&Path, &Path),
    names: [&'static str; N],
) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let programs = names.iter().flat_map(|name| ["--bin", *name]);
    let all: Vec<_> = ["--quiet", "--locked", "--profile", profile()].into_iter().chain(programs).collect();
    let mut built = cargo(environment, Command::new(&environment.cargo), folders, ("build", &all, &[]))?;
    names.iter().map(|name| Ok((*name, built.take(name)?))).collect()
}

fn once<T: Clone>(built: &Mutex<Option<T>>, build: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut built = built.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(programs) = &*built {
        return Ok(programs.clone());
    }
    let programs = build()?;
    *built = Some(programs.clone());
    Ok(programs)
}

/// Builds proxy, sharder and the command static and without debug info, as an image without files needs them.
///
/// All are the linker's matter, so all but the last step is shared with [`ringside`]. The Dockerfiles share with no
/// other build, and use the profile `dist`.
pub fn ringside_static(environment: &Environment) -> anyhow::Result<RingsidePrograms> {
    need::ask("images of ringside")?;
    say(format_args!("building ringside-proxy and ringside-sharder for their images"));
    let program = |package, name| {
        let command = Command::new(&environment.cargo);
        let of_one = ["--quiet", "--profile", profile(), "-p", package, "--bin", name];
        let linked = ["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"];
        cargo(environment, command, (workspace_folder(), &environment.target), ("rustc", &of_one, &linked))?.take(name)
    };
    let [proxy, sharder] = ["ringside-proxy", "ringside-sharder"].map(|name| program(name, name));
    Ok(RingsidePrograms { proxy: proxy?, sharder: sharder?, cli: program("ringside-cli", "ringside")? })
}

/// The profile of the running program.
fn profile() -> &'static str {
    if cfg!(debug_assertions) { "dev" } else { "release" }
}

/// Builds what takes part in leader elections by the code of a library for kube-rs. That is built on versions of its own, so
/// it is a workspace of its own. Once a process, too.
pub fn rust_elector(environment: &Environment) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    need::ask("rust-elector")?;
    once(&BUILT, || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("electors/rust");
        let target = environment.target.join("electors");
        say(format_args!("building the Rust program that takes part in elections"));
        let command = Command::new(&environment.cargo);
        cargo(environment, command, (&folder, &target), ("build", &["--locked", "--quiet"], &[]))?.take("rust-elector")
    })
}

/// What a build made.
struct Built {
    line: String,
    executables: HashMap<String, PathBuf>,
}

impl Built {
    fn take(&mut self, program: &str) -> anyhow::Result<PathBuf> {
        self.executables.remove(program).with_context(|| format!("`{}` built no {program}", self.line))
    }
}

/// Runs a subcommand with arguments for cargo and, behind these, for the compiler.
fn cargo(
    environment: &Environment,
    mut command: Command,
    (folder, target): (&Path, &Path),
    (subcommand, arguments, last): (&str, &[&str], &[&str]),
) -> anyhow::Result<Built> {
    let line = [&["cargo", subcommand], arguments, last].concat().join(" ");
    command
        .arg(subcommand)
        .args(arguments)
        // It names the executables itself: no guess about the layout of the target folder.
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--target-dir")
        .arg(target)
        .args(last)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    for variable in &environment.of_package {
        command.env_remove(variable);
    }
    let output = command.output().with_context(|| format!("start `{line}`"))?;
    if !output.status.success() {
        return Err(failed_build(&line, folder, output.status, "see above"));
    }
    Ok(Built { line, executables: executables(&String::from_utf8_lossy(&output.stdout)) })
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
