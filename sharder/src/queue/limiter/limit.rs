//! The number of permits: additive increase, multiplicative decrease (AIMD).

use tokio::time::Instant;

use super::Priority;

/// The most permits: far below what the API server takes from all its clients (`--max-mutating-requests-inflight`, 200).
pub(crate) const MAX_PERMITS: usize = 64;
/// With one, none would be left for what does not end a move.
pub(crate) const MIN_PERMITS: usize = 2;
const FIRST_PERMITS: usize = 8;

/// The number of permits, and what it follows from.
#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    permits: usize,
    /// Good answers that came while all permits were used, since the number changed.
    good: usize,
    halved: Option<Instant>,
}

impl Limit {
    /// The one that a sharder begins with, where it may write so many at once.
    pub(super) fn up_to(most: usize) -> Self {
        Self { most, permits: FIRST_PERMITS.min(most), good: 0, halved: None }
    }

    pub(super) fn permits(&self) -> usize {
        self.permits
    }

    /// Returns how many permits may be used when a write of this priority begins.
    ///
    /// A quarter is kept for [`Priority::Between`].
    pub(super) fn of(&self, priority: Priority) -> usize {
        match priority {
            Priority::Between => self.permits,
            Priority::Takeover | Priority::Rebalance | Priority::Repair => self.permits - self.permits.div_ceil(4),
        }
    }

    /// Counts a good answer, and adds a permit after as many as there are permits.
    pub(super) fn record_good(&mut self) {
        self.good += 1;
        if self.good >= self.permits {
            (self.permits, self.good) = ((self.permits + 1).min(self.most), 0);
        }
    }

    /// Halves the permits for an answer to what was `sent` after they were halved last.
    pub(super) fn record_overload(&mut self, sent: Instant, now: Instant) {
        if self.halved.is_none_or(|halved| sent > halved) {
            (self.permits, self.good, self.halved) = ((self.permits / 2).max(MIN_PERMITS), 0, Some(now));
        }
    }
}
