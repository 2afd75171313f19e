//! Leases: kept by shards, seen and taken by replicas, while time passes.

use std::time::Duration;

use ringside_ring::{
    Moment,
    lease::{LeaseFacts, ShardState, judge},
};

use crate::{
    actions::Action,
    config::{Handover, Judged, Mistake},
    queue::Queue,
    state::{Holder, REPLICAS, Renewal, SHARDS, Seen, State, Write},
};

/// Three ticks are two durations of a Lease: a shard is given up for dead at the third that passes in silence. What a shard
/// trusts ends at the second tick after its renewal began. That is more than it trusts in fact, so it is not missed here.
const TICK: Duration = Duration::from_secs(2);
const DURATION: Duration = Duration::from_secs(3);
/// Older than this all ages are alike.
const OLDEST: u8 = 3;

impl Handover {
    pub(crate) fn lease_steps(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Renew(shard) => {
                let pod = &mut state.pods[shard];
                // Another one would change nothing before the next tick.
                let begins = pod.runs && !pod.paused && pod.renewal.is_none() && !pod.is_fresh;
                if begins {
                    pod.renewal = Some(Renewal { is_old: false, answer: None });
                }
                begins
            }
            Action::RenewalLands(shard) => lands(state, shard),
            Action::RenewalAnswered(shard) => self.answered(state, shard),
            Action::RenewalLost(shard) => {
                let lost = state.pods[shard].renewal.is_some() && state.left.losses > 0;
                if lost {
                    state.left.losses -= 1;
                    state.pods[shard].renewal = None;
                }
                lost
            }
            Action::SeeLease(replica, shard) => {
                let unseen = std::mem::take(&mut state.leases[shard].unseen[replica]);
                if unseen {
                    let held = state.leases[shard].holder == Holder::Shard;
                    state.replicas[replica].seen[shard] = Seen { exists: true, held, age: 0 };
                }
                unseen
            }
            Action::TakeLease(replica, shard) => self.take(state, replica, shard),
            Action::Tick => self.tick(state),
            _ => false,
        }
    }

    /// The proxy learns what came of its renewal.
    fn answered(&self, state: &mut State, shard: usize) -> bool {
        let pod = &mut state.pods[shard];
        let Some(Renewal { is_old, answer: Some(held) }) = pod.renewal else { return false };
        if pod.paused {
            return false;
        }
        pod.renewal = None;
        if !held {
            state.close(shard);
        } else if !is_old || self.makes(Mistake::ValidFromAnswer) {
            pod.is_fresh = true;
            if !std::mem::replace(&mut pod.holds, true) {
                // Nothing older than this term is shown, and nothing is believed that was known before.
                pod.floor = state.now.version;
                pod.objects.iter_mut().for_each(|held| held.fenced = true);
            }
        }
        true
    }

    /// A replica becomes the holder of the Lease of a shard that was silent for too long.
    fn take(&self, state: &mut State, replica: usize, shard: usize) -> bool {
        let lease = &mut state.leases[shard];
        let by_its_clock = self.makes(Mistake::RenewTimeAsClock) && lease.holder == Holder::Shard;
        if state_of(state.replicas[replica].seen[shard]) != Some(ShardState::Uncertain) && !by_its_clock {
            return false;
        }
        if lease.unseen[replica] && !self.makes(Mistake::LeaseTakenUntested) {
            return false;
        }
        *lease = crate::state::Lease { holder: Holder::Sharder, unseen: [true; REPLICAS] };
        true
    }

    /// Time passes for everybody.
    fn tick(&self, state: &mut State) -> bool {
        if state.left.ticks == 0 {
            return false;
        }
        state.left.ticks -= 1;
        let steady: [bool; SHARDS] = std::array::from_fn(|shard| self.is_steady(state, shard));
        for (shard, is_steady) in steady.into_iter().enumerate() {
            let stands_still = state.pods[shard].paused && self.makes(Mistake::ClockStops);
            if stands_still || is_steady {
                continue;
            }
            let pod = &mut state.pods[shard];
            if let Some(renewal) = &mut pod.renewal {
                renewal.is_old = true;
            }
            if !std::mem::take(&mut pod.is_fresh) {
                state.close(shard);
            }
        }
        for replica in &mut state.replicas {
            for (seen, _) in replica.seen.iter_mut().zip(steady).filter(|(_, is_steady)| !is_steady) {
                seen.age = (seen.age + 1).min(OLDEST);
            }
        }
        true
    }

    /// Whether its renewals take no time: where the case says so, while it can renew.
    fn is_steady(&self, state: &State, shard: usize) -> bool {
        let pod = &state.pods[shard];
        self.case.steady[shard] && pod.runs && pod.holds && !pod.paused
    }

    /// The shards that take part, as a replica judges.
    pub(crate) fn available(&self, state: &State, replica: usize) -> Judged {
        state.replicas[replica].seen.map(|seen| state_of(seen).filter(|state| state.is_available()))
    }
}

/// The judgement of the contract. None: it has not seen the Lease.
fn state_of(seen: Seen) -> Option<ShardState> {
    let facts = LeaseFacts { held_by_shard: seen.held, duration: DURATION };
    let now = Moment::from_origin(TICK * u32::from(seen.age));
    seen.exists.then(|| judge(&facts, Moment::default(), now).state)
}

/// The API server carries out a renewal, which tests what the proxy knows of the Lease.
fn lands(state: &mut State, shard: usize) -> bool {
    let pod = &mut state.pods[shard];
    let (Some(renewal), lease) = (&mut pod.renewal, &mut state.leases[shard]) else { return false };
    if renewal.answer.is_some() {
        return false;
    }
    // Who has lost it may take it back. The sharder's hold on it would last for a while; it is not relied on here.
    let held = lease.holder == Holder::Shard || !pod.holds;
    renewal.answer = Some(held);
    if held {
        *lease = crate::state::Lease { holder: Holder::Shard, unseen: [true; REPLICAS] };
    }
    true
}

impl State {
    /// The gate closes: streams are cut, and nobody waits any more for what was sent.
    pub(crate) fn close(&mut self, shard: usize) {
        let pod = &mut self.pods[shard];
        pod.is_fresh = false;
        if !std::mem::take(&mut pod.holds) {
            return;
        }
        if let Some(watch) = &mut pod.watch {
            watch.ended = true;
            watch.queue = Queue::default();
            watch.shown = None;
        }
        for held in &mut pod.objects {
            // Its requests are refused now; what it makes of that, nobody knows.
            held.woken |= std::mem::take(&mut held.worked_on);
            if held.write != Write::None {
                held.write = Write::LeftBehind;
            }
        }
    }
}
