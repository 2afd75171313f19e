//! How much memory the locks may take, and which found no room: a controller does not lead by these.

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
    last_tried: Mutex<HashMap<LockName, Instant>>,
}

impl Refused {
    pub(super) fn new(check: Check) -> Self {
        check.pass();
        Self { check: Some(check), last_tried: Mutex::default() }
    }

    /// There was no room for this one.
    pub(super) fn add(&self, name: &LockName) {
        let mut last_tried = self.last_tried.lock();
        if last_tried.insert(name.clone(), Instant::now()).is_none() {
            tracing::warn!(lock = %name, "no room for another lock of the controller's elections");
            self.tell(&last_tried);
        }
    }

    /// There is room for this one, and others may have been given up.
    pub(super) fn review(&self, kept: Option<&LockName>) {
        let mut last_tried = self.last_tried.lock();
        let before = last_tried.len();
        last_tried.retain(|name, last| Some(name) != kept && last.elapsed() < GIVEN_UP_AFTER);
        if last_tried.len() < before {
            self.tell(&last_tried);
        }
    }

    fn tell(&self, last_tried: &HashMap<LockName, Instant>) {
        let Some(check) = &self.check else { return };
        match last_tried.keys().min_by_key(|name| &name.name) {
            None => check.pass(),
            Some(first) => check.fail(format!(
                "{} locks of the controller's elections found no room, so that it does not lead by them, {first} among \
                 them: let it elect by fewer, or name them by --election-lock",
                last_tried.len()
            )),
        }
    }
}
