//! Where each key is: it waits for its turn or for a moment, or is worked on.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{Backoff, Outcome, PRIORITIES, Priority, Slot};

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

pub(super) struct State {
    start: Instant,
    pub(super) keys: HashMap<Slot, Entry>,
    /// The keys that are ready, by class. Some may be ready in another class by now, or not at all: those are passed over.
    classes: [VecDeque<Slot>; PRIORITIES.len()],
    /// What waits, the earliest first. Those that a key's entry does not name any more are passed over.
    pub(super) timers: BinaryHeap<Reverse<(Tick, Slot)>>,
    /// How many keys wait.
    pub(super) waiting: usize,
    backoff: Backoff,
    picks: usize,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It waits for its turn.
    Ready(Priority),
    /// It waits for a moment.
    Waiting(Wait),
    /// It is worked on, and comes again after that if it was named meanwhile.
    Running(Option<Wish>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    until: Tick,
    priority: Priority,
    /// Whether it failed: naming the key again does not shorten its wait.
    pub(super) failed: bool,
    /// Until when it waits if its object is another version.
    soon: Tick,
}

/// That a key comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) priority: Priority,
    /// Not before this moment; none: at once.
    pub(super) after: Option<Tick>,
}

impl Wish {
    /// Both in one: the more urgent, and the earlier.
    fn and(self, other: Self) -> Self {
        let after = self.after.zip(other.after).map(|(one, other)| one.min(other));
        Self { priority: self.priority.min(other.priority), after }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            keys: HashMap::new(),
            classes: Default::default(),
            timers: BinaryHeap::new(),
            waiting: 0,
            backoff: Backoff::default(),
            picks: 0,
        }
    }
}

impl State {
    pub(super) fn name(&mut self, key: Slot, wish: Wish) {
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

    pub(super) fn forgive(&mut self, key: Slot) {
        self.backoff.forget(key);
        if let Some(Entry::Waiting(Wait { priority, failed: true, .. })) = self.keys.get(&key).copied() {
            self.waiting -= 1;
            self.make_ready(key, priority);
        }
    }

    pub(super) fn changed(&mut self, key: Slot, version: u64) {
        if let Some(Entry::Waiting(wait @ Wait { failed: true, .. })) = self.keys.get(&key).copied()
            && wait.soon < wait.until
            && self.backoff.refused_another(key, version)
        {
            self.waiting -= 1;
            self.wait(key, Wait { until: wait.soon.max(self.now()), ..wait });
        }
    }

    pub(super) fn done(&mut self, key: Slot, priority: Priority, outcome: Outcome) {
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
    pub(super) fn pick(&mut self) -> Option<(Slot, Priority)> {
        self.end_waits();
        let first = FIRST[self.picks % FIRST.len()];
        let mut order = [first].into_iter().chain(PRIORITIES);
        let (key, priority) = order.find_map(|priority| {
            let is_ready = |key: &Slot| self.keys.get(key) == Some(&Entry::Ready(priority));
            let class = &mut self.classes[priority as usize];
            Some((std::iter::from_fn(|| take(class, priority)).find(is_ready)?, priority))
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
    pub(super) fn next_due(&self) -> Option<Instant> {
        let Reverse((until, _)) = self.timers.peek()?;
        Some(self.start + STEP * *until)
    }

    fn now(&self) -> Tick {
        Tick::try_from(self.start.elapsed().as_millis() / STEP.as_millis()).unwrap_or(Tick::MAX)
    }

    /// The first moment that is so much later.
    pub(super) fn tick_after(&self, delay: Duration) -> Tick {
        let later = (self.start.elapsed() + delay).as_micros().div_ceil(STEP.as_micros());
        Tick::try_from(later).unwrap_or(Tick::MAX)
    }
}

/// Takes the one that has waited for the longest. Of moves any: two shards may be asked for all that they have, and none of them is to
/// wait for the other.
fn take(class: &mut VecDeque<Slot>, priority: Priority) -> Option<Slot> {
    match priority {
        Priority::Rebalance if !class.is_empty() => class.swap_remove_front(rand::random_range(0..class.len())),
        _ => class.pop_front(),
    }
}

fn is_waiting(keys: &HashMap<Slot, Entry>, key: Slot, until: Tick) -> bool {
    matches!(keys.get(&key), Some(Entry::Waiting(wait)) if wait.until == until)
}
