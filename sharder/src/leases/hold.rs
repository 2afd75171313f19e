//! Holds: the sharder keeps the Lease of a shard that is gone while it takes that shard's objects.
//!
//! A shard that released its Lease may take it back at any moment, as a container does that restarts. So the leader acquires
//! the Lease first, in the version that it knows. A conflict says that the shard is back, and nothing is taken from it. A shard
//! that comes back during a hold waits for its release, or for twice its duration (CONTRACT, "hold").
//!
//! No write of a takeover lands when the shard may work again:
//! - A hold counts from before its request, for a fifth less than the shard waits.
//! - It is renewed, by its version, from its first third on while writes are carried out. So a write has a third of it at
//!   least. After ten renewals the Lease is released and left alone for a while, so that a shard gets it that waits.
//! - A write has half of what is left of the hold to be sent, the client's repetitions included. It asks the API server to
//!   give up on it after that half. So what the client does not wait for any more has come to its end before the hold has.
//! - A renewal counts once the Lease is seen to be renewed. Until then the hold ends as it would without.
//! - A hold is released when nothing uses it. What had no answer uses it until it can't be carried out any more. So does a
//!   family of which not all has moved: its shard would come back to an object without its children.
//! - What a leader before holds is acquired again, as its age is unknown. It is not released early.
//! - A hold ends as soon as the Lease is seen to be another's, or gone.
//!
//! What no Lease can rule out is left: a sharder that stands still between its look at the clock and the sending.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use ringside_ring::{Moment, RingName, lease::DEFAULT_LEASE_DURATION};
use ringside_runtime::clock::SharedClock;
use tokio::{sync::watch as channel, time::timeout};

mod held;

pub(super) use self::held::Held;
use super::book::LeaseKey;
use crate::api_error::{HoldEnded, is_refused};

/// How long a Lease is left alone after a hold has run out: a shard that waits takes it meanwhile. Client-go's election looks
/// every 2 to 4.4 s by default.
pub(super) const REST: Duration = Duration::from_secs(5);
/// How long a wish for a hold is remembered.
const WANTED: Duration = Duration::from_secs(60);
/// The least time for one write.
const LEAST: Duration = Duration::from_millis(250);

/// The name of a shard in its ring.
pub(super) type Name = (RingName, String);

/// The Leases that the sharder holds, and those that it is to hold.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// When a hold was last asked for, until there is one.
    wanted: BTreeMap<Name, Moment>,
    held: BTreeMap<LeaseKey, Arc<Held>>,
    /// Until when Leases are left alone.
    rests: BTreeMap<LeaseKey, Moment>,
}

impl Holds {
    /// Notes that a shard's Lease is to be held; returns whether that is news.
    pub(super) fn want(&mut self, name: Name, now: Moment) -> bool {
        self.wanted.retain(|_, asked| now < *asked + WANTED);
        self.wanted.insert(name, now).is_none()
    }

    /// The shards whose Leases are to be held.
    pub(super) fn wanted(&self, now: Moment) -> impl Iterator<Item = &Name> {
        self.wanted.iter().filter(move |(_, asked)| now < **asked + WANTED).map(|(name, _)| name)
    }

    /// The Lease is held from now on.
    pub(super) fn insert(&mut self, key: LeaseKey, held: Held) {
        self.wanted.remove(&held.name);
        self.held.insert(key, Arc::new(held));
    }

    /// Whether the Lease is held.
    pub(super) fn has(&self, key: &LeaseKey, now: Moment) -> bool {
        self.held.get(key).is_some_and(|held| held.state.lock().spec.is_some() || held.may_begin(now))
    }

    /// When the hold on this Lease is to be renewed.
    pub(super) fn renews(&self, key: &LeaseKey, now: Moment) -> Option<Moment> {
        self.held.get(key).and_then(|held| held.renews(now))
    }

    /// The Lease is about to be renewed, the first time as `wanted`; returns as what, if the hold still needs that. What had no
    /// answer is asked for again as it was.
    pub(super) fn renewing(&self, key: &LeaseKey, wanted: LeaseSpec, now: Moment) -> Option<LeaseSpec> {
        let held = self.held.get(key).filter(|held| held.renews(now).is_some())?;
        let mut state = held.state.lock();
        Some(state.asked.get_or_insert((now, wanted)).1.clone())
    }

    /// When the hold on this Lease is to be released.
    pub(super) fn ends(&self, key: &LeaseKey) -> Option<Moment> {
        self.held.get(key).map(|held| held.ends())
    }

    /// Until when this Lease is left alone.
    pub(super) fn rests(&self, key: &LeaseKey, now: Moment) -> Option<Moment> {
        self.rests.get(key).copied().filter(|until| now < *until)
    }

    /// The holds on all of these, if the family of this uid may be moved under all.
    pub(super) fn all(&self, keys: &[LeaseKey], uid: &str, now: Moment) -> Option<Vec<Arc<Held>>> {
        let held = |key: &LeaseKey| self.held.get(key).filter(|held| held.takes(uid, now)).cloned();
        keys.iter().map(held).collect()
    }

    /// The hold is about to be released: nothing is written under it any more. Returns how long the shard's own Lease lasts,
    /// and whether the hold has run out; none while it is used.
    pub(super) fn release(&mut self, key: &LeaseKey, now: Moment) -> Option<(Duration, bool)> {
        let held = self.held.get(key).filter(|held| held.ends() <= now)?;
        held.state.lock().is_over = true;
        Some((held.lasts / 2, !held.may_begin(now)))
    }

    /// Leaves the Lease alone for a while.
    pub(super) fn rest(&mut self, key: &LeaseKey, now: Moment) {
        self.rests.retain(|_, until| now < *until);
        self.rests.insert(key.clone(), now + REST);
    }

    /// Ends the holds on Leases that are not as the sharder wrote them. `stands` gets the name, and whether a Lease is this
    /// hold's; that is none where it has no Lease.
    pub(super) fn end_unless(
        &mut self,
        now: Moment,
        stands: impl Fn(&LeaseKey, &Name, Option<&dyn Fn(&LeaseSpec) -> bool>) -> bool,
    ) {
        self.held.retain(|key, held| {
            let has_lease = held.state.lock().spec.is_some();
            let is_its: &dyn Fn(&LeaseSpec) -> bool = &|spec| held.is(spec, now);
            let stands = stands(key, &held.name, has_lease.then_some(is_its));
            if !stands {
                held.state.lock().is_over = true;
            }
            stands
        });
    }
}

/// The permission to take a shard's objects, for as long as the sharder holds its Lease. While there is one the Lease is not
/// released before the hold has run out.
pub(crate) struct Hold {
    shard: String,
    of: Vec<Arc<Held>>,
    clock: SharedClock,
    /// Where it is told that nothing uses the hold any more.
    attention: channel::Sender<()>,
}

impl Hold {
    pub(super) fn new(shard: &str, of: Vec<Arc<Held>>, clock: &SharedClock, attention: &channel::Sender<()>) -> Self {
        for held in &of {
            held.state.lock().users += 1;
        }
        Self { shard: shard.to_owned(), of, clock: clock.clone(), attention: attention.clone() }
    }

    /// Whether it is the hold on this shard's Lease.
    pub(crate) fn is_of(&self, shard: &str) -> bool {
        self.shard == shard
    }

    /// Carries out a write under the hold. `write` gets the time after which the API server has to give up on it.
    ///
    /// # Errors
    /// Those of the write; that it had no answer in time; or that the hold has ended ([`has_ended`]), and then it was not sent.
    pub(crate) async fn carry_out<T>(
        &self,
        write: impl AsyncFnOnce(Duration) -> Result<T, kube::Error>,
    ) -> Result<T, kube::Error> {
        let left = self.left();
        let within = left / 2;
        if within < LEAST {
            return Err(kube::Error::Service(HoldEnded.into()));
        }
        let unfinished = self.unfinished(left);
        let outcome = match timeout(within, write(within)).await {
            Ok(outcome) => outcome,
            Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
        };
        if outcome.as_ref().err().is_none_or(is_refused) {
            unfinished.end();
        }
        if outcome.is_ok() {
            self.progress();
        }
        outcome
    }

    /// A write was carried out: the hold may be renewed.
    fn progress(&self) {
        let is_first = |held: &Arc<Held>| !std::mem::replace(&mut held.state.lock().has_progress, true);
        if self.of.iter().filter(|held| is_first(held)).count() > 0 {
            self.attention.send_replace(());
        }
    }

    /// Begins or goes on with the family of an object, which keeps the hold until that has ended.
    ///
    /// # Errors
    /// There is too little time left ([`has_ended`]).
    pub(crate) fn begin(&self, uid: &str) -> Result<(), kube::Error> {
        let now = self.clock.now();
        if !self.of.iter().all(|held| held.takes(uid, now)) {
            return Err(kube::Error::Service(HoldEnded.into()));
        }
        for held in &self.of {
            held.state.lock().in_part.insert(uid.to_owned());
        }
        Ok(())
    }

    /// The family has moved, or there is nothing left of it.
    pub(crate) fn end(&self, uid: &str) {
        for held in &self.of {
            held.state.lock().in_part.remove(uid);
        }
    }

    /// How long it can be relied on.
    fn left(&self) -> Duration {
        let now = self.clock.now();
        let left = |held: &Arc<Held>| if held.state.lock().is_over { Duration::ZERO } else { held.until().since(now) };
        // A ring without any Lease has no shard that a Lease could keep waiting.
        self.of.iter().map(left).min().unwrap_or(DEFAULT_LEASE_DURATION)
    }

    fn unfinished(&self, within: Duration) -> Unfinished {
        Unfinished { hold: self.clone(), until: Some(self.clock.now() + within) }
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        Self::new(&self.shard, self.of.clone(), &self.clock, &self.attention)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let now = self.clock.now();
        let mut is_free = false;
        for held in &self.of {
            let mut state = held.state.lock();
            state.users -= 1;
            state.last = Some(now);
            is_free |= state.users == 0;
        }
        if is_free {
            self.attention.send_replace(());
        }
    }
}

/// A write that was sent under a hold, and keeps it until then unless it ends.
struct Unfinished {
    hold: Hold,
    until: Option<Moment>,
}

impl Unfinished {
    /// It came to its end.
    fn end(mut self) {
        self.until = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(until) = self.until else { return };
        for held in &self.hold.of {
            let mut state = held.state.lock();
            state.kept = state.kept.max(until);
        }
    }
}

/// How long a hold lasts where no Lease says it.
pub(super) const DEFAULT_HOLD: Duration = DEFAULT_LEASE_DURATION.saturating_mul(2);

#[cfg(test)]
pub(super) mod tests;
