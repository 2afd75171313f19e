//! The clock by which Leases are kept and judged.

use std::{sync::Arc, time::Duration};

use ringside_ring::Moment;
use rustix::time::{ClockId, clock_gettime};

/// A clock that neither steps nor stops.
pub trait Clock: Send + Sync + 'static {
    /// The time since this clock's origin.
    fn now(&self) -> Moment;
}

/// A clock that several parts of a process read.
pub type SharedClock = Arc<dyn Clock>;

/// `CLOCK_BOOTTIME`: runs on while the machine is suspended, unlike `std::time::Instant`, whose
/// `CLOCK_MONOTONIC` stops. A shard that slept past its Lease must know that it did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boottime;

impl Clock for Boottime {
    fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        // The kernel counts both up from zero, so neither is ever negative.
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        Moment::from_origin(Duration::new(seconds, nanos))
    }
}

/// Follows tokio's clock, so that a test which pauses that one pauses this one.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed())
    }
}

/// Waits until `clock` shows `moment`.
///
/// Timers stop in suspend where the clock goes on, so a wait may end late, never early: whoever must not
/// act after `moment` asks the clock again before acting.
pub async fn sleep_until(clock: &dyn Clock, moment: Moment) {
    loop {
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boottime_only_goes_forward() {
        let before = Boottime.now();
        assert!(Boottime.now() >= before && before > Moment::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_moment() {
        let clock = TokioClock::start();
        let moment = clock.now() + Duration::from_secs(3_600);
        sleep_until(&clock, moment).await;
        assert!(clock.now() >= moment && clock.now().since(moment) < Duration::from_secs(1));
    }
}
