//! What is to be decided again, by key: each key once, and never twice at the same time.
//!
//! Many sources name keys, and each as often as it likes. What a key stands for is read when its turn comes, so nothing that
//! was queued can be outdated. A key that is named while it is worked on comes again after that.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{backoff::Backoff, limiter::Priority};
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

/// The classes by their order.
const PRIORITIES: [Priority; 4] = [Priority::Between, Priority::Takeover, Priority::Rebalance, Priority::Repair];

/// Who goes first in each of eight picks. Each lower class has one of them, so that none starves.
const FIRST: [Priority; 8] = [
    Priority::Between,
    Priority::Takeover,
    Priority::Between,
    Priority::Rebalance,
    Priority::Between,
    Priority::Repair,
    Priority::Between,
    Priority::Between,
];

/// A moment, in steps since the queue was made: half the size of an [`Instant`]. Enough of them for two years.
type Tick = u32;
const STEP: Duration = Duration::from_millis(20);

/// The keys that wait for their turn or are worked on; clones share them.
#[derive(Clone)]
pub(crate) struct Queue {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

struct State {
    start: Instant,
    keys: HashMap<Slot, Entry>,
    /// The keys that are ready, by class. Some may be ready in another class by now, or not at all: those are passed over.
    classes: [VecDeque<Slot>; PRIORITIES.len()],
    /// What waits, the earliest first. Those that a key's entry does not name any more are passed over.
    timers: BinaryHeap<Reverse<(Tick, Slot)>>,
    /// How many keys wait.
    waiting: usize,
    backoff: Backoff<Slot>,
    picks: usize,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// It waits for its turn.
    Ready(Priority),
    /// It waits for a moment.
    Waiting(Wait),
    /// It is worked on, and comes again after that if it was named meanwhile.
    Running(Option<Wish>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    until: Tick,
    priority: Priority,
    /// Whether it failed: it waits to the end, whoever names it.
    failed: bool,
    /// Until when it waits if its object is another version.
    soon: Tick,
}

/// That a key comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    priority: Priority,
    /// Not before this moment; none: at once.
    after: Option<Tick>,
}

impl Wish {
    /// Both in one: the more urgent, and the earlier.
    fn and(self, other: Self) -> Self {
        let after = self.after.zip(other.after).map(|(one, other)| one.min(other));
        Self { priority: self.priority.min(other.priority), after }
    }
}

impl Default for Queue {
    fn default() -> Self {
        let state = State {
            start: Instant::now(),
            keys: HashMap::new(),
            classes: Default::default(),
            timers: BinaryHeap::new(),
            waiting: 0,
            backoff: Backoff::default(),
            picks: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }
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

impl State {
    fn name(&mut self, key: Slot, wish: Wish) {
        match self.keys.get(&key).copied() {
            None => self.queue(key, wish),
            Some(Entry::Ready(before)) => {
                if wish.after.is_none() && wish.priority < before {
                    self.make_ready(key, wish.priority);
                }
            }
            Some(Entry::Waiting(wait @ Wait { failed: true, .. })) => {
                let wait = Wait { priority: wait.priority.min(wish.priority), ..wait };
                self.keys.insert(key, Entry::Waiting(wait));
            }
            Some(Entry::Waiting(Wait { until, priority, .. })) => {
                self.waiting -= 1;
                self.queue(key, wish.and(Wish { priority, after: Some(until) }));
            }
            Some(Entry::Running(again)) => {
                let again = Some(again.map_or(wish, |again| again.and(wish)));
                self.keys.insert(key, Entry::Running(again));
            }
        }
    }

    fn queue(&mut self, key: Slot, Wish { priority, after }: Wish) {
        match after {
            None => self.make_ready(key, priority),
            Some(until) => self.wait(key, Wait { until, priority, failed: false, soon: until }),
        }
    }

    fn make_ready(&mut self, key: Slot, priority: Priority) {
        self.keys.insert(key, Entry::Ready(priority));
        self.classes[priority as usize].push_back(key);
    }

    fn wait(&mut self, key: Slot, wait: Wait) {
        self.keys.insert(key, Entry::Waiting(wait));
        self.waiting += 1;
        self.timers.push(Reverse((wait.until, key)));
        // Timers that keys don't wait for any more must not be most of them.
        if self.timers.len() > 64 + 2 * self.waiting {
            let mut timers = std::mem::take(&mut self.timers).into_vec();
            timers.sort_unstable();
            timers.dedup();
            timers.retain(|Reverse((until, key))| is_waiting(&self.keys, *key, *until));
            self.timers = timers.into();
        }
    }

    fn forgive(&mut self, key: Slot) {
        self.backoff.forget(key);
        if let Some(Entry::Waiting(Wait { priority, failed: true, .. })) = self.keys.get(&key).copied() {
            self.waiting -= 1;
            self.make_ready(key, priority);
        }
    }

    fn changed(&mut self, key: Slot, version: u64) {
        if let Some(Entry::Waiting(wait @ Wait { failed: true, .. })) = self.keys.get(&key).copied()
            && wait.soon < wait.until
            && self.backoff.refused_another(key, version)
        {
            self.waiting -= 1;
            self.wait(key, Wait { until: wait.soon.max(self.now()), ..wait });
        }
    }

    fn done(&mut self, key: Slot, priority: Priority, outcome: Outcome) {
        let Some(Entry::Running(again)) = self.keys.remove(&key) else { return };
        let pause = match outcome {
            Outcome::Ok => {
                self.backoff.forget(key);
                if let Some(wish) = again {
                    self.queue(key, wish);
                }
                return;
            }
            Outcome::Again => [self.backoff.failed(key); 2],
            Outcome::Refused { version, rest } => self.backoff.refused(key, (version, rest)),
        };
        let priority = if matches!(outcome, Outcome::Refused { .. }) { Priority::Repair } else { priority };
        let priority = again.map_or(priority, |wish| wish.priority.min(priority));
        let [until, soon] = pause.map(|pause| self.tick_after(pause));
        self.wait(key, Wait { until, priority, failed: true, soon });
    }

    /// Takes the next key that is ready.
    fn pick(&mut self) -> Option<(Slot, Priority)> {
        self.end_waits();
        let first = FIRST[self.picks % FIRST.len()];
        let mut order = [first].into_iter().chain(PRIORITIES);
        let (key, priority) = order.find_map(|priority| {
            let is_ready = |key: &Slot| self.keys.get(key) == Some(&Entry::Ready(priority));
            let class = &mut self.classes[priority as usize];
            Some((std::iter::from_fn(|| class.pop_front()).find(is_ready)?, priority))
        })?;
        self.picks = self.picks.wrapping_add(1);
        self.keys.insert(key, Entry::Running(None));
        Some((key, priority))
    }

    /// What has waited long enough is ready.
    fn end_waits(&mut self) {
        let now = self.now();
        while let Some(Reverse((until, key))) = self.timers.peek().copied()
            && until <= now
        {
            self.timers.pop();
            if let Some(Entry::Waiting(wait)) = self.keys.get(&key).copied()
                && wait.until == until
            {
                self.waiting -= 1;
                self.make_ready(key, wait.priority);
            }
        }
    }

    /// When the first wait ends.
    fn next_due(&self) -> Option<Instant> {
        let Reverse((until, _)) = self.timers.peek()?;
        Some(self.start + STEP * *until)
    }

    fn now(&self) -> Tick {
        Tick::try_from(self.start.elapsed().as_millis() / STEP.as_millis()).unwrap_or(Tick::MAX)
    }

    /// The first moment that is so much later.
    fn tick_after(&self, delay: Duration) -> Tick {
        let later = (self.start.elapsed() + delay).as_micros().div_ceil(STEP.as_micros());
        Tick::try_from(later).unwrap_or(Tick::MAX)
    }
}

fn is_waiting(keys: &HashMap<Slot, Entry>, key: Slot, until: Tick) -> bool {
    matches!(keys.get(&key), Some(Entry::Waiting(wait)) if wait.until == until)
}

#[cfg(test)]
mod tests;
