//! Children and folders are gone when their owner is, whatever its end.
//!
//! The owner is this program again, started with [`OWNER_NOTE`] and [`OWNER_END`] set.
#![allow(clippy::unwrap_used)]

use std::{
    env,
    path::Path,
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

const DEADLINE: Duration = Duration::from_secs(60);

/// The file in which an owner says what it owns: its child's pid, a blank, and its folder.
const OWNER_NOTE: &str = "OWNER_NOTE";
/// How an owner ends.
const OWNER_END: &str = "OWNER_END";

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn main() -> ExitCode {
    if let (Some(note), Ok(end)) = (env::var_os(OWNER_NOTE), env::var(OWNER_END)) {
        runtime().block_on(own(Path::new(&note), &end));
        return ExitCode::SUCCESS;
    }
    let mut trials = vec![
        trial("the_whole_group_is_gone", the_whole_group_is_gone()),
        trial("a_group_has_ended_when_its_last_process_has", a_group_has_ended_when_its_last_process_has()),
        trial("signals_reach_it_and_its_end_is_seen", signals_reach_it_and_its_end_is_seen()),
        trial("a_missing_program_ends_at_once_and_says_so", a_missing_program_ends_at_once_and_says_so()),
    ];
    // One that unwinds, one that drops nothing, and one that can do nothing.
    trials.extend(
        ["panic", "exit", "sigkill"].map(|end| trial(&format!("gone_after_{end}_of_the_owner"), gone_after(end))),
    );
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, run: impl Future<Output = ()> + Send + 'static) -> Trial {
    Trial::test(name, || {
        runtime().block_on(run);
        Ok(())
    })
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

/// The owner is this program once more.
async fn gone_after(end: &str) {
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
    if end == "sigkill" {
        kill_process(pid(process.id()), Signal::KILL).unwrap();
    }
    process.wait(DEADLINE).await.unwrap();
    gone("the owner's child", child.parse().unwrap()).await;
    eventually("the owner's folder is gone", DEADLINE, || async {
        if Path::new(folder).exists() { Err("it exists".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();
}

async fn gone(what: &str, id: u32) {
    eventually(what, DEADLINE, || async { if runs(id) { Err("it runs".to_owned()) } else { Ok(()) } }).await.unwrap();
}

/// Owns a process and a folder, writes down which, and ends as told.
async fn own(note: &Path, end: &str) {
    let folder = Folder::create("test").unwrap();
    let process = Process::spawn("stubborn", &stubborn(), &folder.path().join("log")).unwrap();
    let text = format!("{} {}", process.id(), folder.path().display());
    let draft = note.with_extension("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, note).unwrap();
    match end {
        "panic" => panic!("as told"),
        "exit" => std::process::exit(0),
        _ => std::future::pending().await,
    }
}
