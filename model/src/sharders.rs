//! The sharder's replicas. Each acts as if it led: the writes must be safe without the election.

use std::time::Duration;

use ringside_ring::decide::{self, Covered, Drain, Family, How, decide};

use crate::{
    actions::Action,
    config::{Handover, Mistake},
    leases::see,
    state::{HoldRenewal, Job, Next, Object, Replica, SHARDS, State},
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
                let job = self.decide(state, (replica, object), Drain::InTime, old);
                state.left.decisions -= u8::from(replica > 0 && job.is_some());
                state.replicas[replica].job = job;
                job.is_some()
            }
            // A drain has lasted for as long as the ring allows.
            Action::Force(replica, object) => {
                let fenced = self.case.fence || self.makes(Mistake::ForcedUnfenced);
                let forces = state.left.forces > 0 && self.end_drain(state, (replica, object), fenced);
                state.left.forces -= u8::from(forces);
                forces
            }
            // The same, and whether the fence stands is not known, or not any more.
            Action::TakeBack(replica, object) => {
                let takes_back = state.left.take_backs > 0 && self.end_drain(state, (replica, object), false);
                state.left.take_backs -= u8::from(takes_back);
                takes_back
            }
            Action::CarryOut(replica) => self.carry_out(state, replica),
            Action::Refuse(replica) => self.refuse(state, replica),
            // It begins again among other shards.
            Action::Crash(replica) => {
                let crashes = state.left.losses > 0 && state.replicas[replica].job.take().is_some();
                state.left.losses -= u8::from(crashes);
                crashes
            }
            // The replica does not wait for the answer.
            Action::Abandon(replica) => {
                let may = state.left.lates > 0 && state.late.is_none() && state.replicas[replica].job.is_some();
                if may {
                    state.left.lates -= 1;
                    state.late = state.replicas[replica].job.take();
                }
                may
            }
            Action::LateLands => {
                let late = state.late.take();
                late.inspect(|job| _ = self.write(state, job)).is_some()
            }
            Action::Succeed(replica) => {
                if state.left.successions == 0 {
                    return false;
                }
                state.left.successions -= 1;
                state.replicas[replica] = Replica::default();
                // What it has sent may still be carried out.
                let its = |renewal: &&mut HoldRenewal| renewal.replica.map(usize::from) == Some(replica);
                state.renewals.iter_mut().flatten().filter(its).for_each(|renewal| renewal.replica = None);
                (0..SHARDS).for_each(|shard| see(state, replica, shard));
                true
            }
            _ => false,
        }
    }

    /// The drain of an object is overdue. Returns whether there is something to do about that.
    fn end_drain(&self, state: &mut State, (replica, object): (usize, usize), fenced: bool) -> bool {
        let is_drained = state.now.objects[object].drain.is_some();
        if !is_drained || state.replicas[replica].job.is_some() {
            return false;
        }
        let drain = Drain::after(DEADLINE, DEADLINE, fenced);
        state.replicas[replica].job = self.decide(state, (replica, object), drain, false);
        state.replicas[replica].job.is_some()
    }

    /// The API server refuses to write the child: the object goes to the shard which has that, or without it.
    fn refuse(&self, state: &mut State, replica: usize) -> bool {
        let Some(job @ Job { next: Next::Child(to), .. }) = state.replicas[replica].job else { return false };
        if state.left.refusals == 0 {
            return false;
        }
        state.left.refusals -= 1;
        let shards = self.view(self.available(state, replica));
        let name = |shard: u8| self.name(Some(shard));
        let Some(meant) = name(to).and_then(|to| shards.ring().id(to)) else { return false };
        let gets = self.shard(shards, shards.receiver_beside(meant, [shards.holder(self.name(job.view.child))]));
        // That it stays behind is no mistake.
        let disturbed = job.disturbed || job.view.child != Some(gets);
        state.replicas[replica].job = Some(Job { next: Next::Assign(gets), disturbed, ..job });
        true
    }

    /// What a replica does about an object, on what it sees of it.
    fn decide(&self, state: &mut State, (replica, object): (usize, usize), drain: Drain, old: bool) -> Option<Job> {
        // The children are looked for when the rest is known.
        let child = state.now.objects[object].child;
        let view = Object { child, ..if old { &state.past } else { &state.now }.objects[object] };
        if view.shard.is_none() && self.makes(Mistake::WebhookTrusted) {
            return None;
        }
        let shards = self.view(self.available(state, replica));
        let asked = decide::Object {
            key: self.key(object),
            holder: shards.holder(self.name(view.shard)),
            drain: view.drain.map(|_| drain),
            covered: Covered::InRing,
        };
        let is_ignored = view.drain.is_some() && self.makes(Mistake::TakenBackApart);
        let action = decide(&asked, Family { is_apart: self.is_apart(&view) && !is_ignored }, shards);
        let takes = matches!(action, decide::Action::Assign { how: How::Takeover, .. });
        let next = match action {
            decide::Action::Gather { .. } if old && !self.makes(Mistake::GatheredToThePast) => return None,
            decide::Action::Gather { to } => Next::Gather(self.shard(shards, to)),
            decide::Action::Assign { .. } if takes && !self.may_take_over(state, replica, view.shard?) => return None,
            decide::Action::Assign { to, .. } => self.family(&view, self.shard(shards, to)),
            decide::Action::Drain { .. } => Next::Drain(self.new_drain(state)),
            decide::Action::TakeBack => Next::TakeBack,
            _ => return None,
        };
        // A child's own version says nothing of its object: that is as it was when the replica wrote to it, or newer.
        let forgot = old && matches!(next, Next::Child(_)) && state.replicas[replica].wrote[object];
        if forgot && !self.makes(Mistake::OwnWritesForgotten) {
            return None;
        }
        let object = u8::try_from(object).ok()?;
        Some(Job { object, view, next, takes, child_changed: false, disturbed: false, forgot })
    }

    /// The object's child first.
    fn family(&self, view: &Object, to: u8) -> Next {
        let is_there = view.child.is_none_or(|child| child == to);
        if is_there || self.makes(Mistake::ChildrenLeftBehind) { Next::Assign(to) } else { Next::Child(to) }
    }

    /// Whether a child is not with its object.
    fn is_apart(&self, view: &Object) -> bool {
        view.child.is_some_and(|child| view.shard != Some(child)) && !self.makes(Mistake::StraysLeft)
    }

    fn new_drain(&self, state: &mut State) -> u8 {
        if self.makes(Mistake::OneDrainValue) { 0 } else { state.fresh_drain() }
    }

    fn carry_out(&self, state: &mut State, replica: usize) -> bool {
        let Some(job) = state.replicas[replica].job.take() else { return false };
        let carried_out = self.write(state, &job);
        match job.next {
            Next::Child(to) if carried_out => {
                let view = Object { child: Some(to), ..job.view };
                state.replicas[replica].job = Some(Job { view, next: Next::Assign(to), ..job });
            }
            Next::Child(_) | Next::Gather(_) => {}
            Next::Drain(_) | Next::TakeBack | Next::Assign(_) => {
                // What it did not expect it looks at again.
                state.replicas[replica].wrote[usize::from(job.object)] = state.past != state.now;
            }
        }
        true
    }
}
