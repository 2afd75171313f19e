//! The folder `target/ringside-e2e`: built programs, one builder at a time.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use super::Environment;
use crate::files::failed;

/// A folder of the cache, locked for this process until dropped.
pub(super) struct Locked {
    folder: PathBuf,
    _lock: File,
}

/// Where programs under `key` are kept.
pub(super) fn folder(environment: &Environment, key: &str) -> PathBuf {
    environment.target.join("ringside-e2e").join(key)
}

impl Locked {
    /// Waits until no other process (or thread) builds into that folder.
    pub(super) fn acquire(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        let path = folder.join(".lock");
        let lock = File::create(&path).map_err(failed("create", &path))?;
        // Released by the kernel when the file is closed, however this process ends.
        lock.lock().map_err(failed("lock", &path))?;
        Ok(Self { folder, _lock: lock })
    }

    /// The folder where a build leaves its programs before they are [published](Self::publish): a build that was
    /// cut short must not leave half a program under its name.
    pub(super) fn staging(&self) -> anyhow::Result<PathBuf> {
        let staging = self.folder.join(".staging");
        fs::create_dir_all(&staging).map_err(failed("create", &staging))?;
        Ok(staging)
    }

    /// The file in the staging folder where a build leaves `program`, with what was published last: `go build` does not
    /// link again what is there already.
    pub(super) fn stage(&self, program: &str) -> anyhow::Result<PathBuf> {
        let staged = self.staging()?.join(program);
        // Neither is there before the first build; after one that was cut short both are.
        let _ = fs::remove_file(&staged);
        let _ = fs::hard_link(self.folder.join(program), &staged);
        Ok(staged)
    }

    /// Moves a program from the staging folder to its place. A process that runs an older one keeps it.
    pub(super) fn publish(&self, program: &str) -> anyhow::Result<PathBuf> {
        let place = self.folder.join(program);
        fs::rename(self.staging()?.join(program), &place).map_err(failed("publish", &place))?;
        Ok(place)
    }
}
