//! Builds the demo and what it shows, and becomes it: `cargo demo`.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use ringside_launcher::{COMPILED, Module, Release, VARIABLE, WRITTEN, go};

/// The demo, and the programs that it runs. Built by one call, so that both cores have work until its end.
const PROGRAMS: [&str; 3] = ["demo", "ringside-proxy", "ringside-sharder"];

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
    }
    let beside = if shows_all { begin_to_compile(&arguments)? } else { Vec::new() };
    let step = Instant::now();
    let built = build(shows_all);
    // What it has compiled is in Go's cache; the demo compiles the rest, and shows it.
    beside.into_iter().for_each(interrupt);
    built?;
    if shows_all {
        say(&format!("step 1 took {} s", step.elapsed().as_secs()));
    }
    let demo = folder().map_err(|error| format!("find the demo: {error}"))?.join(PROGRAMS[0]);
    let error = Command::new(&demo).args(arguments).env("RINGSIDE_DEMO_BEGAN", began.to_string()).exec();
    Err(format!("start {}: {error}", demo.display()))
}

/// Starts Go's compilers where cargo leaves a core idle.
fn begin_to_compile(arguments: &[OsString]) -> Result<Vec<Child>, String> {
    check_go()?;
    let mut compilers = Vec::new();
    if env::var_os("KUBEBUILDER_ASSETS").is_none() {
        let release = release(arguments)?;
        let folder = folder().map_err(|error| format!("find the cache: {error}"))?;
        let folder = folder.join("../ringside-e2e").join(release.folder());
        if !folder.join("kube-apiserver").is_file() {
            let server = "k8s.io/kubernetes/cmd/kube-apiserver";
            for (module, package) in [(Module::Etcd, Module::Etcd.path()), (Module::Kubernetes, server)] {
                let folder = folder.join(module.folder());
                module.write(release, &folder).map_err(|error| format!("write {}: {error}", folder.display()))?;
                compilers.push(compile(&folder, &[WRITTEN, package])?);
            }
        }
    }
    compilers.push(compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../operator"), &["."])?);
    Ok(compilers)
}

/// The release that the demo runs on.
fn release(arguments: &[OsString]) -> Result<Release, String> {
    let mut texts = arguments.iter().filter_map(|argument| argument.to_str());
    let named = texts.find_map(|text| text.strip_prefix("--kubernetes")).map(|rest| rest.strip_prefix('='));
    let named = match named {
        Some(Some(value)) => Some(value.to_owned()),
        Some(None) => texts.next().map(str::to_owned),
        None => env::var(VARIABLE).ok().filter(|named| !named.is_empty()),
    };
    named.map_or(Ok(Release::LATEST), |named| Release::named(&named))
}

/// Without linking: the programs are linked where they are needed. Others first, at this priority.
fn compile(module: &Path, packages: &[&str]) -> Result<Child, String> {
    let mut compile = go(Path::new("nice"), module);
    compile.args(["-n", "15", "go", "list", "-export", "-deps", "-f", "", "-buildvcs=false", COMPILED]).args(packages);
    compile.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    compile.spawn().map_err(|error| format!("start `nice`: {error}"))
}

/// Ends a Go command, which takes its temporary folder with it.
fn interrupt(mut compiler: Child) {
    let told = Command::new("kill").arg("-INT").arg(compiler.id().to_string()).stderr(Stdio::null()).status();
    if !told.is_ok_and(|status| status.success()) {
        let _has_ended = compiler.kill();
    }
    let _has_ended = compiler.wait();
}

/// Refuses to begin without Go: also beside assets, which have no operator.
fn check_go() -> Result<(), String> {
    match Command::new("go").arg("version").stdin(Stdio::null()).output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("`go` is not on PATH, and the sample operator is built with it: install Go 1.26 or newer \
                 (https://go.dev/dl/, or `apt-get install golang-go` where that is new enough)"
                .to_owned())
        }
        Err(error) => Err(format!("start `go`: {error}")),
    }
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
