//! What can happen next.

use stateright::{Model, Property};

use crate::{
    config::{Case, Handover},
    promises,
    state::{SHARDS, State},
};

/// One step of one participant, or of the world around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is explained where it is carried out")]
pub enum Action {
    // Of a shard: its number, and the object's.
    Rest(usize, usize),
    Wake(usize, usize),
    Write(usize, usize),
    WriteLands(usize, usize),
    Deliver(usize),
    Bookmark(usize),
    List(usize, bool),
    SeeDrain(usize, usize),
    ForgetDrain(usize, usize),
    Acknowledge(usize, usize),
    /// With the replica whose webhook answers; none does.
    AcknowledgementLands(usize, usize, Option<usize>),
    AcknowledgementLost(usize, usize),
    Renew(usize),
    RenewalLands(usize),
    RenewalAnswered(usize),
    RenewalLost(usize),
    End(usize),
    Release(usize),
    // Of a replica: its number, and the object's or the shard's.
    SeeLease(usize, usize),
    /// With whether the answer comes.
    TakeLease(usize, usize, bool),
    ReleaseLease(usize, usize),
    RenewHold(usize, usize),
    Decide(usize, usize, bool),
    Force(usize, usize),
    TakeBack(usize, usize),
    CarryOut(usize),
    Refuse(usize),
    Crash(usize),
    Abandon(usize),
    Succeed(usize),
    // Of the world.
    LateLands,
    /// With whether the answer comes.
    HoldRenewed(usize, bool),
    HoldEnds(usize),
    DeleteLease(usize),
    Tick,
    Kill(usize),
    KillProxy(usize),
    Restart(usize),
    Pause(usize),
    Resume(usize),
    Cut(usize),
    Strip(usize),
    Touch(usize),
    CatchUp,
}

impl Handover {
    /// The state after `action`, if that can happen.
    pub(crate) fn after(&self, state: &State, action: Action) -> Option<State> {
        let mut next = *state;
        let happens = self.shard_steps(&mut next, action)
            || self.lease_steps(&mut next, action)
            || self.replica_steps(&mut next, action)
            || self.world_steps(&mut next, action);
        (happens && next != *state).then(|| {
            next.make_canonical();
            next
        })
    }

    /// Each step that there is, whether it can be taken now or not.
    pub(crate) fn all(case: &Case) -> Vec<Action> {
        use Action::{
            Acknowledge, AcknowledgementLands, AcknowledgementLost, Bookmark, CatchUp, Cut, DeleteLease, Deliver, End,
            ForgetDrain, HoldEnds, HoldRenewed, Kill, KillProxy, LateLands, List, Pause, Release, Renew,
            RenewalAnswered, RenewalLands, RenewalLost, Rest, Restart, Resume, SeeDrain, Strip, Tick, Touch, Wake,
            Write, WriteLands,
        };
        let objects = case.objects;
        let of_shards = (0..SHARDS).flat_map(move |shard| {
            let one = [
                Deliver(shard),
                Bookmark(shard),
                List(shard, false),
                List(shard, true),
                Renew(shard),
                RenewalLands(shard),
                RenewalAnswered(shard),
                RenewalLost(shard),
                End(shard),
                Release(shard),
                Kill(shard),
                KillProxy(shard),
                Restart(shard),
                Pause(shard),
                Resume(shard),
                Cut(shard),
                HoldEnds(shard),
                DeleteLease(shard),
            ];
            let each = (0..objects).flat_map(move |object| {
                [
                    Rest(shard, object),
                    Wake(shard, object),
                    Write(shard, object),
                    WriteLands(shard, object),
                    SeeDrain(shard, object),
                    ForgetDrain(shard, object),
                    Acknowledge(shard, object),
                    AcknowledgementLands(shard, object, None),
                    AcknowledgementLost(shard, object),
                ]
            });
            let answered = (0..objects).flat_map(move |object| {
                (0..case.replicas).map(move |replica| AcknowledgementLands(shard, object, Some(replica)))
            });
            let renewed = [true, false].map(|answered| HoldRenewed(shard, answered));
            one.into_iter().chain(renewed).chain(each).chain(answered)
        });
        let of_replicas = (0..case.replicas).flat_map(move |replica| Self::of_replica(replica, objects));
        let of_objects = (0..objects).flat_map(|object| [Strip(object), Touch(object)]);
        of_shards.chain(of_replicas).chain(of_objects).chain([Tick, CatchUp, LateLands]).collect()
    }

    /// Each step of a replica of the sharder.
    fn of_replica(replica: usize, objects: usize) -> impl Iterator<Item = Action> {
        use Action::{
            Abandon, CarryOut, Crash, Decide, Force, Refuse, ReleaseLease, RenewHold, SeeLease, Succeed, TakeBack,
            TakeLease,
        };
        let leases = (0..SHARDS).flat_map(move |shard| {
            [SeeLease(replica, shard), ReleaseLease(replica, shard), RenewHold(replica, shard)]
                .into_iter()
                .chain([true, false].map(|answered| TakeLease(replica, shard, answered)))
        });
        let objects = (0..objects).flat_map(move |object| {
            let overdue = [Force(replica, object), TakeBack(replica, object)];
            [Decide(replica, object, false), Decide(replica, object, true)].into_iter().chain(overdue)
        });
        let one = [CarryOut(replica), Refuse(replica), Crash(replica), Abandon(replica), Succeed(replica)];
        leases.chain(objects).chain(one)
    }
}

impl Model for Handover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(self)]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions.extend_from_slice(&self.steps);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.after(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(promises::NO_FOREIGN_WRITE, promises::no_foreign_write),
            Property::always(promises::CHILD_FIRST, promises::child_first),
            Property::always(promises::HELD, promises::held),
            Property::always(promises::SETTLES, promises::settles),
        ];
        // Behind the fence objects are taken by force. No sharder waits for their shard, and the API server refuses
        // what it writes.
        if self.case.budget.forces == 0 || !self.case.fence {
            all.push(Property::always(promises::ONE_WORKS, promises::one_works));
            all.push(Property::always(promises::ONE_WRITES, promises::one_writes));
        }
        all
    }
}
