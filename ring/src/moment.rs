//! A point in time, as an argument: the crate reads no clock.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A point on a clock that neither steps nor stops, as the time since that clock's origin.
///
/// The origin is the caller's: boot for `CLOCK_BOOTTIME`, the start of a test under a paused clock.
/// Moments of two clocks mean nothing to each other, which is why Lease states are judged by
/// what the judge itself observed and not by `renewTime` (DESIGN, "Shard membership").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment that lies `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// The time from `earlier` to this moment; zero when `earlier` is in fact later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates: a Lease may carry a duration of 2^31 seconds.
    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// Saturates at the clock's origin.
    fn sub(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }
}
