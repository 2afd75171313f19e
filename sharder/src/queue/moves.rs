//! How many objects of a ring are on the move at once, and how fast others follow.
//!
//! An object holds a place from its release to its next owner ([`Drains`] counts those). While it waits for a grace it costs the API
//! server nothing, so what waits is bounded by how fast it comes, and to a part of the ring's objects.
//!
//! One number says both. It grows after each round, which is as many drains as the number is, and with a grace as long as their releases
//! take to be felt. It is halved when three quarters of the writes of drains wait. These come after all others, so they wait first, and
//! there is one of each size for each move.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::lock::{Mutex, rank};
use ringside_ring::cluster_ring::GroupResource;
use tokio::time::{Instant, timeout};

use crate::drains::Drains;

/// The bound at first, at least and at most.
const FIRST: usize = 16;
const LEAST: usize = 2;
const MOST: usize = 512;
/// Of a resource's objects one in so many may be hidden at once, and always this many.
const HIDDEN_PART: usize = 10;
const HIDDEN: usize = 64;
/// So many places are one hand that always writes, in how fast drains follow each other for a grace.
const PLACES_A_HAND: u32 = 10;
/// The writes of a move beside those of its children: the drain, the release, the next owner.
const WRITES: usize = 3;
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

/// An object that is to be drained.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) resource: GroupResource,
    /// What its shard promised to wait for.
    pub(crate) grace: Duration,
    /// The children that follow it.
    pub(crate) children: usize,
    /// The objects of its resource.
    pub(crate) objects: usize,
}

struct State {
    bound: usize,
    /// The longest that a shard of a drained object promised.
    grace: Duration,
    /// The shortest write of a drain, by resource.
    shortest: HashMap<GroupResource, Duration>,
    /// Writes of the block, and those of them that waited.
    block: (usize, usize),
    /// Drains until the round ends, and when it ends at the earliest.
    left: usize,
    until: Option<Instant>,
    /// After a halving the next round is not judged: what was drained before is still to come.
    settling: bool,
    has_waited: bool,
    next: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        let (shortest, block) = (HashMap::new(), (0, 0));
        let (grace, until, settling, has_waited, next) = (Duration::ZERO, None, false, false, None);
        // The first of them are drained before any of them has ended.
        Self { bound: FIRST, grace, shortest, block, left: 2 * FIRST, until, settling, has_waited, next }
    }
}

impl Moves {
    /// A pass begins. Where nothing moves, what was learned before is forgotten.
    pub(crate) fn begin(&self, drains: &Drains) {
        let mut state = self.0.lock();
        if drains.in_progress(KEPT).hidden == 0 {
            *state = State::default();
        }
    }

    /// How many moves may be between two shards.
    pub(crate) fn bound(&self) -> usize {
        self.0.lock().bound
    }

    /// Waits for a place for an object, while so many drains are written.
    pub(crate) async fn place(&self, drains: &Drains, wanted: &Wanted, written: usize) {
        loop {
            let mut ended = drains.ended();
            let wait = self.0.lock().wait(drains, wanted, written);
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
    fn wait(&mut self, drains: &Drains, wanted: &Wanted, written: usize) -> Duration {
        if wanted.grace > self.grace {
            self.grace = wanted.grace;
            self.begin_round();
        }
        let (in_progress, may_hide) = (drains.in_progress(KEPT), (wanted.objects / HIDDEN_PART).max(HIDDEN));
        let is_full = in_progress.between >= self.bound || in_progress.hidden >= may_hide;
        if is_full || written > self.bound / PLACES_A_WRITE {
            return KEPT / 4;
        }
        // Evenly over the grace: what is drained together ends together.
        let (now, apart) = (Instant::now(), self.apart(wanted));
        let next = self.next.map_or(now, |next| next.max(now - apart));
        if next <= now {
            self.next = Some(next + apart);
        }
        next - now
    }

    /// The time from one drain to the next. Without a grace a place is free once the move before has ended, and that is enough.
    fn apart(&self, wanted: &Wanted) -> Duration {
        let Some(write) = self.shortest.get(&wanted.resource).filter(|_| !wanted.grace.is_zero()) else {
            return Duration::ZERO;
        };
        let writes = u32::try_from(WRITES + wanted.children).unwrap_or(u32::MAX);
        let whole = write.saturating_mul(writes);
        let hands = whole.saturating_mul(PLACES_A_HAND) / u32::try_from(self.bound).unwrap_or(u32::MAX);
        hands.min(whole.max(APART))
    }

    fn begin_round(&mut self) {
        self.left = self.bound.max(BLOCK);
        self.until = Some(Instant::now() + self.grace + self.grace / 4).filter(|_| !self.grace.is_zero());
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
            self.bound = (self.bound / 2).max(LEAST);
        } else if self.left > 0 || self.until.is_some_and(|until| until > Instant::now()) {
            return;
        } else if !std::mem::take(&mut self.settling) {
            // What is too much is felt a grace later, and until then as much more is on its way.
            let part = if self.has_waited {
                8
            } else if self.grace.is_zero() {
                2
            } else {
                4
            };
            self.bound = (self.bound + (self.bound / part).max(1)).min(MOST);
        }
        self.begin_round();
    }
}

#[cfg(test)]
mod tests;
