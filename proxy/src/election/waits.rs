//! Locks that another replica is seen to keep, of elections that are not answered here: a controller that elects by one only waits.
//!
//! Such a lock is an object with client-go's record in its annotation, such as an Endpoints object, or one of an own kind with a
//! Lease's fields in its `spec`. Each answer to a request about one object shows who holds it; what an answer to a write
//! shows is this controller. One that writes to the ring's objects all the same does not wait.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use memchr::memmem;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::{elsewhere::is_of, object::RECORD};
use crate::request::Resource;

/// The most locks that are remembered, and the most names of the controller.
const MAX_LOCKS: usize = 64;
const HOLDER: &[u8] = b"holderIdentity";

/// Locks of the controller's elections that another replica holds, and the names of the controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<SharedWaits>);

#[derive(Debug, Default)]
struct SharedWaits {
    state: Mutex<WaitsState>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct WaitsState {
    kept: HashMap<String, KeptLock>,
    /// As which the controller was seen to hold locks.
    own: BTreeSet<String>,
}

/// That another holder keeps a lock.
#[derive(Debug)]
struct KeptLock {
    holder: String,
    since: Instant,
    /// When the controller read it last.
    last: Instant,
}

/// A lock that the controller waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The lock.
    pub lock: String,
    /// Who keeps it.
    pub holder: String,
    /// Since when the controller reads it.
    pub since: Instant,
    /// From when on it does not any more.
    pub until: Instant,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which {} holds", self.lock, self.holder)
    }
}

impl Waits {
    /// An answer about one object showed this record's holder; `wrote`: it was the answer to a write.
    pub(crate) fn saw(&self, lock: &str, holder: &str, wrote: bool, names: &[&str]) {
        let (mut state, now) = (self.0.state.lock(), Instant::now());
        if wrote && state.own.len() < MAX_LOCKS {
            state.own.insert(holder.to_owned());
        }
        let is_own = holder.is_empty() || state.own.contains(holder) || names.iter().any(|name| is_of(holder, name));
        let is_full = state.kept.len() >= MAX_LOCKS;
        let news = if is_own {
            state.kept.remove(lock).is_some()
        } else if let Some(kept) = state.kept.get_mut(lock) {
            (kept.last, kept.holder) = (now, holder.to_owned());
            true
        } else {
            // Once a controller may read an object for many reasons.
            if !is_full {
                state.kept.insert(lock.to_owned(), KeptLock { holder: holder.to_owned(), since: now, last: now });
            }
            false
        };
        if news {
            self.0.changed.notify_one();
        }
    }

    /// The controller writes to an object of the ring: it does not wait.
    pub(crate) fn acts(&self) {
        let mut state = self.0.state.lock();
        if !state.kept.is_empty() {
            state.kept.clear();
            self.0.changed.notify_one();
        }
    }

    /// The lock that the controller waits for: it has read it more than once, the last time `within` that time.
    pub fn waiting(&self, within: Duration) -> Option<Waiting> {
        let (mut state, now) = (self.0.state.lock(), Instant::now());
        state.kept.retain(|_, kept| now < kept.last + within);
        let read_again = state.kept.iter().filter(|(_, kept)| kept.last > kept.since);
        let (lock, kept) = read_again.min_by_key(|(_, kept)| kept.since)?;
        let (lock, holder) = (lock.clone(), kept.holder.clone());
        Some(Waiting { lock, holder, since: kept.since, until: kept.last + within })
    }

    /// Tells when that may have changed.
    pub fn changed(&self) -> Arc<Notify> {
        self.0.changed.clone()
    }
}

/// How people name the lock that a resource is.
pub(crate) fn name(resource: &Resource, name: &str) -> String {
    let namespace = resource.namespace.as_deref().map(|it| format!("{it}/")).unwrap_or_default();
    format!("{} {namespace}{name}", resource.kind)
}

/// The holder in the record of an object, in JSON or protobuf, as far as it has come; empty for one that is free.
pub(crate) fn holder_in(object: &[u8], group: &str) -> Option<String> {
    // In either form the annotation is text, with its quotes escaped or not.
    if let Some(at) = memmem::find(object, RECORD.as_bytes()) {
        let record = &object[at..];
        let value = behind(b':', &record[memmem::find(record, HOLDER)? + HOLDER.len()..])?;
        let value = behind(b'"', value)?;
        let end = value.iter().position(|byte| b"\\\"".contains(byte))?;
        return String::from_utf8(value[..end].to_vec()).ok();
    }
    // A built-in kind with these fields is a Lease, which is looked at elsewhere.
    memmem::find(object, HOLDER).filter(|_| group.contains('.'))?;
    let object: Value = serde_json::from_slice(object).ok()?;
    object["spec"]["renewTime"].as_str()?;
    object["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

/// What stands behind this byte, if nothing is before it but quotes, escaped or not, and blanks.
fn behind(byte: u8, text: &[u8]) -> Option<&[u8]> {
    let at = text.iter().position(|it| *it == byte)?;
    let is_before = |it: &u8| b"\\\" ".contains(it);
    text[..at].iter().all(is_before).then_some(&text[at + 1..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);
    const LOCK: &str = "endpoints ns/lock";

    #[test]
    fn holder_is_found_in_a_record_and_nowhere_else() {
        let annotated = |record: &str| json!({"metadata": {"annotations": {RECORD: record}}}).to_string();
        let record = r#"{"leaseDurationSeconds":15,"holderIdentity":"a_1","renewTime":"x"}"#;
        let raw = [b"\x0a\x28", RECORD.as_bytes(), b"\x12\x50", record.as_bytes()].concat();
        for (object, group, holder) in [
            (annotated(record).into_bytes(), "", Some("a_1")),
            (annotated(&record.replace(':', ": ")).into_bytes(), "", Some("a_1")),
            (annotated(&record.replace("a_1", "")).into_bytes(), "", Some("")),
            (raw, "", Some("a_1")),
            (annotated("{}").into_bytes(), "", None),
            (br#"{"spec":{"holderIdentity":"a","renewTime":"x"}}"#.to_vec(), "locks.example.com", Some("a")),
            (br#"{"spec":{"holderIdentity":"a"}}"#.to_vec(), "locks.example.com", None),
            (br#"{"spec":{"holderIdentity":"a","renewTime":"x"}}"#.to_vec(), "", None),
            (br#"{"data":{"holderIdentity":"a","renewTime":"x"}}"#.to_vec(), "", None),
        ] {
            assert_eq!(holder_in(&object, group).as_deref(), holder, "{}", String::from_utf8_lossy(&object));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn controller_waits_while_it_reads_a_lock_of_another_again_and_writes_nothing() {
        let waits = Waits::default();
        let since = Instant::now();
        waits.saw(LOCK, "other_1", false, &["me"]);
        assert_eq!(waits.waiting(WITHIN), None, "a read tells nothing");
        advance(Duration::from_secs(2)).await;
        waits.saw(LOCK, "other_1", false, &["me"]);
        let waiting = waits.waiting(WITHIN).unwrap();
        assert_eq!((waiting.since, waiting.until), (since, Instant::now() + WITHIN));
        assert_eq!(waiting.to_string(), "endpoints ns/lock, which other_1 holds");
        advance(WITHIN).await;
        assert_eq!(waits.waiting(WITHIN), None, "it asks no more");
        let again = async || {
            for _ in 0..2 {
                advance(Duration::from_secs(2)).await;
                waits.saw(LOCK, "other_1", false, &["me"]);
            }
            assert!(waits.waiting(WITHIN).is_some());
        };
        again().await;
        waits.acts();
        assert_eq!(waits.waiting(WITHIN), None, "it works");
        for (holder, wrote) in [("me_7", false), ("", false), ("a uuid", true), ("a uuid", false)] {
            again().await;
            waits.saw(LOCK, holder, wrote, &["me"]);
            assert_eq!(waits.waiting(WITHIN), None, "{holder}");
        }
    }
}
