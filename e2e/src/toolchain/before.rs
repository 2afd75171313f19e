//! The version of proxy and sharder that landed last, built from the repository's history.
//!
//! By its commit, and not as the one before the checked out one: it is built once, and differs in what matters.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use super::{
    Environment,
    cache::{self, Locked},
    environment::workspace_folder,
    need,
    progress::say,
    workspace,
};

/// The commit, which the next release replaces by its own.
const REVISION: &str = "0f5087ef";
/// Names another one.
const VARIABLE: &str = "RINGSIDE_BEFORE";

/// Where proxy and sharder of that version are.
#[derive(Debug, Clone)]
pub struct Before {
    /// The sidecar.
    pub proxy: PathBuf,
    /// The sharder.
    pub sharder: PathBuf,
}

/// Builds them, or finds what was built of that commit. Their dependencies are compiled for them alone, as versions and features
/// are those of before.
pub fn ringside_before(environment: &Environment) -> anyhow::Result<Before> {
    const NAMES: [&str; 2] = ["ringside-proxy", "ringside-sharder"];
    need::ask("the version before")?;
    let revision = revision()?;
    let locked = Locked::acquire(cache::folder(environment, &format!("before-{revision}")))?;
    let [proxy, sharder] = NAMES.map(|name| cache::folder(environment, &format!("before-{revision}")).join(name));
    if !proxy.is_file() || !sharder.is_file() {
        say(format_args!("building proxy and sharder of {revision}, once: minutes"));
        let (source, target) = (locked.staging()?.join("source"), locked.staging()?.join("target"));
        unpack(&revision, &source)?;
        for (name, program) in workspace::programs_of(environment, (&source, &target), NAMES)? {
            fs::copy(program, locked.stage(name)?).context("keep a program of before")?;
            locked.publish(name)?;
        }
        // Each commit has its own; what was built between is large.
        for folder in [source, target] {
            fs::remove_dir_all(folder).context("remove what was built between")?;
        }
    }
    Ok(Before { proxy, sharder })
}

/// Why the version before can't be built here, if it can't.
pub fn without_history(_: &Environment) -> Option<String> {
    revision().err().map(|error| format!("{error:#}"))
}

/// The whole name of the commit.
fn revision() -> anyhow::Result<String> {
    let named = std::env::var(VARIABLE).ok().filter(|named| !named.is_empty());
    let named = named.as_deref().unwrap_or(REVISION);
    let commit = format!("{named}^{{commit}}");
    let output = git(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]).output();
    let output = output.context("git is not on PATH")?;
    if !output.status.success() {
        bail!(
            "this checkout does not have commit {named} of the version before: clone the whole history, or name one by {VARIABLE}"
        );
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Leaves the files of a commit in an empty folder.
fn unpack(revision: &str, folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("empty the folder of the version before")?;
    }
    fs::create_dir_all(folder).context("create the folder of the version before")?;
    let mut git = git(&["archive", "--format=tar", revision]).stdout(Stdio::piped()).spawn().context("start git")?;
    let archive = git.stdout.take().context("git has no output")?;
    tar::Archive::new(archive).unpack(folder).context("unpack the version before")?;
    if !git.wait().context("wait for git")?.success() {
        bail!("`git archive {revision}` failed");
    }
    Ok(())
}

fn git(arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(workspace_folder()).args(arguments).stdin(Stdio::null());
    git
}
