//! Builds the demo and what it shows, and becomes it: `cargo demo`.

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// The demo, and the programs that it runs. Built by one call, so that both cores have work until its end.
const PROGRAMS: [&str; 3] = ["demo", "ringside-proxy", "ringside-sharder"];

/// The Go modules that the demo builds.
const MODULES: [&str; 2] = ["controlplane", "operator"];

fn main() -> ExitCode {
    match launch() {
        Ok(never) => match never {},
        Err(fault) => {
            say(&format!("error: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn launch() -> Result<std::convert::Infallible, String> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    // Help needs no control plane.
    let shows_all = !arguments.iter().any(|one| one == "--help" || one == "-h");
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if shows_all {
        say(
            "three steps: 1. build Ringside and the demo (Rust), 2. build etcd, kube-apiserver and the sample operator (Go), \
             3. the demo, about 80 s. From empty caches step 1 and 2 take minutes; then they are cached",
        );
        begin_downloads()?;
    }
    let step = Instant::now();
    build(shows_all)?;
    if shows_all {
        say(&format!("step 1 took {} s", step.elapsed().as_secs()));
    }
    let demo = folder().map_err(|error| format!("find the demo: {error}"))?.join(PROGRAMS[0]);
    let error = Command::new(&demo).args(arguments).env("RINGSIDE_DEMO_BEGAN", began.to_string()).exec();
    Err(format!("start {}: {error}", demo.display()))
}

/// Names a missing Go at once, and fetches Go's modules beside cargo's work: that takes the network, and no processor.
fn begin_downloads() -> Result<(), String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for module in MODULES {
        let mut download = Command::new("go");
        download.args(["mod", "download"]).current_dir(manifest.join(module));
        download.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends by itself, and `go build` reports what it could not fetch.
        match download.spawn() {
            Ok(_) => {}
            // Also beside assets, which have no operator.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("`go` is not on PATH, and the sample operator is built with it: install Go 1.26 or newer \
                            (https://go.dev/dl/, or `apt-get install golang-go` where that is new enough)"
                    .to_owned());
            }
            Err(error) => return Err(format!("start `go`: {error}")),
        }
    }
    Ok(())
}

fn build(shows_all: bool) -> Result<(), String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("build");
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let wanted = if shows_all { &PROGRAMS[..] } else { &PROGRAMS[..1] };
    for program in wanted {
        cargo.args(["--bin", program]);
    }
    // A build that inherits what cargo told this process looks changed to build scripts that watch it.
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().map_err(|error| format!("start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo build ended with {status}")) }
}

/// Where cargo leaves the programs of this profile: beside this one.
fn folder() -> io::Result<PathBuf> {
    let this = env::current_exe()?;
    this.parent().map(Path::to_owned).ok_or_else(|| io::Error::other("this program lies in no folder"))
}

#[allow(clippy::print_stderr, reason = "progress is for the terminal")]
fn say(line: &str) {
    eprintln!("cargo demo: {line}");
}
