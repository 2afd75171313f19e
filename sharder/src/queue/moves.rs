//! How many objects of a ring are on the move at once.
//!
//! A move is in progress from the write of its drain until the object has an owner again ([`Drains`] counts those). The bound
//! grows after each round, which is as many drains as the bound is, so with a grace about one each grace. It is halved when three
//! quarters of the writes of drains wait. These come after all others, so they wait first, and there is one of each size for each move.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::lock::{Mutex, rank};
use ringside_ring::cluster_ring::GroupResource;
use tokio::time::{Instant, timeout};

use crate::drains::Drains;

/// The bound at first, at least and at most.
const FIRST: usize = 16;
const LEAST: usize = 2;
const MOST: usize = 512;
/// With a grace one drain in this time at least: nearly all of them only wait, and other work makes writes wait too.
const APART: Duration = Duration::from_millis(40);
/// A place is kept for so long beyond the grace: a shard that keeps its objects, or an object that is deleted, holds none.
pub(crate) const KEPT: Duration = Duration::from_secs(2);
/// Drains that are judged together, and how many of them have to wait. Times of writes differ much where nothing waits. Behind a queue
/// nearly all of them are long.
const BLOCK: usize = 8;
const WAITING: usize = 6;
/// A write waits if it takes longer than the shortest by so many times what that took, within these.
const SLACK_TIMES: u32 = 2;
const SLACK_RANGE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(20)];
/// For each of so many places one drain is written at a time: drains that are written together end together.
const PLACES_A_WRITE: usize = 8;

/// The places of one ring; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Moves(Arc<Mutex<State, { rank::MOVES }>>);

struct State {
    bound: usize,
    /// The longest that a shard of a drained object promised.
    grace: Duration,
    /// The shortest write of a drain, by resource.
    shortest: HashMap<GroupResource, Duration>,
    /// Writes of the block, and those of them that waited.
    block: (usize, usize),
    /// Drains until the round ends.
    left: usize,
    /// After a halving the next round is not judged: what was drained before is still to come.
    settling: bool,
    has_waited: bool,
    next: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        let (shortest, block) = (HashMap::new(), (0, 0));
        let (grace, settling, has_waited, next) = (Duration::ZERO, false, false, None);
        // The first of them are drained before any of them has ended.
        Self { bound: FIRST, grace, shortest, block, left: 2 * FIRST, settling, has_waited, next }
    }
}

impl Moves {
    /// A pass begins. Where nothing moves, what was learned before is forgotten.
    pub(crate) fn begin(&self, drains: &Drains) {
        let mut state = self.0.lock();
        if drains.in_progress(state.grace + KEPT) == 0 {
            *state = State::default();
        }
    }

    /// How many moves may be in progress.
    pub(crate) fn bound(&self) -> usize {
        self.0.lock().bound
    }

    /// Waits for a place for an object whose shard promised this grace, while so many drains are written.
    pub(crate) async fn place(&self, drains: &Drains, grace: Duration, written: usize) {
        loop {
            let mut ended = drains.ended();
            let wait = self.0.lock().wait(drains, grace, written);
            if wait.is_zero() {
                return;
            }
            // Whichever comes first, it is looked at again. The sender is in `drains`.
            let _ = timeout(wait, ended.changed()).await;
        }
    }

    /// The write of a drain took so long.
    pub(crate) fn written(&self, resource: &GroupResource, took: Duration) {
        let mut state = self.0.lock();
        let shortest = state.shortest.entry(resource.clone()).or_insert(took);
        *shortest = took.min(*shortest);
        let waited = took > *shortest + (*shortest * SLACK_TIMES).clamp(SLACK_RANGE[0], SLACK_RANGE[1]);
        state.judge(waited);
    }
}

impl State {
    /// None, and the place is taken; or how long to wait at most before this is asked again.
    fn wait(&mut self, drains: &Drains, grace: Duration, written: usize) -> Duration {
        if grace > self.grace {
            (self.grace, self.bound) = (grace, self.bound.max(least(grace)));
            self.left = self.bound;
        }
        if drains.in_progress(self.grace + KEPT) >= self.bound || written > self.bound / PLACES_A_WRITE {
            return KEPT / 4;
        }
        // Evenly over the grace: what is drained together ends together.
        let (now, apart) = (Instant::now(), self.grace / u32::try_from(self.bound).unwrap_or(u32::MAX));
        let next = self.next.map_or(now, |next| next.max(now - apart));
        if next <= now {
            self.next = Some(next + apart);
        }
        next - now
    }

    fn judge(&mut self, waited: bool) {
        self.block = (self.block.0 + 1, self.block.1 + usize::from(waited));
        self.left = self.left.saturating_sub(1);
        let too_much = self.block.0 == BLOCK && self.block.1 >= WAITING;
        if self.block.0 == BLOCK {
            self.block = (0, 0);
        }
        if too_much && !self.settling {
            (self.settling, self.has_waited) = (true, true);
            self.bound = (self.bound / 2).max(least(self.grace));
        } else if self.left > 0 {
            return;
        } else if !std::mem::take(&mut self.settling) {
            self.bound = (self.bound + (self.bound / if self.has_waited { 8 } else { 2 }).max(1)).min(MOST);
        }
        self.left = self.bound.max(BLOCK);
    }
}

fn least(grace: Duration) -> usize {
    usize::try_from(grace.as_millis() / APART.as_millis()).unwrap_or(MOST).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests;
