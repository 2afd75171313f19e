//! How much memory the locks may take, and which were refused: a controller does not lead by these.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use ringside_runtime::admin::Check;
use tokio::time::Instant;

use super::object::LockName;

/// What all locks may take that are not named: thousands of Leases. More is a client that elects under ever new names.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// What a lock takes besides the text of its object.
pub(super) const OVERHEAD: usize = 512;
/// An elector that was refused tries again every few seconds. One that does not any more needs no room.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(2);

/// The locks that were refused lately: a readiness check.
#[derive(Debug, Default)]
pub(super) struct Refused {
    check: Option<Check>,
    last_tried: Mutex<HashMap<LockName, Tried>>,
}

#[derive(Debug)]
struct Tried {
    at: Instant,
    why: Why,
}

/// Why a lock was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    NoRoom,
    /// The API server does not let the shard hold it for the ring, and says so.
    Forbidden(String),
}

impl Refused {
    pub(super) fn new(check: Check) -> Self {
        check.pass();
        Self { check: Some(check), last_tried: Mutex::default() }
    }

    /// This one was refused.
    pub(super) fn add(&self, name: &LockName, why: Why) {
        let mut last_tried = self.last_tried.lock();
        let is_news = last_tried.get(name).is_none_or(|before| before.why != why);
        if is_news {
            tracing::warn!(lock = %name, namespace = name.namespace, ?why, "the controller does not lead by this lock");
        }
        last_tried.insert(name.clone(), Tried { at: Instant::now(), why });
        if is_news {
            self.tell(&last_tried);
        }
    }

    /// There is room for this one, and others may have been given up.
    pub(super) fn review(&self, kept: Option<&LockName>) {
        self.retain(|name, tried| Some(name) != kept || tried.why != Why::NoRoom);
    }

    /// The ring holds this one.
    pub(super) fn remove(&self, name: &LockName) {
        self.retain(|other, _| other != name);
    }

    fn retain(&self, is_refused: impl Fn(&LockName, &Tried) -> bool) {
        let mut last_tried = self.last_tried.lock();
        let before = last_tried.len();
        last_tried.retain(|name, tried| is_refused(name, tried) && tried.at.elapsed() < GIVEN_UP_AFTER);
        if last_tried.len() < before {
            self.tell(&last_tried);
        }
    }

    fn tell(&self, last_tried: &HashMap<LockName, Tried>) {
        let Some(check) = &self.check else { return };
        let Some((first, Tried { why, .. })) = last_tried.iter().min_by_key(|(name, _)| &name.name) else {
            return check.pass();
        };
        check.fail(match why {
            Why::NoRoom => format!(
                "{} locks of the controller's elections found no room, so that it does not lead by them, {first} among \
                 them: let it elect by fewer, or name them by --election-lock",
                last_tried.len()
            ),
            Why::Forbidden(said) => format!(
                "the controller does not lead by {first} in namespace {}, which the shard may not hold for the ring: let its \
                 account get, create and update it ({said})",
                first.namespace
            ),
        });
    }
}
