//! Reads what the API server wrote down about writes: who wrote what, and which version of the object came of it.

mod event;
mod requests;
mod shards;
mod writes;

pub use requests::{Request, Requests};
pub use shards::{Heard, Holder, heard};

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use ringside_ring::RingLabels;
use serde_json::Value;

use self::writes::Said;
use crate::checker::Write;

/// The longest line that is read: an object of 1.5 MB (etcd's limit) in the request and in the answer, with escapes.
const LONGEST_LINE: u64 = 16 << 20;

/// Who asks, by a token that is bound to a Pod.
pub(crate) const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// The log can't be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Not as a file.
    #[error("read {}: {source}", path.display())]
    File {
        /// The log.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Not as the lines that an API server writes.
    #[error("line {number} of {}: {reason}", path.display())]
    Line {
        /// The log.
        path: PathBuf,
        /// Which line.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Hands each write in the log to `take`, one line after the other: no more are in memory than were under way at once. At
/// last those that were not answered: their API server was killed.
///
/// `shards` is the user name of the shards' ServiceAccount: others have Pods as well.
pub fn read(path: &Path, labels: &RingLabels, shards: &str, mut take: impl FnMut(Write)) -> Result<(), AuditError> {
    let mut begun = HashMap::new();
    lines(path, 0, |line| {
        match writes::said(line, labels, shards)? {
            Said::Begun(write) => drop(begun.insert(write.id.clone(), write)),
            Said::Ended(id, writes) => {
                begun.remove(&id);
                writes.into_iter().for_each(&mut take);
            }
            Said::Nothing => {}
        }
        Ok(())
    })?;
    begun.into_values().for_each(|write| take(*write));
    Ok(())
}

/// The events in whose lines this text stands, as they are. An event has a line for each of its stages.
pub fn events(path: &Path, text: &str) -> Result<Vec<Value>, AuditError> {
    let mut found = Vec::new();
    lines(path, 0, |line| {
        let line = std::str::from_utf8(line).map_err(|error| error.to_string())?;
        if line.contains(text) {
            found.push(serde_json::from_str(line).map_err(|error| error.to_string())?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The Pod that the token of an event is bound to.
pub fn pod(event: &Value) -> Option<&str> {
    event["user"]["extra"][POD_NAME][0].as_str()
}

/// Hands each whole line of the log from `offset` on to `take`, which says what is wrong with it. Returns where they end.
fn lines(path: &Path, mut offset: u64, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<u64, AuditError> {
    let failed = |source| AuditError::File { path: path.to_owned(), source };
    let mut log = File::open(path).map_err(failed)?;
    log.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    for number in 1_usize.. {
        line.clear();
        log.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(failed)?;
        // The last one may still be being written.
        let Some(whole) = line.strip_suffix(b"\n") else {
            if u64::try_from(line.len()).is_ok_and(|length| length < LONGEST_LINE) {
                break;
            }
            let reason = "it is longer than any that an API server writes".to_owned();
            return Err(AuditError::Line { path: path.to_owned(), number, reason });
        };
        offset += u64::try_from(line.len()).unwrap_or_default();
        take(whole).map_err(|reason| AuditError::Line { path: path.to_owned(), number, reason })?;
    }
    Ok(offset)
}
