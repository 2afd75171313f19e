//! A temporary folder that is gone when its owner is; of one whose test failed the logs stay.

use std::{
    env, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use super::guard::{self, Charge};

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
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Folder {
    /// Says on stderr where, which is shown with the failure of a test.
    #[allow(clippy::print_stderr, reason = "tests set no log up, and this is the time to speak")]
    fn keep_logs(&self) {
        match super::keep_logs(&[&self.0]) {
            Ok(Some(kept)) => eprintln!("the logs of what ran in {} are kept in {}", self.0.display(), kept.display()),
            Ok(None) => {}
            Err(error) => eprintln!("the logs in {} could not be kept: {error}", self.0.display()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
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
