//! Decides how many cases run at once: as many as leave the machine in time.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{case::Weight, lateness::LATE};

/// How often the limit is looked at.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Below this the machine has room for more.
const EARLY: Duration = Duration::from_millis(6);

/// What may run at once: at first, at least and at most, for each core. A case that waits counts one.
const FIRST: usize = 4;
const LEAST: usize = 2;
const MOST: usize = 10;

/// What a case in which controllers work counts.
const WORKS: usize = 3;

/// What a case counts that runs alone: more than there ever is.
const ALL: usize = usize::MAX / 2;

/// Admits cases by their weight, within a limit that follows how late work ends.
#[derive(Debug)]
pub(super) struct Admission {
    cores: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    limit: usize,
    used: usize,
    /// Cases that wait to run alone. None begins beside them.
    alone: usize,
    /// Cases that were not admitted at once since the last look.
    refused: bool,
    /// The least and the most that ran at once.
    range: (usize, usize),
}

/// The share of a case that runs, until dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    admission: &'a Admission,
    tokens: usize,
}

impl Admission {
    /// For a machine with so many cores.
    pub(super) fn new(cores: usize) -> Self {
        let limit = FIRST * cores;
        let state = State { limit, used: 0, alone: 0, refused: false, range: (limit, limit) };
        Self { cores, state: Mutex::new(state), changed: Notify::new() }
    }

    /// How many cases may ask at once.
    pub(super) const fn most(cores: usize) -> usize {
        MOST * cores
    }

    /// Waits until the case may run.
    ///
    /// # Cancel safety
    /// One that is dropped holds nothing.
    pub(super) async fn admit(&self, weight: Weight) -> Permit<'_> {
        let _waits_alone = (weight == Weight::Alone).then(|| WaitsAlone::of(self));
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(tokens) = self.lock().take(weight) {
                return Permit { admission: self, tokens };
            }
            changed.await;
        }
    }

    /// Follows the lateness since the last look.
    pub(super) fn follow(&self, lateness: Duration) {
        let mut state = self.lock();
        let refused = std::mem::take(&mut state.refused);
        if lateness >= LATE {
            state.limit = (state.limit * 3 / 4).max(LEAST * self.cores);
        } else if lateness < EARLY && refused {
            state.limit = (state.limit + 1).min(MOST * self.cores);
        }
        state.range = (state.range.0.min(state.limit), state.range.1.max(state.limit));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The lowest and the highest limit so far.
    pub(super) fn range(&self) -> (usize, usize) {
        self.lock().range
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, weight: Weight) -> Option<usize> {
        let (tokens, fits) = match weight {
            Weight::Alone => (ALL, self.used == 0),
            // Where nothing runs, even the heaviest may.
            Weight::Waits | Weight::Works => {
                let tokens = if weight == Weight::Waits { 1 } else { WORKS };
                (tokens, self.alone == 0 && (self.used == 0 || self.used + tokens <= self.limit))
            }
        };
        if !fits {
            self.refused = true;
            return None;
        }
        self.used += tokens;
        Some(tokens)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.lock().used -= self.tokens;
        self.admission.changed.notify_waiters();
    }
}

/// Counts a case that is to run alone, until it has run.
struct WaitsAlone<'a>(&'a Admission);

impl<'a> WaitsAlone<'a> {
    fn of(admission: &'a Admission) -> Self {
        admission.lock().alone += 1;
        Self(admission)
    }
}

impl Drop for WaitsAlone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn admit(admission: &Admission, weight: Weight) -> Option<Permit<'_>> {
        admission.admit(weight).now_or_never()
    }

    #[test]
    fn follows_the_lateness_of_the_machine() {
        let admission = Admission::new(2);
        let running: Vec<_> = std::iter::from_fn(|| admit(&admission, Weight::Waits)).collect();
        assert_eq!(running.len(), 8);
        // There was no room for a ninth, and the machine was in time.
        admission.follow(Duration::ZERO);
        assert!(admit(&admission, Weight::Waits).is_some());
        for _ in 0..9 {
            admission.follow(LATE);
        }
        assert!(admit(&admission, Weight::Waits).is_none());
        assert_eq!(admission.range(), (4, 9));
        drop(running);
        // All that works is heavier than what waits.
        assert!(admit(&admission, Weight::Works).is_some_and(|_one| admit(&admission, Weight::Works).is_none()));
    }

    #[test]
    fn what_runs_alone_waits_for_all_and_holds_up_all() {
        let admission = Admission::new(2);
        let running = admit(&admission, Weight::Works);
        let mut alone = Box::pin(admission.admit(Weight::Alone));
        assert!(alone.as_mut().now_or_never().is_none());
        assert!(admit(&admission, Weight::Waits).is_none());
        drop(running);
        let alone = alone.now_or_never();
        assert!(alone.is_some() && admit(&admission, Weight::Waits).is_none());
        drop(alone);
        assert!(admit(&admission, Weight::Waits).is_some());
    }
}
