//! Logs that outlive the system that wrote them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Copies the logs in these folders, and nothing else of them, to a new folder that stays: there are keys and tokens
/// beside them. Only this user may look into it.
pub(super) fn keep(folders: &[&Path]) -> io::Result<PathBuf> {
    let kept = tempfile::Builder::new().prefix("ringside-logs-").tempdir()?;
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if let Some(name) =
                path.file_name().filter(|_| path.extension().is_some_and(|extension| extension == "log"))
            {
                fs::copy(&path, kept.path().join(name))?;
            }
        }
    }
    Ok(kept.keep())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn logs_stay_when_their_folders_are_gone_and_keys_do_not() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(one.path().join("etcd.log"), "e").unwrap();
        fs::write(one.path().join("ca.key"), "secret").unwrap();
        fs::write(other.path().join("shard-0-proxy.log"), "p").unwrap();
        let kept = keep(&[one.path(), other.path()]).unwrap();
        drop((one, other));
        let mut names: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let text = fs::read_to_string(kept.join("shard-0-proxy.log")).unwrap();
        fs::remove_dir_all(&kept).unwrap();
        assert_eq!((names, text.as_str()), (vec!["etcd.log".into(), "shard-0-proxy.log".into()], "p"));
    }
}
