//! Children and folders are gone when their owner is, whatever its end.
//!
//! The owner is this program again, started with [`OWNER_NOTE`] and [`OWNER_END`] set.
#![allow(clippy::unwrap_used)]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use libtest_mimic::{Arguments, Trial};
use ringside_e2e::{
    eventually::eventually,
    process::{Folder, Process, ProcessError},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::runtime::Runtime;

const DEADLINE: Duration = Duration::from_secs(10);

/// The file in which an owner says what it owns: its child's pid, a blank, and its folder.
const OWNER_NOTE: &str = "OWNER_NOTE";
/// How an owner ends.
const OWNER_END: &str = "OWNER_END";

macro_rules! trials {
    ($($name:ident)*) => {
        vec![$(Trial::test(stringify!($name), || {
            runtime().block_on($name());
            Ok(())
        })),*]
    };
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn main() -> ExitCode {
    if let (Some(note), Ok(end)) = (env::var_os(OWNER_NOTE), env::var(OWNER_END)) {
        runtime().block_on(own(Path::new(&note), &end));
        return ExitCode::SUCCESS;
    }
    let trials = trials![
        a_dropped_process_is_gone
        the_whole_group_is_gone
        a_group_has_ended_when_its_last_process_has
        signals_reach_it_and_its_end_is_seen
        a_missing_program_ends_at_once_and_says_so
        gone_after_a_panic_of_the_owner
        gone_after_an_abort_of_the_owner
        gone_after_an_exit_that_drops_nothing
        gone_after_sigkill_of_the_owner
        gone_after_sigterm_of_the_owner
        gone_after_an_interrupt_that_the_owner_handles
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A program that only a signal ends, and that does not listen to the polite ones.
fn stubborn() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' TERM INT; while :; do sleep 1; done"]);
    command
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Whether the process runs: one that has ended but was not reaped by its new parent yet does not.
fn runs(id: u32) -> bool {
    if test_kill_process(pid(id)).is_err() {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

async fn a_dropped_process_is_gone() {
    let folder = Folder::create("test").unwrap();
    let process = Process::spawn("stubborn", &stubborn(), &folder.path().join("log")).unwrap();
    let (id, path) = (process.id(), folder.path().to_owned());
    assert!(runs(id));
    drop(process);
    assert!(!runs(id));
    drop(folder);
    assert!(!path.exists());
}

/// A process and the id of a child of it.
async fn family(folder: &Folder) -> (Process, u32) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"sleep 1000 & echo $! > pid.new; mv pid.new pid; wait"#]).current_dir(folder.path());
    let process = Process::spawn("parent", &command, &folder.path().join("log")).unwrap();
    let written = eventually("pid of the grandchild", DEADLINE, || async {
        std::fs::read_to_string(folder.path().join("pid")).map_err(|error| error.to_string())
    });
    (process, written.await.unwrap().trim().parse().unwrap())
}

async fn the_whole_group_is_gone() {
    let folder = Folder::create("test").unwrap();
    let (process, id) = family(&folder).await;
    assert!(runs(id));
    drop(process);
    gone("the grandchild", id).await;
}

async fn a_group_has_ended_when_its_last_process_has() {
    let folder = Folder::create("test").unwrap();
    let (process, id) = family(&folder).await;
    kill_process(pid(process.id()), Signal::KILL).unwrap();
    process.wait(DEADLINE).await.unwrap();
    let waited = process.wait_for_group(Duration::from_millis(100)).await;
    assert!(matches!(waited, Err(ProcessError::StillRuns { .. })), "{waited:?}");
    kill_process(pid(id), Signal::KILL).unwrap();
    process.wait_for_group(DEADLINE).await.unwrap();
}

async fn signals_reach_it_and_its_end_is_seen() {
    let folder = Folder::create("test").unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo working on $TASK; exec sleep 1000"]).env("TASK", "nothing");
    let process = Process::spawn("sleeper", &command, &folder.path().join("log")).unwrap();
    eventually("its output", DEADLINE, || async {
        let tail = process.log_tail();
        if tail == "working on nothing" { Ok(()) } else { Err(tail) }
    })
    .await
    .unwrap();
    assert!(process.own_resident_bytes().unwrap() > 0);
    process.pause().unwrap();
    process.terminate().unwrap();
    assert!(matches!(process.wait(Duration::from_millis(100)).await, Err(ProcessError::StillRuns { .. })));
    process.resume().unwrap();
    assert!(!process.wait(DEADLINE).await.unwrap().success());
    let refused = process.kill().unwrap_err();
    assert!(matches!(refused, ProcessError::Ended { .. }));
    assert!(refused.to_string().contains("working on nothing"), "{refused}");
}

async fn a_missing_program_ends_at_once_and_says_so() {
    let folder = Folder::create("test").unwrap();
    let command = Command::new("/no/such/program");
    let process = Process::spawn("missing", &command, &folder.path().join("log")).unwrap();
    assert_eq!(process.wait(DEADLINE).await.unwrap().code(), Some(127));
    assert!(process.log_tail().contains("/no/such/program"));
}

async fn gone_after_a_panic_of_the_owner() {
    Owner::start("panic").await.assert_cleaned_up().await;
}

async fn gone_after_an_abort_of_the_owner() {
    Owner::start("abort").await.assert_cleaned_up().await;
}

async fn gone_after_an_exit_that_drops_nothing() {
    Owner::start("exit").await.assert_cleaned_up().await;
}

async fn gone_after_sigkill_of_the_owner() {
    let owner = Owner::start("park").await;
    owner.signal(Signal::KILL);
    owner.assert_cleaned_up().await;
}

async fn gone_after_sigterm_of_the_owner() {
    let owner = Owner::start("park").await;
    owner.signal(Signal::TERM);
    owner.assert_cleaned_up().await;
}

async fn gone_after_an_interrupt_that_the_owner_handles() {
    let owner = Owner::start("interrupt").await;
    owner.signal(Signal::INT);
    owner.assert_cleaned_up().await;
}

/// This program once more, as an owner.
struct Owner {
    process: Process,
    child: u32,
    folder: PathBuf,
    _notes: tempfile::TempDir,
}

impl Owner {
    async fn start(end: &str) -> Self {
        let notes = tempfile::tempdir().unwrap();
        let note = notes.path().join("note");
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(OWNER_NOTE, &note).env(OWNER_END, end);
        // So that it is gone, and all that it owns, when this test fails before it ends.
        let process = Process::spawn("owner", &command, &notes.path().join("log")).unwrap();
        let text = eventually("the owner's note", DEADLINE, || async {
            std::fs::read_to_string(&note).map_err(|error| error.to_string())
        });
        let text = text.await.unwrap();
        let (child, folder) = text.split_once(' ').unwrap();
        Self { process, child: child.parse().unwrap(), folder: folder.into(), _notes: notes }
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(self.process.id()), signal).unwrap();
    }

    async fn assert_cleaned_up(self) {
        self.process.wait(DEADLINE).await.unwrap();
        gone("the owner's child", self.child).await;
        eventually("the owner's folder is gone", DEADLINE, || async {
            if self.folder.exists() { Err("it exists".to_owned()) } else { Ok(()) }
        })
        .await
        .unwrap();
    }
}

async fn gone(what: &str, id: u32) {
    eventually(what, DEADLINE, || async { if runs(id) { Err("it runs".to_owned()) } else { Ok(()) } }).await.unwrap();
}

/// Owns a process and a folder, writes down which, and ends as told.
async fn own(note: &Path, end: &str) {
    let folder = Folder::create("test").unwrap();
    let process = Process::spawn("stubborn", &stubborn(), &folder.path().join("log")).unwrap();
    // Listening before the note says that the owner is there.
    let interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    let text = format!("{} {}", process.id(), folder.path().display());
    let draft = note.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, note).unwrap();
    match end {
        "panic" => panic!("as told"),
        "abort" => std::process::abort(),
        "exit" => std::process::exit(0),
        "interrupt" => {
            interrupt.unwrap().recv().await;
        }
        _ => std::future::pending().await,
    }
}
