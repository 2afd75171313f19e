//! `go build` with progress.

use std::{
    collections::VecDeque,
    env,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{failed_build, progress::say};

/// A line of progress that often is enough to see that something moves.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// So many last lines of a failed build hold its errors.
const LAST_LINES: usize = 30;

/// Builds `packages` of a module: one to the file `output`, or several into the folder `output`, which ends with a slash.
///
/// All builds have the same flags, so that they share compiled packages.
pub(super) fn build(
    go: &Path,
    module: &Path,
    packages: &[&str],
    ldflags: &str,
    output: &Path,
    names: &str,
) -> anyhow::Result<()> {
    let mut command = Command::new(go);
    // -v names each package that had to be compiled. No version control stamp: it would make the program
    // depend on the state of the work tree, and fails in a tree that git does not trust.
    command
        // What the linker leaves out need not be compiled either: a tenth of the time.
        .args(["build", "-v", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", ldflags, "-o"])
        .arg(output)
        .args(packages)
        // Programs that need nothing beside them, so that an image can hold them alone.
        .env("CGO_ENABLED", "0")
        .current_dir(module);
    // Compilers are short-lived: with the usual 100 they spend a fifth of their time on what ends with them anyway.
    if env::var_os("GOGC").is_none() {
        command.env("GOGC", "400");
    }
    run(&mut command, &format!("go build {}", packages.join(" ")), names, module)
}

fn run(command: &mut Command, line: &str, name: &str, dir: &Path) -> anyhow::Result<()> {
    let started = || format!("start `{line}`");
    let begin = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(started)?;
    let mut packages = 0;
    let mut last = VecDeque::new();
    let mut reported = begin;
    if let Some(stderr) = child.stderr.take() {
        for text in BufReader::new(stderr).lines().map_while(Result::ok) {
            packages += 1;
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                let seconds = begin.elapsed().as_secs();
                say(format_args!("building {name}: {packages} packages, {seconds} s"));
            }
            if last.len() == LAST_LINES {
                last.pop_front();
            }
            last.push_back(text);
        }
    }
    let status = child.wait().with_context(started)?;
    if !status.success() {
        return Err(failed_build(line, dir, status, &Vec::from(last).join("\n")));
    }
    // Silent where Go found nothing to do.
    let took = begin.elapsed();
    if packages > 0 || took > REPORT_INTERVAL {
        say(format_args!("built {name} in {} s", took.as_secs()));
    }
    Ok(())
}
