//! What is known of the real lock's last renewal.

use std::time::Duration;

use ringside_ring::Moment;

/// The last known renewal of one real lock. Its clock goes on while the machine is suspended, as the clocks of others
/// do. Each deadline is a part of the time that a lock lasts without renewal. A replica that elects past the proxies
/// counts that time from when it saw the last renewal.
#[derive(Clone, Debug)]
pub(super) struct LastRenewal {
    /// The last renewal was not before this.
    pub(super) renewed: Moment,
    /// It was this shard's, so it was not much later either.
    pub(super) own: bool,
    /// What the lock says of its last renewal. Other writes to the lock do not renew it.
    pub(super) mark: String,
    pub(super) lasts: Duration,
}

impl LastRenewal {
    /// Whether a renewal is due. Of another shard's renewal it is known only between which two looks it was.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        now.since(self.renewed) >= self.lasts * (if self.own { 2 } else { 3 }) / 5
    }

    /// Whether the lock was renewed so recently that the controller's renewals can be answered.
    pub(super) fn is_sure(&self, now: Moment) -> bool {
        now.since(self.renewed) < self.lasts * 2 / 3
    }

    /// Whether no other holder can have the lock. What the controller has sent by now arrives before another one may
    /// take it.
    pub(super) fn covers(&self, now: Moment) -> bool {
        now.since(self.renewed) < self.lasts * 4 / 5
    }
}
