//! Measures how late this process' timers fire: what a busy machine does to each deadline.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long the sensor sleeps between two readings.
const INTERVAL: Duration = Duration::from_millis(20);

/// Readings of one slice of time are kept as their worst.
const SLICE: Duration = Duration::from_millis(200);

/// A machine whose timers fire this late, or later, is late: what a case waits for comes later by a multiple of it.
pub(super) const LATE: Duration = Duration::from_millis(100);

/// What the sensor has read: the worst lateness of each [`SLICE`] since it began.
#[derive(Debug)]
struct Readings {
    begin: Instant,
    slices: Mutex<Vec<Duration>>,
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
                let due = Instant::now() + INTERVAL;
                thread::sleep(INTERVAL);
                kept.note(due, Instant::now());
            }
        });
        Self { readings, ended }
    }

    /// The worst lateness from `begin` on.
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
        let slices = Mutex::new(vec![lateness; 10_000]);
        let readings = Arc::new(Readings { begin: Instant::now(), slices });
        Self { readings, ended: Arc::default() }
    }
}

impl Drop for Sensor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Readings {
    /// Notes a timer that was `due` and fired `at`, in each slice in which it was late.
    fn note(&self, due: Instant, at: Instant) {
        let late = at.saturating_duration_since(due);
        let (first, last) = (self.slice(due.min(at)), self.slice(at));
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        if slices.len() <= last {
            slices.resize(last + 1, Duration::ZERO);
        }
        slices[first..=last].iter_mut().for_each(|worst| *worst = late.max(*worst));
    }

    fn slice(&self, at: Instant) -> usize {
        let slice = at.saturating_duration_since(self.begin).as_millis() / SLICE.as_millis();
        usize::try_from(slice).unwrap_or(usize::MAX)
    }

    fn worst_since(&self, begin: Instant) -> Duration {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        slices.iter().skip(self.slice(begin)).max().copied().unwrap_or_default()
    }

    fn percentile(&self, above: usize) -> Duration {
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        slices.sort_unstable();
        let index = slices.len() * (100 - above.min(100)) / 100;
        slices.get(index.min(slices.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_timer_counts_in_each_slice_that_it_missed() {
        let begin = Instant::now();
        let readings = Readings { begin, slices: Mutex::default() };
        let after = |slices: u32| begin + SLICE * slices;
        for slice in 0..10 {
            readings.note(after(slice), after(slice));
        }
        assert_eq!(readings.worst_since(begin), Duration::ZERO);
        // Due in the second slice, and fired in the fourth.
        readings.note(after(2), after(4));
        assert_eq!(readings.worst_since(after(4)), SLICE * 2);
        assert_eq!(readings.worst_since(after(5)), Duration::ZERO);
        assert_eq!((readings.percentile(50), readings.percentile(0)), (Duration::ZERO, SLICE * 2));
    }
}
