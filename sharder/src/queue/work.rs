//! What is to be decided again, by key: each key once, and never twice at the same time.
//!
//! Many sources name keys, and each as often as it likes. What a key stands for is read when its turn comes, so nothing that
//! was queued can be outdated. A key that is named while it is worked on comes again after that.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::lock::Mutex;
use tokio::{sync::Notify, time::sleep_until};

mod state;

use self::state::{Entry, State, Wait, Wish};
use super::{
    backoff::Backoff,
    limiter::{PRIORITIES, Priority},
};
use crate::index::Slot;

/// What came of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is nothing left to do.
    Ok,
    /// Something failed that may pass: the key comes again after a pause that grows.
    Again,
    /// The API server refused a write to this version of the object: the same after all others, and much later when it refuses
    /// that once more.
    Refused {
        /// The version, or a hash of it.
        version: u64,
        /// How long it waits after that.
        rest: Duration,
    },
}

/// The keys that wait for their turn or are worked on; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Queue {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Queue {
    /// The key is to be decided, as soon as its turn comes. One that failed ends its pause first.
    pub(crate) fn add(&self, key: Slot, priority: Priority) {
        self.state.lock().name(key, Wish { priority, after: None });
        self.changed.notify_one();
    }

    /// The key is to be decided after a while, unless that is sooner anyway.
    pub(crate) fn add_after(&self, key: Slot, priority: Priority, delay: Duration) {
        let mut state = self.state.lock();
        let after = Some(state.tick_after(delay));
        state.name(key, Wish { priority, after });
        drop(state);
        self.changed.notify_one();
    }

    /// What the key stands for is another one than what failed: if it pauses, its turn comes at once.
    pub(crate) fn forgive(&self, key: Slot) {
        self.state.lock().forgive(key);
        self.changed.notify_one();
    }

    /// The key does not wait for a moment any more, unless it has failed.
    pub(crate) fn forget(&self, key: Slot) {
        let state = &mut *self.state.lock();
        if let Some(Entry::Waiting(Wait { failed: false, .. })) = state.keys.get(&key) {
            state.keys.remove(&key);
            state.waiting -= 1;
        }
    }

    /// The object of a key is of this version by now. If another one was refused, it is tried again after a usual pause.
    pub(crate) fn changed(&self, key: Slot, version: u64) {
        self.state.lock().changed(key, version);
        self.changed.notify_one();
    }

    /// The keys of this class that wait for their turn, and all that are worked on: not those that wait for a moment.
    pub(crate) fn under_way(&self, of: Priority) -> HashSet<Slot> {
        let state = self.state.lock();
        let is_under_way = |entry: &Entry| match entry {
            Entry::Ready(priority) => *priority == of,
            Entry::Running(_) => true,
            Entry::Waiting(_) => false,
        };
        state.keys.iter().filter(|(_, entry)| is_under_way(entry)).map(|(key, _)| *key).collect()
    }

    /// How many keys wait or are worked on.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.state.lock().keys.len()
    }

    /// Waits for the next key. No other caller gets it before the work is done, or dropped.
    pub(crate) async fn next(&self) -> Work {
        loop {
            // Many keys that take no time must not keep the task from others.
            tokio::task::consume_budget().await;
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state.lock();
                if let Some((key, priority)) = state.pick() {
                    drop(state);
                    // One call may stand for several keys, and the timers need a caller that waits for them.
                    self.changed.notify_one();
                    return Work { queue: self.clone(), key, priority, outcome: Outcome::Again };
                }
                state.next_due()
            };
            match due {
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
                None => changed.await,
            }
        }
    }
}

/// A key that is worked on. One that is dropped comes again like one that failed.
pub(crate) struct Work {
    queue: Queue,
    key: Slot,
    priority: Priority,
    outcome: Outcome,
}

impl Work {
    pub(crate) const fn key(&self) -> Slot {
        self.key
    }

    pub(crate) const fn priority(&self) -> Priority {
        self.priority
    }

    /// This came of it.
    pub(crate) fn done(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.queue.state.lock().done(self.key, self.priority, self.outcome);
        self.queue.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
