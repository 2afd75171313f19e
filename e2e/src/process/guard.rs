//! The process that outlives its owner, to clean up after it.

use std::{
    fmt,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

const SCRIPT: &str = include_str!("guard.sh");

/// What the guard cleans up.
#[derive(Clone, Copy)]
pub(super) enum Charge<'a> {
    /// A process group, by the id of its leader.
    Group(u32),
    /// A file, or a folder with all that is in it.
    Path(&'a Path),
    /// The folder of a cgroup, with all cgroups in it.
    Cgroup(&'a Path),
}

impl fmt::Display for Charge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(id) => write!(f, "group {id}"),
            Self::Path(path) => write!(f, "path {}", path.display()),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}

/// Hands something over to the guard's care. It is in the pipe when this returns: the guard reads what is there before
/// it sees the pipe's end.
pub(super) fn watch(charge: Charge<'_>) -> io::Result<()> {
    if let Charge::Path(path) | Charge::Cgroup(path) = charge {
        refuse_unsafe(path)?;
    }
    tell(&format!("{charge}\n"))
}

/// Takes something out of the guard's care, once it is gone.
pub(super) fn forget(charge: Charge<'_>) -> io::Result<()> {
    tell(&format!("forget {charge}\n"))
}

/// The guard removes paths with all that is in them, from its own working folder.
fn refuse_unsafe(path: &Path) -> io::Result<()> {
    let text = path.to_str().unwrap_or("\n");
    if path.is_absolute() && path.parent().is_some() && !text.contains('\n') {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: not an absolute path of plain text", path.display())))
}

fn tell(line: &str) -> io::Result<()> {
    static GUARD: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();
    let mut guard = GUARD.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let mut stdin = match guard.take() {
        Some(stdin) => stdin,
        None => start()?,
    };
    stdin.write_all(line.as_bytes())?;
    *guard = Some(stdin);
    Ok(())
}

fn start() -> io::Result<ChildStdin> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "ringside-guard"])
        // A group of its own: Ctrl-C in a terminal goes to the owner's group.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        // A process that waits for the end of the owner's output must not wait for the guard.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().ok_or_else(|| io::Error::other("the guard has no stdin"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn refuses_to_remove_what_is_not_clearly_named() {
        for path in ["relative", "/", "/var/a\nb", ""] {
            assert!(watch(Charge::Path(Path::new(path))).is_err(), "{path:?}");
        }
    }
}
