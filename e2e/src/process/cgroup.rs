//! A cgroup that is gone when its owner is.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::guard::{self, Charge};

/// Where every distribution mounts the hierarchies.
const MOUNT: &str = "/sys/fs/cgroup";

/// A cgroup can be removed when the last process in it is gone: killed ones still have memory and mounts to give back.
const REMOVE_DEADLINE: Duration = Duration::from_secs(10);

/// How often it is tried.
const INTERVAL: Duration = Duration::from_millis(20);

/// A cgroup, below the root of each hierarchy, removed with all cgroups in it when dropped. It ends no process: that
/// is its owner's work.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes one of that name, which no other process on the machine may have given.
    pub fn create(name: &str) -> io::Result<Self> {
        let mut cgroup = Self { name: name.to_owned(), folders: Vec::new() };
        for hierarchy in hierarchies()? {
            let folder = hierarchy.join(&cgroup.name);
            // The guard first: between two steps the owner may be killed.
            guard::watch(Charge::Cgroup(&folder))?;
            cgroup.folders.push(folder.clone());
            fs::create_dir(folder)?;
        }
        Ok(cgroup)
    }

    /// Its name, which is its path below the root of each hierarchy.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let begin = Instant::now();
        for folder in &self.folders {
            while let Err(error) = remove(folder) {
                if begin.elapsed() > REMOVE_DEADLINE {
                    tracing::warn!(path = %folder.display(), %error, "cgroups are left to the guard");
                    return;
                }
                thread::sleep(INTERVAL);
            }
            if let Err(error) = guard::forget(Charge::Cgroup(folder)) {
                tracing::debug!(%error, "the guard was not told of a removed cgroup");
            }
        }
    }
}

/// The roots of the hierarchies: one where cgroup v2 is alone, else one for each controller of v1, and v2 beside them.
fn hierarchies() -> io::Result<Vec<PathBuf>> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return Ok(vec![mount.to_owned()]);
    }
    let mut roots = Vec::new();
    for entry in fs::read_dir(mount)? {
        let entry = entry?;
        // Not through links: `cpu` is one to `cpu,cpuacct` where the two are mounted together.
        if entry.file_type()?.is_dir() {
            roots.push(entry.path());
        }
    }
    if roots.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("no hierarchy is mounted in {MOUNT}")));
    }
    Ok(roots)
}

/// Removes a cgroup and those in it. The files in their folders can't be removed, and need not be.
fn remove(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
