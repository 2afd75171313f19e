//! `go build` with progress.

use std::{
    collections::{HashMap, VecDeque},
    fmt, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ringside_launcher::{self as launcher, COMPILED};
use serde_json::Value;

use super::{failed_build, progress::say};

/// A line of progress that often is enough to see that something moves.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// So many last lines of a failed build hold its errors.
const LAST_LINES: usize = 30;

/// A module, and how its programs are built.
pub(super) struct Module {
    /// Where its go.mod is.
    pub(super) folder: PathBuf,
    /// More flags of each command.
    pub(super) flags: &'static [&'static str],
    /// Those of the linker.
    pub(super) ldflags: String,
}

impl Module {
    /// Builds `packages`: one to the file `output`, or several into the folder `output`, which ends with a slash.
    pub(super) fn build(&self, go: &Path, packages: &[&str], output: &Path, names: &str) -> anyhow::Result<()> {
        let mut command = launcher::go(go, &self.folder);
        // -v names each package that had to be compiled. No version control stamp: it would make the program
        // depend on the state of the work tree, and fails in a tree that git does not trust.
        command.args(["build", "-v", "-buildvcs=false", COMPILED, "-ldflags", &self.ldflags]).args(self.flags);
        command.arg("-o").arg(output).args(packages);
        let left = Left::ask(go, self, packages);
        run(&mut command, &format!("go build {}", packages.join(" ")), names, &self.folder, left)
    }
}

/// The folder with the source of a module that `module` requires, fetched where it is not there.
pub(super) fn source(go: &Path, module: &Path, required: &str) -> anyhow::Result<PathBuf> {
    let mut command = launcher::go(go, module);
    command.args(["mod", "download", "-json", required]).stdin(Stdio::null());
    let output = command.output().context("start `go mod download`")?;
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    said["Dir"].as_str().map(PathBuf::from).with_context(|| {
        let errors = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
        format!("`go mod download {required}` in {}: {errors}", module.display())
    })
}

/// What of a build is done, and what is left.
struct Left {
    begin: Instant,
    /// The packages that are not in Go's build cache, each with the bytes of its source.
    bytes: HashMap<String, u64>,
    packages: usize,
    whole: u64,
    done: (usize, u64),
}

impl Left {
    /// Asks Go what it would compile. Where it does not say, nothing is known.
    fn ask(go: &Path, module: &Module, packages: &[&str]) -> Self {
        let shown = "{{if .Stale}}{{.ImportPath}}\t{{.Dir}}{{range .GoFiles}}\t{{.}}{{end}}{{end}}";
        let mut list = launcher::go(go, &module.folder);
        list.args(["list", "-deps", "-buildvcs=false", COMPILED, "-f", shown])
            .args(module.flags)
            .args(packages)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let output = list.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let bytes: HashMap<_, _> = output.unwrap_or_default().lines().filter_map(package).collect();
        Self { begin: Instant::now(), packages: bytes.len(), whole: bytes.values().sum(), done: (0, 0), bytes }
    }

    /// Notes what Go says: the package that it compiles, or a module that it fetches.
    fn note(&mut self, package: &str) {
        if let Some(bytes) = self.bytes.remove(package) {
            self.done.0 += 1;
            self.done.1 += bytes;
        }
    }
}

/// A package and the bytes of its source, in a line of Go's list.
fn package(line: &str) -> Option<(String, u64)> {
    let mut parts = line.split('\t').filter(|part| !part.is_empty());
    let (name, folder) = (parts.next()?, Path::new(parts.next()?));
    let size = |file: &str| fs::metadata(folder.join(file)).map_or(0, |metadata| metadata.len());
    Some((name.to_owned(), parts.map(size).sum()))
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (packages, bytes) = self.done;
        let passed = self.begin.elapsed();
        write!(f, "{packages} of {} packages, {} s", self.packages, passed.as_secs())?;
        // What is compiled at this moment counts as done, and linking is not counted: both are small beside the rest.
        if bytes > 0 && self.whole > bytes {
            #[allow(clippy::cast_precision_loss, reason = "an estimate")]
            let left = passed.as_secs_f64() * (self.whole - bytes) as f64 / bytes as f64;
            write!(f, ", about {left:.0} s left")?;
        }
        Ok(())
    }
}

fn run(command: &mut Command, line: &str, name: &str, dir: &Path, mut left: Left) -> anyhow::Result<()> {
    let started = || format!("start `{line}`");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(started)?;
    let mut last = VecDeque::new();
    let mut reported = left.begin;
    if let Some(stderr) = child.stderr.take() {
        for text in BufReader::new(stderr).lines().map_while(Result::ok) {
            left.note(&text);
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                say(format_args!("building {name}: {left}"));
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
    let took = left.begin.elapsed();
    if left.done.0 > 0 || took > REPORT_INTERVAL {
        say(format_args!("built {name} in {} s", took.as_secs()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_much_is_left_by_bytes_of_source() {
        let begin = Instant::now() - Duration::from_secs(10);
        let bytes = HashMap::from([("small".to_owned(), 100), ("large".to_owned(), 300)]);
        let mut left = Left { begin, packages: 2, whole: 400, done: (0, 0), bytes };
        assert_eq!(left.to_string(), "0 of 2 packages, 10 s");
        left.note("go: downloading large v1.0.0");
        left.note("small");
        assert_eq!(left.to_string(), "1 of 2 packages, 10 s, about 30 s left");
        left.note("large");
        assert_eq!(left.to_string(), "2 of 2 packages, 10 s");
    }

    #[test]
    fn reads_a_line_of_the_list() {
        let folder = env!("CARGO_MANIFEST_DIR");
        let (name, bytes) = package(&format!("a/b\t{folder}\tCargo.toml\tnone.go")).unwrap_or_default();
        assert!(name == "a/b" && bytes > 0, "{name} {bytes}");
        assert_eq!(package(""), None);
    }
}
