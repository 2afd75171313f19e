//! A mutex with a rank: a thread takes locks by rising rank only, so no two threads wait for each other.
//!
//! Debug builds check each lock, so a wrong order fails in the first test that comes by, and needs no second thread. `clippy.toml`
//! forbids other mutexes in this crate. What is asked under a lock has a higher rank; all else is copied, and asked without it.

#![allow(clippy::disallowed_types, reason = "the one place where the order is checked")]

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The ranks of the locks under which others are taken, in their order.
pub(crate) mod rank {
    /// The API server of tests, which asks them.
    #[cfg(test)]
    pub(crate) const FAKE_API: u8 = 0;
    /// The feeds of a ring, which read the index.
    pub(crate) const SOURCES: u8 = 10;
    /// The index of a ring, which tells its observer.
    pub(crate) const INDEX: u8 = 20;
    /// The bound on moves, which asks how many drains there are.
    pub(crate) const MOVES: u8 = 30;
    /// The Leases, which ask their holds.
    pub(crate) const LEASES: u8 = 50;
    /// All others: nothing is locked under them.
    pub(crate) const LEAF: u8 = u8::MAX;
}

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of the locks that this thread has.
    static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A mutex of this rank.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T, const RANK: u8 = { rank::LEAF }>(parking_lot::Mutex<T>);

impl<T, const RANK: u8> Mutex<T, RANK> {
    /// Unlocked.
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In a debug build, where the thread has a lock of this rank or a higher one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T, RANK> {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            let highest = held.iter().max();
            assert!(highest.is_none_or(|held| *held < RANK), "a lock of rank {RANK} is taken under {held:?}");
            held.push(RANK);
        });
        MutexGuard(self.0.lock())
    }
}

/// A held lock.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T, const RANK: u8>(parking_lot::MutexGuard<'a, T>);

impl<T, const RANK: u8> Deref for MutexGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T, const RANK: u8> DerefMut for MutexGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(debug_assertions)]
impl<T, const RANK: u8> Drop for MutexGuard<'_, T, RANK> {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            if let Some(at) = held.iter().rposition(|rank| *rank == RANK) {
                held.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_under_a_higher_one_panics_at_once() {
        let (index, leaf) = (Mutex::<_, { rank::INDEX }>::new(1), Mutex::<_>::new(2));
        {
            let (first, second) = (index.lock(), leaf.lock());
            drop(first);
            assert_eq!(*second, 2);
        }
        let wrong = || {
            let _leaf = leaf.lock();
            *index.lock()
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wrong));
        assert!(outcome.is_err());
        assert_eq!(*index.lock() + *leaf.lock(), 3, "what was unwound has no lock any more");
    }
}
