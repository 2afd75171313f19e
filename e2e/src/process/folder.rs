//! A temporary folder that is gone when its owner is; of one whose test failed the logs stay.

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::guard::{self, Charge};

/// All that are there now.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Keeps the logs in all folders that are there now: what of several systems a failure was about is not known.
pub fn keep_all_logs() {
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    folders.iter().for_each(|folder| keep_logs(folder));
}

/// A folder under the system's folder for temporary files, removed with all that is in it when dropped. When that
/// happens because its owner panicked, as a test that fails does, the logs in it are kept elsewhere.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder whose name begins with `ringside-` and `name`. Only this user may look into it: there are
    /// keys and tokens in such folders.
    pub fn create(name: &str) -> io::Result<Self> {
        let unique: u64 = rand::random();
        let path = fs::canonicalize(env::temp_dir())?.join(format!("ringside-{name}-{unique:016x}"));
        // The guard first: between two steps the owner may be killed.
        guard::watch(Charge::Path(&path))?;
        let folder = Self(path);
        fs::DirBuilder::new().mode(0o700).create(&folder.0)?;
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.0.clone());
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Says on stderr where, which is shown with the failure of a test.
#[allow(clippy::print_stderr, reason = "tests set no log up, and this is the time to speak")]
fn keep_logs(folder: &Path) {
    match super::keep_logs(&[folder]) {
        Ok(Some(kept)) => eprintln!("the logs of what ran in {} are kept in {}", folder.display(), kept.display()),
        Ok(None) => {}
        Err(error) => eprintln!("the logs in {} could not be kept: {error}", folder.display()),
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            keep_logs(&self.0);
        }
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        // What can't be removed now stays with the guard, which tries again.
        match fs::remove_dir_all(&self.0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %self.0.display(), %error, "folder is left to the guard");
                return;
            }
        }
        if let Err(error) = guard::forget(Charge::Path(&self.0)) {
            tracing::debug!(%error, "the guard was not told of a removed folder");
        }
    }
}
