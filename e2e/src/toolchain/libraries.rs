//! What programs that run from their source need beside it: fetched once for each text of the list that names it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    Environment, ToolchainError,
    cache::{self, Locked},
    progress::say,
};

/// A package manager's way to fetch what a program needs.
pub(super) struct Fetcher {
    /// The file in the program's folder that names it.
    pub(super) list: &'static str,
    /// What is fetched, and by whom, for people.
    pub(super) what: [&'static str; 2],
    /// The command line, for people.
    pub(super) shown: &'static str,
    /// What fetches the things on a list into a folder.
    pub(super) command: fn(&Path, &Path) -> Command,
}

impl Fetcher {
    /// The folder with what the program in `folder` needs.
    pub(super) fn fetched(&self, environment: &Environment, folder: &Path) -> Result<PathBuf, ToolchainError> {
        let list = folder.join(self.list);
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| ToolchainError::Cache { action, path, source }
        };
        let text = fs::read(&list).map_err(failed("read", &list))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let place = cache::folder(environment, &name);
        let locked = Locked::acquire(place.clone())?;
        // The copy of the list says of which text the folder is.
        let (libraries, of) = (place.join("lib"), place.join(self.list));
        if fs::read(&of).is_ok_and(|was| was == text) {
            return Ok(libraries);
        }
        let [things, manager] = self.what;
        say(format_args!("fetching the {things} of {name} by {manager}"));
        let output = (self.command)(&list, &locked.staging()?.join("lib"))
            .stdin(Stdio::null())
            .output()
            .map_err(|source| ToolchainError::Start { command: self.shown.to_owned(), source })?;
        if !output.status.success() {
            return Err(ToolchainError::Build {
                command: self.shown.to_owned(),
                dir: folder.to_owned(),
                status: output.status,
                output: [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat(),
            });
        }
        let _ = fs::remove_dir_all(&libraries);
        let libraries = locked.publish("lib")?;
        fs::write(&of, text).map_err(failed("write", &of))?;
        Ok(libraries)
    }
}
