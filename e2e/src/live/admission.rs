//! Decides how many cases run at once: as many as leave the machine in time.

use std::{
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::case::Weight;

/// How often the limit is looked at.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Below this the machine has room for more; above the other it has too much.
const EARLY: Duration = Duration::from_millis(10);
const OVERRUN: Duration = Duration::from_millis(20);

/// What may run at once: at first, at least and at most, for each core. A case that waits counts one.
const FIRST: usize = 5;
const LEAST: usize = 2;
const MOST: usize = 10;

/// What a case in which controllers work counts.
const WORKS: usize = 3;

/// Admits cases by their weight, within a limit that follows how late work ends.
#[derive(Debug)]
pub(super) struct Admission {
    cores: usize,
    state: Mutex<State>,
    changed: Notify,
    /// Held for writing by a case that runs alone: those that are admitted later wait for it, and it for those before.
    turns: RwLock<()>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    used: usize,
    /// Whether a case was not admitted at once since the last look.
    refused: bool,
    /// The least and the most that could run at once.
    range: (usize, usize),
}

/// The share of a case that runs, until dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    admission: &'a Admission,
    tokens: usize,
    _turn: Option<Turn<'a>>,
}

#[derive(Debug)]
enum Turn<'a> {
    Alone { _held: RwLockWriteGuard<'a, ()> },
    Beside { _held: RwLockReadGuard<'a, ()> },
}

impl Admission {
    /// For a machine with so many cores.
    pub(super) fn new(cores: usize) -> Self {
        let limit = FIRST * cores;
        let state = State { limit, used: 0, refused: false, range: (limit, limit) };
        Self { cores, state: Mutex::new(state), changed: Notify::new(), turns: RwLock::new(()) }
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
        let tokens = match weight {
            Weight::Waits => 1,
            Weight::Works => WORKS,
            Weight::Alone => 0,
        };
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.lock().take(tokens) {
                break;
            }
            changed.await;
        }
        let mut permit = Permit { admission: self, tokens, _turn: None };
        permit._turn = Some(match weight {
            Weight::Alone => Turn::Alone { _held: self.turns.write().await },
            Weight::Waits | Weight::Works => Turn::Beside { _held: self.turns.read().await },
        });
        permit
    }

    /// Follows the lateness since the last look.
    pub(super) fn follow(&self, lateness: Duration) {
        let mut state = self.lock();
        let refused = std::mem::take(&mut state.refused);
        if lateness >= OVERRUN {
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
    /// Takes these, if there is room. Where nothing runs, even the heaviest may.
    fn take(&mut self, tokens: usize) -> bool {
        let fits = tokens == 0 || self.used == 0 || self.used + tokens <= self.limit;
        self.refused |= !fits;
        self.used += if fits { tokens } else { 0 };
        fits
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.lock().used -= self.tokens;
        self.admission.changed.notify_waiters();
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
        assert_eq!(running.len(), 10);
        // There was no room for another, and the machine was in time.
        admission.follow(Duration::ZERO);
        assert!(admit(&admission, Weight::Waits).is_some());
        for _ in 0..9 {
            admission.follow(OVERRUN);
        }
        assert!(admit(&admission, Weight::Waits).is_none());
        assert_eq!(admission.range(), (4, 11));
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
