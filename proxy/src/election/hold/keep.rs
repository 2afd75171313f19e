//! Keeps the real locks while the controller leads by them, and sees to it that it does not act where that fails.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use futures::future::{join, join_all};
use ringside_ring::Moment;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Claim, Hold, Holder, mark};
use crate::election::{Locks, lock::LockRefusal, object::LockName, record::LASTS};

/// Whether something is due is looked at so often.
const TICK: Duration = Duration::from_millis(250);

/// How it goes with the looks at one of them.
#[derive(Default)]
struct LockLooks {
    /// When the last one that succeeded began; none in this term of the shard Lease.
    looked: Option<Moment>,
    next: Option<Moment>,
}

impl Hold {
    /// Keeps those that the controller leads by, until it is dropped: for as long as the shard Lease is held.
    pub async fn keep(&self, locks: &Locks) -> Infallible {
        // Each at its own pace: a look can take long, and time runs out meanwhile.
        let (never, _) = join(self.renew(locks), self.review(locks)).await;
        never
    }

    async fn review(&self, locks: &Locks) -> Infallible {
        let mut tick = ticks();
        loop {
            tick.tick().await;
            self.leads.review(self.covers(locks), locks);
            locks.review_refused();
        }
    }

    async fn renew(&self, locks: &Locks) -> Infallible {
        let (mut tick, mut all) = (ticks(), HashMap::<LockName, LockLooks>::new());
        loop {
            tick.tick().await;
            let led = locks.led();
            all.retain(|name, _| led.contains(name));
            for name in led {
                all.entry(name).or_default();
            }
            let now = self.clock.now();
            let due = all.iter_mut().filter(|(_, kept)| kept.next.is_none_or(|next| next <= now));
            join_all(due.map(|(name, kept)| self.keep_one(name, kept, locks))).await;
        }
    }

    async fn keep_one(&self, name: &LockName, kept: &mut LockLooks, locks: &Locks) {
        let asked = self.clock.now();
        let result = self.look(name, kept.looked, locks).await;
        let lasts = self.standings.lock().get(name).map_or(LASTS, |last_renewal| last_renewal.lasts);
        match result {
            Ok(seen) => {
                let looked = if seen { Some(asked) } else { kept.looked };
                *kept = LockLooks { looked, next: Some(asked + lasts / 5) };
            }
            Err(LockRefusal::Conflict(_)) => {
                tracing::warn!(lock = %name, "another holder has the real lock of the controller's election; showing it, so the controller stops leading");
                locks.forget(name);
            }
            Err(error) => {
                tracing::warn!(lock = %name, %error, "can't keep the real lock of the controller's election; trying again");
                kept.next = Some(self.clock.now() + lasts / 15);
            }
        }
    }

    /// Renews the lock, unless a shard did a short time ago, as the last look and this one show. Returns whether this
    /// look counts for the next.
    pub(super) async fn look(
        &self,
        name: &LockName,
        looked: Option<Moment>,
        locks: &Locks,
    ) -> Result<bool, LockRefusal> {
        let asked = self.clock.now();
        let before = self.standings.lock().get(name).cloned();
        let claim = Claim { object: locks.object(name), judged: false };
        let (Some(looked), Some(before)) = (looked, before) else {
            return self.take(name, &claim).await.map(|()| true);
        };
        let read = self.read(name).await?;
        if let Some(real) = &read
            && matches!(self.holder_of(name.kind, real), Holder::Ring)
        {
            if self.mark(name).is_some_and(|now| now != before.mark) {
                // It was written here meanwhile.
                return Ok(false);
            }
            if mark(name.kind, real) != before.mark {
                // By another shard, at any time since.
                self.seen(name, (looked.max(before.renewed), false), real, before.lasts);
                return Ok(true);
            }
            if !before.is_due(self.clock.now()) {
                return Ok(true);
            }
        }
        self.write(name, &claim, Some((asked, read))).await.map(|()| true)
    }
}

fn ticks() -> Interval {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
