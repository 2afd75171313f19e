//! A child process: its log, its signals, its end.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid},
};

use super::guard::{self, Charge};
use crate::eventually::eventually;

/// Becomes the program only when told to: so the guard knows the process group before there is anything in it that
/// could stay behind. When the owner dies first, stdin ends and the shell with it.
const GATE: &str = r#"read -r go && exec "$@" </dev/null"#;

/// So many lines of a log are enough to see why a process ended.
const LOG_TAIL: usize = 20;

/// The kubelet's default grace period.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// After SIGKILL the kernel only has to free the memory.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

/// A running program in a process group of its own, whose output goes to a file. Dropping it kills the group.
#[derive(Debug)]
pub struct Process {
    name: String,
    group: Pid,
    log: PathBuf,
    child: Mutex<Child>,
}

/// Something went wrong with a child process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It has ended already.
    #[error("{name} has ended with {status}; the end of {}:\n{tail}", log.display())]
    Ended {
        /// The process.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
    /// It did not end in time.
    #[error("{name} still runs after {within:?}; the end of {}:\n{tail}", log.display())]
    StillRuns {
        /// The process.
        name: String,
        /// How long it was waited for.
        within: Duration,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
    /// It could not be started, signalled or waited for.
    #[error("{action} {name}: {source}")]
    Control {
        /// What was tried.
        action: &'static str,
        /// The process.
        name: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl Process {
    /// Starts the program that `command` describes: its program, arguments, working folder and the variables that
    /// were set or removed count; stdin is empty, and all output is appended to `log`.
    pub fn spawn(name: &str, command: &Command, log: &Path) -> Result<Self, ProcessError> {
        let start_error = |source| ProcessError::Control { action: "start", name: name.to_owned(), source };
        let output = File::options().create(true).append(true).open(log).map_err(start_error)?;
        let mut child = gated(name, command)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().map_err(start_error)?)
            .stderr(output)
            .spawn()
            .map_err(start_error)?;
        let gate = child.stdin.take();
        let id = child.id();
        let group = i32::try_from(id).ok().and_then(Pid::from_raw);
        let process = Self {
            name: name.to_owned(),
            group: group.ok_or_else(|| start_error(io::Error::other(format!("pid {id}"))))?,
            log: log.to_owned(),
            child: Mutex::new(child),
        };
        guard::watch(Charge::Group(id)).map_err(start_error)?;
        if let Some(mut gate) = gate {
            gate.write_all(b"go\n").map_err(start_error)?;
        }
        Ok(process)
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, which is that of its group as well.
    pub fn id(&self) -> u32 {
        self.group.as_raw_nonzero().get().unsigned_abs()
    }

    /// The file that its output goes to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
    }

    /// Memory of the process that is in RAM and is its own, in bytes: without the pages of the executable, also those that were
    /// changed as it was loaded. An unoptimized build has several times as many of both.
    pub fn own_resident_bytes(&self) -> io::Result<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/smaps", self.id()))?;
        Ok(anonymous_kib(&maps) << 10)
    }

    /// Stops it from running at all, as a machine that hangs would (SIGSTOP). It has stopped when this returns: of
    /// two pending signals the kernel delivers the lower number first, so a SIGTERM that follows could overtake.
    pub fn pause(&self) -> Result<(), ProcessError> {
        self.signal("pause", Signal::STOP)?;
        let change = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.group), change).map(drop).map_err(|errno| self.control_error("pause", errno.into()))
    }

    /// Lets it run again (SIGCONT).
    pub fn resume(&self) -> Result<(), ProcessError> {
        self.signal("resume", Signal::CONT)
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) -> Result<(), ProcessError> {
        self.signal("terminate", Signal::TERM)
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&self) -> Result<(), ProcessError> {
        self.signal("kill", Signal::KILL)
    }

    /// Asks it to end, and waits for that.
    pub async fn stop(&self) -> Result<(), ProcessError> {
        self.terminate()?;
        self.wait(STOP_DEADLINE).await.map(drop)
    }

    /// Ends it at once, with all of its group.
    pub async fn end(&self) -> Result<(), ProcessError> {
        self.kill()?;
        self.wait_for_group(KILL_DEADLINE).await
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Result<Option<ExitStatus>, ProcessError> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().map_err(|source| self.control_error("wait for", source))
    }

    /// Fails when it has ended, with the end of its log.
    pub fn check_running(&self) -> Result<(), ProcessError> {
        match self.status()? {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    /// Waits for its end.
    pub async fn wait(&self, within: Duration) -> Result<ExitStatus, ProcessError> {
        let ended = eventually("the end of a process", within, || async {
            match self.status() {
                Ok(None) => Err("it runs".to_owned()),
                Ok(Some(status)) => Ok(Ok(status)),
                Err(error) => Ok(Err(error)),
            }
        });
        ended.await.unwrap_or_else(|_| Err(self.still_runs(within)))
    }

    /// Waits for the end of all processes of its group: they may outlive the first one by as long as it takes the kernel
    /// to take them apart, and hold ports until then.
    pub async fn wait_for_group(&self, within: Duration) -> Result<(), ProcessError> {
        self.wait(within).await?;
        let ended = eventually("the end of a process group", within, || async {
            match test_kill_process_group(self.group) {
                Err(Errno::SRCH) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        ended.await.map_err(|_| self.still_runs(within))
    }

    /// Under the lock that also reaps the child: a process id that was reaped may belong to another process.
    fn signal(&self, action: &'static str, signal: Signal) -> Result<(), ProcessError> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = child.try_wait().map_err(|source| self.control_error(action, source))? {
            return Err(self.ended(status));
        }
        kill_process_group(self.group, signal).map_err(|errno| self.control_error(action, errno.into()))
    }

    fn control_error(&self, action: &'static str, source: io::Error) -> ProcessError {
        ProcessError::Control { action, name: self.name.clone(), source }
    }

    fn still_runs(&self, within: Duration) -> ProcessError {
        ProcessError::StillRuns { name: self.name.clone(), within, log: self.log.clone(), tail: self.log_tail() }
    }

    fn ended(&self, status: ExitStatus) -> ProcessError {
        ProcessError::Ended { name: self.name.clone(), status, log: self.log.clone(), tail: self.log_tail() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The group before its leader is reaped: until then its id can't be given to others.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = child.wait();
        if let Err(error) = guard::forget(Charge::Group(child.id())) {
            tracing::debug!(%error, "the guard was not told of an ended process");
        }
    }
}

/// The same command, behind the gate and in a process group of its own.
fn gated(name: &str, command: &Command) -> Command {
    let mut gated = Command::new("/bin/sh");
    gated.args(["-c", GATE, name]).arg(command.get_program()).args(command.get_args()).process_group(0);
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => gated.env(key, value),
            None => gated.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        gated.current_dir(dir);
    }
    gated
}

/// The anonymous memory of mappings that are of no file, in KiB (`proc(5)`).
fn anonymous_kib(smaps: &str) -> u64 {
    let (mut is_of_file, mut kib) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Anonymous:") if !is_of_file => {
                kib += words.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
            }
            Some(first) if !first.ends_with(':') => is_of_file = words.nth(4).is_some_and(|path| path.starts_with('/')),
            _ => {}
        }
    }
    kib
}

/// What `/proc/PID/status` says of the memory of a process, in bytes, by the name of the line.
pub fn memory(process: u32, line: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    status
        .lines()
        .find_map(|text| text.strip_prefix(line)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kibibytes| kibibytes.trim().parse::<u64>().ok())
        .map(|kibibytes| kibibytes * 1024)
        .ok_or_else(|| io::Error::other(format!("no {line}: the process has ended")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_files_is_not_a_process_own() {
        let smaps = "5500-5600 r--p 01f842d0 fe:00 12 /bin/program\nRss: 40 kB\nAnonymous: 40 kB\n\
            5600-5700 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nAnonymous: 8 kB\n\
            7f00-7f10 rw-p 00000000 00:00 0\nAnonymous: 100 kB\nVmFlags: rd wr\n";
        assert_eq!(anonymous_kib(smaps), 108);
    }
}
