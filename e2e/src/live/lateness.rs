//! Measures how late this process' timers fire, and what they are for is done: what a busy machine does to each deadline.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// How long the sensor sleeps between two readings.
const INTERVAL: Duration = Duration::from_millis(96);

/// What a timer is for takes so much of a processor: one that only fires is served at once on a machine that is full.
const WORK: Duration = Duration::from_millis(4);

/// Readings of one slice of time are kept as their mean.
const SLICE: Duration = Duration::from_secs(1);

/// A machine on which work ends this late or later, at the mean of a [`SLICE`], is late: it takes four times as long as it needs.
pub(super) const LATE: Duration = Duration::from_millis(12);

/// What the sensor has read since it began.
#[derive(Debug)]
struct Readings {
    begin: Instant,
    slices: Mutex<Vec<Slice>>,
}

/// The lateness of all readings of one slice.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    sum: Duration,
    readings: u32,
}

/// Measures on a thread of its own until it is dropped.
#[derive(Debug)]
pub(super) struct Sensor {
    readings: Arc<Readings>,
    ended: Arc<AtomicBool>,
}

impl Sensor {
    /// Begins to measure.
    pub(super) fn start() -> Self {
        let readings = Arc::new(Readings { begin: Instant::now(), slices: Mutex::default() });
        let ended = Arc::new(AtomicBool::new(false));
        let (kept, end) = (Arc::clone(&readings), Arc::clone(&ended));
        thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let due = Instant::now() + INTERVAL + WORK;
                thread::sleep(INTERVAL);
                work();
                kept.note(due, Instant::now());
            }
        });
        Self { readings, ended }
    }

    /// The lateness of the worst slice from `begin` on.
    pub(super) fn worst_since(&self, begin: Instant) -> Duration {
        self.readings.worst_since(begin)
    }

    /// The lateness that all but `above` of all slices kept below, of 100.
    pub(super) fn percentile(&self, above: usize) -> Duration {
        self.readings.percentile(above)
    }
}

#[cfg(test)]
impl Sensor {
    /// One by which timers are as late all the time.
    pub(super) fn of(lateness: Duration) -> Self {
        let slices = Mutex::new(vec![Slice { sum: lateness, readings: 1 }; 1_000]);
        let readings = Arc::new(Readings { begin: Instant::now(), slices });
        Self { readings, ended: Arc::default() }
    }
}

impl Drop for Sensor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Keeps a processor busy for [`WORK`], however long it takes to get that much.
fn work() {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let begin = used();
    while used().saturating_sub(begin) < WORK {
        std::hint::spin_loop();
    }
}

impl Slice {
    fn mean(self) -> Duration {
        self.sum.checked_div(self.readings).unwrap_or_default()
    }
}

impl Readings {
    /// Notes work that was `due` and was done `at`, in each slice in which it was late.
    fn note(&self, due: Instant, at: Instant) {
        let late = at.saturating_duration_since(due);
        let (first, last) = (self.slice(due.min(at)), self.slice(at));
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        if slices.len() <= last {
            slices.resize(last + 1, Slice::default());
        }
        for slice in &mut slices[first..=last] {
            slice.sum += late;
            slice.readings += 1;
        }
    }

    fn slice(&self, at: Instant) -> usize {
        let slice = at.saturating_duration_since(self.begin).as_millis() / SLICE.as_millis();
        usize::try_from(slice).unwrap_or(usize::MAX)
    }

    fn means(&self, from: usize) -> Vec<Duration> {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        slices.iter().skip(from).map(|slice| slice.mean()).collect()
    }

    fn worst_since(&self, begin: Instant) -> Duration {
        self.means(self.slice(begin)).into_iter().max().unwrap_or_default()
    }

    fn percentile(&self, above: usize) -> Duration {
        let mut means = self.means(0);
        means.sort_unstable();
        let index = means.len() * (100 - above.min(100)) / 100;
        means.get(index.min(means.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_counts_in_each_slice_that_it_missed() {
        let begin = Instant::now();
        let readings = Readings { begin, slices: Mutex::default() };
        let after = |slices: u32| begin + SLICE * slices;
        for slice in [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9] {
            readings.note(after(slice), after(slice));
        }
        assert_eq!(readings.worst_since(begin), Duration::ZERO);
        // Due in the second slice, and done in the fourth, which has two readings in time.
        readings.note(after(2), after(4));
        assert_eq!(readings.worst_since(after(3)), SLICE);
        assert_eq!(readings.worst_since(after(4)), SLICE * 2 / 3);
        assert_eq!(readings.worst_since(after(5)), Duration::ZERO);
        assert_eq!((readings.percentile(50), readings.percentile(0)), (Duration::ZERO, SLICE));
    }
}
