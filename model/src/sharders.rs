//! The sharder's replicas. Each acts as if it led: the writes must be safe without the election.

use std::time::Duration;

use ringside_ring::{
    handover::{Patience, Step, next_step},
    labels::Ownership,
};

use crate::{
    actions::Action,
    config::{Handover, Judged, Mistake},
    state::{Claimed, Holder, Job, Next, Object, State},
};

/// Of drains. Any will do.
const DEADLINE: Duration = Duration::from_secs(1);

impl Handover {
    pub(crate) fn replica_steps(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Decide(replica, object, old) => {
                // The second replica led before, and ends some time.
                let may = replica == 0 || state.left.decisions > 0;
                if !may || state.replicas[replica].job.is_some() || (old && state.past == state.now) {
                    return false;
                }
                let job = self.decide(state, (replica, object), Patience::Left, old);
                state.left.decisions -= u8::from(replica > 0 && job.is_some());
                state.replicas[replica].job = job;
                job.is_some()
            }
            // A drain has lasted for as long as the ring allows.
            Action::Force(replica, object) => {
                let is_drained = state.now.objects[object].drain.is_some();
                if !is_drained || state.left.forces == 0 || state.replicas[replica].job.is_some() {
                    return false;
                }
                let fenced = self.case.fence || self.makes(Mistake::ForcedUnfenced);
                let patience = Patience::after(DEADLINE, DEADLINE, fenced);
                state.replicas[replica].job = self.decide(state, (replica, object), patience, false);
                let forces = state.replicas[replica].job.is_some();
                state.left.forces -= u8::from(forces);
                forces
            }
            Action::CarryOut(replica) => self.carry_out(state, replica),
            Action::Crash(replica) => {
                // It begins anew among other shards; or where nothing is under way, another leads that remembers nothing.
                let of_replica = &mut state.replicas[replica];
                let breaks_off = of_replica.job.is_some() || of_replica.claimed.iter().any(Option::is_some);
                let crashes = state.left.losses > 0 && breaks_off;
                if crashes {
                    if of_replica.job.take().is_none() {
                        of_replica.claimed = Default::default();
                    }
                    state.left.losses -= 1;
                }
                crashes
            }
            _ => false,
        }
    }

    /// What a replica does about an object, on what it sees of it.
    fn decide(
        &self,
        state: &mut State,
        (replica, object): (usize, usize),
        patience: Patience,
        old: bool,
    ) -> Option<Job> {
        let view = if old { &state.past } else { &state.now }.objects[object];
        if view.shard.is_none() && self.makes(Mistake::WebhookTrusted) {
            return None;
        }
        let judged = self.available(state, replica);
        if let Some(to) = self.without_asking(state, (replica, object), &view, judged) {
            return Some(Job { object: u8::try_from(object).ok()?, view, next: Next::Assign(to) });
        }
        let (ring, members) = self.members(judged);
        let drain = view.drain.map(|value| value.to_string());
        let ownership = Ownership { shard: self.name(view.shard), drain: drain.as_deref() };
        let step = next_step(ownership, patience, self.key(object), members, ring);
        let next = match step {
            Step::Keep | Step::AwaitAcknowledgement | Step::NoShard => return None,
            Step::Assign { to } | Step::Force { to } => Next::Assign(self.number(to.as_str())),
            Step::Drain { .. } => Next::Drain(self.new_drain(state)),
            Step::Move { to } if self.makes(Mistake::MovedUnclaimed) => Next::Assign(self.number(to.as_str())),
            Step::Move { .. } if view.drain.is_none() => Next::Claim(self.new_drain(state)),
            Step::Move { .. } => Next::Confirm,
        };
        Some(Job { object: u8::try_from(object).ok()?, view, next })
    }

    /// Where an object goes that its shard, which is there, has not to let go of: it was away when the object was drained, and
    /// was never shown it; or it is the object's home, and nobody else has had it.
    fn without_asking(
        &self,
        state: &State,
        (replica, object): (usize, usize),
        view: &Object,
        judged: Judged,
    ) -> Option<u8> {
        let shard = view.shard.filter(|shard| judged[usize::from(*shard)].is_some())?;
        let claimed = state.replicas[replica].claimed[object].filter(|claimed| view.drain == Some(claimed.drain))?;
        let to = self.receiver(object, judged)?;
        (claimed.away || to == shard || self.makes(Mistake::ClaimsUntold)).then_some(to)
    }

    fn new_drain(&self, state: &mut State) -> u8 {
        if self.makes(Mistake::OneDrainValue) { 0 } else { state.fresh_drain() }
    }

    fn carry_out(&self, state: &mut State, replica: usize) -> bool {
        let Some(job) = state.replicas[replica].job.take() else { return false };
        let object = usize::from(job.object);
        state.replicas[replica].job = match job.next {
            Next::Confirm => {
                let absent = job.view.shard.is_none_or(|it| state.leases[usize::from(it)].holder != Holder::Shard);
                let claimed = job.view.drain.filter(|_| absent && job.view.shard.is_some());
                if let Some(drain) = claimed {
                    state.replicas[replica].claimed[object] = Some(Claimed { drain, away: true });
                }
                let to = self.receiver(object, self.available(state, replica));
                to.filter(|to| absent && Some(*to) != job.view.shard).map(|to| Job { next: Next::Assign(to), ..job })
            }
            Next::Claim(value) if self.write(state, &job) => {
                debug_assert_eq!(state.now.objects[object].drain, Some(value));
                state.replicas[replica].claimed[object] = Some(Claimed { drain: value, away: false });
                Some(Job { view: state.now.objects[object], next: Next::Confirm, ..job })
            }
            Next::Claim(_) => None,
            Next::Drain(_) | Next::Assign(_) => {
                self.write(state, &job);
                None
            }
        };
        true
    }
}
