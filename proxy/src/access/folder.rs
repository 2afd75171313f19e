//! Files that appear whole or not at all.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::AccessError;

/// For the controller, whose user and group its image says: the volume is mounted by its container and this one alone, and
/// Kubernetes gives a pod's token the same mode.
const SHARED: u32 = 0o644;
/// For this process alone.
const PRIVATE: u32 = 0o600;
/// For a folder that is no volume of a pod, as on a host with other users.
const FOLDER: u32 = 0o750;

pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, AccessError> {
        let created = DirBuilder::new().recursive(true).mode(FOLDER).create(path);
        created.map_err(|source| error("create the folder", path, source))?;
        Ok(Self(path.to_owned()))
    }

    /// The file's text; `None` if it is not there or can't be read, in which case the caller writes it again.
    pub(super) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join(name)).ok()
    }

    /// Takes a file away; whether there was one.
    pub(super) fn take(&self, name: &str) -> Result<bool, AccessError> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(error("remove", &path, source)),
        }
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), AccessError> {
        self.replace(name, text, SHARED)
    }

    pub(super) fn write_private(&self, name: &str, text: &str) -> Result<(), AccessError> {
        self.replace(name, text, PRIVATE)
    }

    /// By a rename, because a controller may read at any moment.
    fn replace(&self, name: &str, text: &str, mode: u32) -> Result<(), AccessError> {
        let path = self.0.join(name);
        let temporary = self.0.join(format!(".{name}.new"));
        let written = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
            // The umask, or a file left by a crash, may have given it another mode.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        written().map_err(|source| error("write", &path, source))
    }
}

fn error(action: &'static str, path: &Path, source: io::Error) -> AccessError {
    AccessError::File { action, path: path.to_owned(), source }
}
