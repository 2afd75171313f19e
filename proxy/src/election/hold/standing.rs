//! What is known of the real lock's last renewal.

use std::time::Duration;

use ringside_ring::Moment;

/// How it stands with one of them, by a clock that goes on while the machine is suspended, as others' do. What is done when is a part of the time that a lock lasts without renewal, as whoever elects
/// past the proxies counts it from when they saw the last one.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The last renewal was not before this.
    pub(super) renewed: Moment,
    /// It was this shard's, so it was not much later either.
    pub(super) own: bool,
    /// What it says of that. Others may write other things into it, which renews it for nobody.
    pub(super) mark: String,
    pub(super) lasts: Duration,
}

impl Standing {
    /// A renewal is due. Of another shard's it is known only between which two looks it was.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        now.since(self.renewed) >= self.lasts * (if self.own { 2 } else { 3 }) / 5
    }

    /// So shortly ago that the controller's renewals can be answered.
    pub(super) fn is_sure(&self, now: Moment) -> bool {
        now.since(self.renewed) < self.lasts * 2 / 3
    }

    /// So shortly ago that nobody else can have it, and what the controller has sent by now arrives before somebody may.
    pub(super) fn covers(&self, now: Moment) -> bool {
        now.since(self.renewed) < self.lasts * 4 / 5
    }
}
