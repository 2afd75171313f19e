//! Reads what the API server wrote down about writes: who wrote what, and which version of the object came of it.

mod event;
mod requests;
mod shards;
mod writes;

pub(crate) use event::Event;
pub use requests::{Request, Requests};
pub use shards::{Heard, Holder, heard};

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use anyhow::{anyhow, bail};
use ringside_ring::RingLabels;
use serde_json::Value;

use self::writes::Said;
use crate::{checker::Write, files::failed};

/// The longest line that is read: an object of 1.5 MB (etcd's limit) in the request and in the answer, with escapes.
const MAX_LINE: u64 = 16 << 20;

/// Who asks, by a token that is bound to a Pod.
pub(crate) const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// Hands each write in the log to `take`, one line after the other: no more are in memory than were under way at once. At
/// last those that were not answered: their API server was killed.
///
/// `shards` is the user name of the shards' ServiceAccount: others have Pods as well.
pub fn read(path: &Path, labels: &RingLabels, shards: &str, mut take: impl FnMut(Write)) -> anyhow::Result<()> {
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
pub fn events(path: &Path, text: &str) -> anyhow::Result<Vec<Value>> {
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
pub(crate) fn lines(
    path: &Path,
    mut offset: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> anyhow::Result<u64> {
    let mut log = File::open(path).map_err(failed("open", path))?;
    log.seek(SeekFrom::Start(offset)).map_err(failed("read", path))?;
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    for number in 1_usize.. {
        line.clear();
        log.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed("read", path))?;
        // The last one may still be being written.
        let Some(whole) = line.strip_suffix(b"\n") else {
            if u64::try_from(line.len()).is_ok_and(|length| length < MAX_LINE) {
                break;
            }
            bail!("line {number} of {}: it is longer than any that an API server writes", path.display());
        };
        offset += u64::try_from(line.len()).unwrap_or_default();
        take(whole).map_err(|reason| anyhow!("line {number} of {}: {reason}", path.display()))?;
    }
    Ok(offset)
}
