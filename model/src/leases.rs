//! Leases: kept by shards, seen and taken by replicas, while time passes.

use std::time::Duration;

use ringside_ring::{
    Moment,
    lease::{LeaseFacts, ShardState, judge, vanished_until},
};

use crate::{
    actions::Action,
    config::{Handover, Judged, Mistake},
    queue::Queue,
    state::{Hold, HoldRenewal, Holder, Job, Lease, Object, Renewal, SHARDS, Seen, State, Write},
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
                // It sees whose the Lease is.
                let waits = state.leases[shard].is_held_by_sharder() && !self.makes(Mistake::HoldNotWaitedFor);
                let pod = &mut state.pods[shard];
                // Another one would change nothing before the next tick.
                let begins = pod.runs && !pod.paused && pod.renewal.is_none() && !pod.is_fresh && (pod.holds || !waits);
                if begins {
                    pod.renewal = Some(Renewal { is_old: false, answer: None });
                }
                begins
            }
            Action::RenewalLands(shard) => self.lands(state, shard),
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
                let unseen = state.leases[shard].unseen[replica];
                if unseen {
                    see(state, replica, shard);
                }
                unseen
            }
            Action::TakeLease(replica, shard, answered) => self.take(state, (replica, shard), answered),
            Action::ReleaseLease(replica, shard) => self.release_hold(state, replica, shard),
            Action::RenewHold(replica, shard) => renew_hold(state, replica, shard),
            Action::HoldRenewed(shard, answered) => self.hold_renewed(state, shard, answered),
            Action::HoldEnds(shard) => self.hold_ends(state, shard),
            Action::DeleteLease(shard) => {
                let deleted = state.left.deletions > 0 && state.leases[shard].holder == Holder::Shard;
                if deleted {
                    state.left.deletions -= 1;
                    state.write_lease(shard, Holder::Absent);
                }
                deleted
            }
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

    /// A replica becomes the holder of the Lease of a shard that was silent for too long, that released it, or that has none:
    /// of these only where there is something to take over. Of a Lease that has changed since it was seen it does not.
    fn take(&self, state: &mut State, (replica, shard): (usize, usize), answered: bool) -> bool {
        let (lease, of_replica) = (state.leases[shard], &state.replicas[replica]);
        let seen = of_replica.seen[shard];
        let by_its_clock = self.makes(Mistake::RenewTimeAsClock) && lease.holder == Holder::Shard;
        let is_silent = state_of(seen) == Some(ShardState::Uncertain) || by_its_clock;
        let is_gone = if seen.exists { !seen.held } else { seen.age >= OLDEST || self.makes(Mistake::NamelessIsGone) };
        let may = is_silent || (is_gone && all_of(state, shard).next().is_some());
        let leads = replica == 0 || state.left.decisions > 0;
        let is_as_seen = !lease.unseen[replica] || self.makes(Mistake::LeaseTakenUntested);
        if !may
            || !leads
            || !is_as_seen
            || of_replica.holds[shard] != Hold::None
            || (!answered && state.left.losses == 0)
        {
            return false;
        }
        let is_anothers = lease.is_held_by_sharder();
        state.write_lease(shard, Holder::Sharder(u8::try_from(replica).expect("few replicas")));
        if answered {
            see(state, replica, shard);
            state.replicas[replica].holds[shard] = if is_anothers { Hold::Over } else { Hold::Own };
        } else {
            state.left.losses -= 1;
        }
        true
    }

    /// A replica ends its hold when nothing relies on it: no write, whether it waits for the answer or not, and no family of which
    /// not all has moved.
    fn release_hold(&self, state: &mut State, replica: usize, shard: usize) -> bool {
        let is_its = matches!(state.leases[shard].holder, Holder::Sharder(holder) if usize::from(holder) == replica);
        let may = match state.replicas[replica].holds[shard] {
            Hold::None => false,
            Hold::Own => true,
            Hold::Over => self.makes(Mistake::OthersHoldReleased),
        };
        let is_of_this = |job: &Option<Job>| job.is_some_and(|job| job.takes_from(shard));
        let is_late = is_of_this(&state.late) && !self.makes(Mistake::ReleasedWhileLate);
        let is_apart = |object: &Object| object.child.is_some_and(|child| usize::from(child) != shard);
        let is_halfway = all_of(state, shard).any(is_apart) && !self.makes(Mistake::ReleasedHalfway);
        if !is_its || !may || is_of_this(&state.replicas[replica].job) || is_late || is_halfway {
            return false;
        }
        state.write_lease(shard, Holder::Nobody);
        see(state, replica, shard);
        state.replicas[replica].holds[shard] = Hold::None;
        true
    }

    /// The API server carries out a renewal of a hold, which tests the version that its leader knew, or refuses it. It counts from
    /// before it was sent: so a hold that was over by then is not renewed but acquired.
    fn hold_renewed(&self, state: &mut State, shard: usize, answered: bool) -> bool {
        let Some(HoldRenewal { replica, is_stale }) = state.renewals[shard] else { return false };
        if !answered && state.left.losses == 0 {
            return false;
        }
        state.renewals[shard] = None;
        let is_carried_out = !is_stale || self.makes(Mistake::RenewalUntested);
        if is_carried_out {
            state.write_lease(shard, Holder::Sharder(replica.unwrap_or_default()));
        }
        let Some(replica) = replica.map(usize::from) else { return true };
        if !answered {
            state.left.losses -= 1;
            return true;
        }
        see(state, replica, shard);
        let hold = &mut state.replicas[replica].holds[shard];
        if is_carried_out && *hold == Hold::None {
            *hold = Hold::Own;
        }
        true
    }

    /// The time of a hold is over. Its sharder knew before; the API server has ended what was sent under it.
    fn hold_ends(&self, state: &mut State, shard: usize) -> bool {
        if state.left.lapses == 0 || !state.leases[shard].is_held_by_sharder() {
            return false;
        }
        state.left.lapses -= 1;
        state.leases[shard].ran_out = true;
        // Who counted on the renewal before it was carried out goes on, and so does what was sent under it.
        let is_trusted = self.makes(Mistake::RenewalTrusted) && state.renewals[shard].is_some();
        let goes_on = is_trusted || self.makes(Mistake::HoldWithoutEnd);
        if !goes_on {
            state.replicas.iter_mut().for_each(|replica| replica.holds[shard] = Hold::None);
        }
        let late_goes_on = self.makes(Mistake::LateCountsOnRenewal) && state.renewals[shard].is_some();
        let late = Some(&mut state.late).filter(|_| !late_goes_on);
        let jobs = state.replicas.iter_mut().map(|replica| &mut replica.job).chain(late);
        if !self.makes(Mistake::TakeoverOutlivesHold) && !goes_on {
            jobs.for_each(|job| *job = job.filter(|job| !job.takes_from(shard)));
        }
        // Between child and object, if so it was.
        for (parted, object) in state.parted.iter_mut().zip(state.now.objects) {
            *parted |= object.shard.map(usize::from) == Some(shard);
        }
        true
    }

    /// Whether a replica may take what a shard has that is gone.
    pub(crate) fn may_take_over(&self, state: &State, replica: usize, shard: u8) -> bool {
        let (lease, of_replica) = (state.leases[usize::from(shard)], &state.replicas[replica]);
        let is_seen = !lease.unseen[replica] && matches!(lease.holder, Holder::Sharder(_));
        of_replica.holds[usize::from(shard)] != Hold::None
            || (is_seen && self.makes(Mistake::OthersHoldTrusted))
            || self.makes(Mistake::TakenUnheld)
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

    /// The API server carries out a renewal, which tests what the proxy knows of the Lease. Who has lost it may take it back,
    /// from the sharder at the end of its hold.
    fn lands(&self, state: &mut State, shard: usize) -> bool {
        let pod = &mut state.pods[shard];
        let (Some(renewal), lease) = (&mut pod.renewal, state.leases[shard]) else { return false };
        if renewal.answer.is_some() {
            return false;
        }
        let waits = lease.is_held_by_sharder() && !self.makes(Mistake::HoldNotWaitedFor);
        let held = match lease.holder {
            Holder::Shard | Holder::Absent => true,
            Holder::Nobody => !pod.holds,
            Holder::Sharder(_) => !pod.holds && !waits,
        };
        renewal.answer = Some(held);
        if held {
            state.write_lease(shard, Holder::Shard);
        }
        true
    }

    /// Whether its renewals take no time: where the case says so, while it can renew.
    fn is_steady(&self, state: &State, shard: usize) -> bool {
        let pod = &state.pods[shard];
        let is_there = state.leases[shard].holder != Holder::Absent;
        self.case.steady[shard] && pod.runs && pod.holds && !pod.paused && is_there
    }

    /// The shards that take part, as a replica judges.
    pub(crate) fn available(&self, state: &State, replica: usize) -> Judged {
        state.replicas[replica].seen.map(|seen| state_of(seen).filter(|state| state.is_available()))
    }
}

/// The judgement of the contract. None: it has not seen the Lease, or not for long.
fn state_of(seen: Seen) -> Option<ShardState> {
    let facts = LeaseFacts { held_by_shard: seen.held, duration: DURATION };
    let now = Moment::from_origin(TICK * u32::from(seen.age));
    if !seen.exists {
        let until = vanished_until(&facts, Moment::default())?;
        return (now < until).then_some(ShardState::Expired);
    }
    Some(judge(&facts, Moment::default(), now).state)
}

/// A replica sees a Lease as it is.
pub(crate) fn see(state: &mut State, replica: usize, shard: usize) {
    let (lease, of_replica) = (&mut state.leases[shard], &mut state.replicas[replica]);
    lease.unseen[replica] = false;
    let before = of_replica.seen[shard];
    of_replica.seen[shard] = match lease.holder {
        Holder::Absent => Seen { exists: false, held: before.held, age: 0 },
        holder => Seen { exists: true, held: holder == Holder::Shard, age: 0 },
    };
    if !matches!(lease.holder, Holder::Sharder(_)) {
        of_replica.holds[shard] = Hold::None;
    }
}

/// A replica asks for its hold to last longer.
fn renew_hold(state: &mut State, replica: usize, shard: usize) -> bool {
    let holds = state.replicas[replica].holds[shard] != Hold::None;
    if !holds || state.left.renewals == 0 || state.renewals[shard].is_some() {
        return false;
    }
    state.left.renewals -= 1;
    let is_stale = state.leases[shard].unseen[replica];
    state.renewals[shard] = Some(HoldRenewal { replica: u8::try_from(replica).ok(), is_stale });
    true
}

/// The objects that are labelled for a shard.
fn all_of(state: &State, shard: usize) -> impl Iterator<Item = &Object> {
    state.now.objects.iter().filter(move |object| object.shard.map(usize::from) == Some(shard))
}

impl Job {
    /// Whether it takes an object from this shard, which is gone.
    fn takes_from(&self, shard: usize) -> bool {
        self.takes && self.view.shard.map(usize::from) == Some(shard)
    }
}

impl Lease {
    /// Whether no shard may have it.
    pub(crate) fn is_held_by_sharder(self) -> bool {
        matches!(self.holder, Holder::Sharder(_)) && !self.ran_out
    }
}

impl State {
    /// The gate closes: streams are cut, and the proxy waits no more for what was sent.
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
            // The controller's requests are refused now; what it makes of that is unknown.
            held.woken |= std::mem::take(&mut held.worked_on);
            if held.write != Write::None {
                held.write = Write::LeftBehind;
            }
        }
    }
}
