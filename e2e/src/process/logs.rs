//! Logs that outlive the folder that they were written to.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

/// Copies the logs in these folders to a folder beside the first of them that stays, and returns that if there are any.
/// Nothing else is copied: there are keys and tokens beside them. Only this user may look into it.
///
/// # Errors
/// When a file can't be copied.
pub fn keep(folders: &[&Path]) -> io::Result<Option<PathBuf>> {
    let mut logs = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            logs.push(entry?.path());
        }
    }
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    let Some(first) = folders.first().filter(|_| !logs.is_empty()) else { return Ok(None) };
    let kept = first.with_extension("logs");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&kept)?;
    for log in logs {
        if let Some(name) = log.file_name() {
            fs::copy(&log, kept.join(name))?;
        }
    }
    Ok(Some(kept))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::process::Folder;

    /// What was kept of folders that are gone by now.
    fn kept(path: &Path) -> Vec<String> {
        let kept = path.with_extension("logs");
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
        let names = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        fs::remove_dir_all(&kept).unwrap();
        names
    }

    #[test]
    fn logs_stay_when_their_folders_are_gone_and_keys_do_not() {
        let (one, other) = (Folder::create("test").unwrap(), Folder::create("test").unwrap());
        let path = one.path().to_owned();
        assert_eq!(keep(&[&path]).unwrap(), None);
        fs::write(path.join("etcd.log"), "e").unwrap();
        fs::write(path.join("ca.key"), "secret").unwrap();
        fs::write(other.path().join("shard-0-proxy.log"), "p").unwrap();
        assert!(keep(&[&path, other.path()]).unwrap().is_some());
        drop((one, other));
        assert!(!path.exists());
        assert_eq!(kept(&path), ["etcd.log", "shard-0-proxy.log"]);
    }

    #[test]
    fn of_a_test_that_fails_the_logs_stay_and_of_one_that_passes_nothing() {
        let path = |fails: bool| {
            let folder = Folder::create("test").unwrap();
            let path = folder.path().to_owned();
            fs::write(path.join("etcd.log"), "e").unwrap();
            let test = std::thread::spawn(move || {
                let _folder = folder;
                assert!(!fails);
            });
            assert_eq!(test.join().is_err(), fails);
            assert!(!path.exists());
            path
        };
        assert_eq!(kept(&path(true)), ["etcd.log"]);
        assert!(!path(false).with_extension("logs").exists());
    }
}
