//! How many objects of a ring are on the move at once, and how fast others follow.
//!
//! An object holds a place from its release to its next owner ([`Drains`] counts those). The bound on places grows after each round,
//! which is as many drains as the bound is. It is halved when three quarters of the writes of drains wait. These come after all
//! others, so they wait first, and there is one of each size for each move.
//!
//! While an object waits for a grace it costs the API server nothing, and what is too much is felt when the grace is over. So what waits
//! is bounded by how fast it comes, and to a part of the ring's objects. It comes half as fast again after each grace in which
//! places were left, a third slower after one in which none was, and from then on an eighth faster.
//!
//! A shard that has shown no release yet may be unable to release anything. It is asked for a few objects first, and the next ones
//! wait for the first release, or until it is late.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::lock::{Mutex, rank};
use ringside_ring::cluster_ring::GroupResource;
use tokio::time::{Instant, timeout};

use crate::{drains::Drains, failed_moves::MANY};

/// The bound at first, at least and at most. So many are asked of a shard before it has released one.
const FIRST_BOUND: usize = 16;
const MIN_BOUND: usize = 2;
const MAX_BOUND: usize = 512;
/// With a grace so many places are always there.
const FEW: usize = 8;
/// Of a resource's objects one in so many may be hidden at once, and always this many.
const HIDDEN_PART: usize = 10;
const HIDDEN: usize = 64;
/// Hands that write at first, for what waits for a grace.
const HANDS: u32 = 2;
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
    /// Its shard, if that works on it: where it can release nothing, the object is idle for nothing.
    pub(crate) worked_on_by: Option<String>,
}

impl Wanted {
    /// Whether the shard that works on the object has released none of many in time: a move would make it idle for nothing.
    pub(crate) fn is_held_back(&self, drains: &Drains) -> bool {
        self.worked_on_by.as_ref().is_some_and(|shard| drains.late(shard, self.grace + KEPT, MANY) == MANY)
    }

    /// Whether it is still to show that it can release those that it was asked for first.
    fn is_on_trial(&self, drains: &Drains) -> bool {
        let is_unproven = |shard: &String| drains.unproven(shard, FIRST_BOUND) == FIRST_BOUND;
        self.worked_on_by.as_ref().is_some_and(is_unproven) && !self.is_held_back(drains)
    }
}

struct State {
    bound: usize,
    /// The shortest write of a drain, by resource.
    shortest: HashMap<GroupResource, Duration>,
    /// Writes of the block, and those of them that waited.
    block: (usize, usize),
    /// Drains until the round ends.
    left: usize,
    /// After a halving the next round is not judged: what was drained before is still to come.
    settling: bool,
    has_waited: bool,
    pace: Option<Pace>,
}

/// How fast drains follow each other for a grace.
struct Pace {
    apart: Duration,
    next: Instant,
    /// When this was judged last, and whether a drain found no place since then.
    since: Instant,
    was_full: bool,
    /// What was drained before it was slowed down is still to come.
    settling: bool,
    /// Whether it ever was.
    has_slowed: bool,
}

impl Default for State {
    fn default() -> Self {
        let (shortest, block) = (HashMap::new(), (0, 0));
        // The first of them are drained before any of them has ended.
        Self {
            bound: FIRST_BOUND,
            shortest,
            block,
            left: 2 * FIRST_BOUND,
            settling: false,
            has_waited: false,
            pace: None,
        }
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
        let (in_progress, may_hide) = (drains.in_progress(KEPT), (wanted.objects / HIDDEN_PART).max(HIDDEN));
        // What is between two shards now was drained a grace ago: to drain less now makes it no shorter.
        let bound = if wanted.grace.is_zero() { self.bound } else { self.bound.max(FEW) };
        let is_full = in_progress.between >= bound;
        if let Some(pace) = &mut self.pace {
            pace.was_full |= is_full;
        }
        if is_full || wanted.is_on_trial(drains) || in_progress.hidden >= may_hide || written > bound / PLACES_A_WRITE {
            return KEPT / 4;
        }
        // Evenly over the grace: what is drained together ends together.
        let whole = self.shortest.get(&wanted.resource).filter(|_| !wanted.grace.is_zero());
        let Some(whole) = whole.map(|write| write.saturating_mul(times(WRITES + wanted.children))) else {
            return Duration::ZERO;
        };
        self.pace.get_or_insert_with(|| Pace::of(whole)).wait(wanted.grace, whole.max(APART))
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
            self.bound = (self.bound / 2).max(MIN_BOUND);
        } else if self.left > 0 {
            return;
        } else if !std::mem::take(&mut self.settling) {
            self.bound = (self.bound + (self.bound / if self.has_waited { 8 } else { 2 }).max(1)).min(MAX_BOUND);
        }
        self.left = self.bound.max(BLOCK);
    }
}

impl Pace {
    /// As fast as two hands write all of a move, which takes so long.
    fn of(whole: Duration) -> Self {
        let now = Instant::now();
        Self { apart: whole / HANDS, next: now, since: now, was_full: false, settling: false, has_slowed: false }
    }

    /// None, and it is the turn of this one; or how long that takes. None waits for longer than `longest`.
    fn wait(&mut self, grace: Duration, longest: Duration) -> Duration {
        let now = Instant::now();
        if now - self.since >= grace + grace / 4 {
            self.since = now;
            self.judge();
        }
        self.apart = self.apart.min(longest);
        let next = self.next.max(now - self.apart);
        if next <= now {
            self.next = next + self.apart;
        }
        next.saturating_duration_since(now)
    }

    fn judge(&mut self) {
        match (std::mem::take(&mut self.settling), std::mem::take(&mut self.was_full)) {
            (true, _) => {}
            (false, true) => {
                self.apart = self.apart * 3 / 2;
                (self.settling, self.has_slowed) = (true, true);
            }
            (false, false) if self.has_slowed => self.apart = self.apart * 8 / 9,
            (false, false) => self.apart = self.apart * 2 / 3,
        }
    }
}

fn times(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
