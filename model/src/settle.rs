//! A run without further faults, in which everybody does all that they can, in turns.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{
    actions::Action,
    config::{Budget, Handover, all_ready},
    state::{Holder, SHARDS, State, Write},
};

/// Turns until all must be settled: a takeover and two moves one after the other take less than half of them.
const TURNS: usize = 30;

impl Handover {
    pub(crate) fn settles(&self, state: &State) -> bool {
        let mut state = *state;
        // Where no shard runs, what died begins again.
        let restarts = if state.pods.iter().any(|pod| pod.runs && !pod.ended) { 0 } else { u8::MAX };
        state.left = Budget { restarts, ticks: u8::MAX, catch_ups: u8::MAX, lapses: u8::MAX, ..Budget::default() };
        let mut way = Vec::new();
        let settles = (0..TURNS).any(|_| {
            let hash = hash(&state);
            if self.is_settled(&state) || self.settled.lock().is_ok_and(|known| known.contains(&hash)) {
                return true;
            }
            way.push(hash);
            self.turn(&mut state);
            false
        });
        if settles && let Ok(mut known) = self.settled.lock() {
            known.extend(way);
        }
        settles
    }

    fn turn(&self, state: &mut State) {
        let mut take = |action| {
            let happens = self.after(state, action);
            let happened = happens.is_some();
            if let Some(next) = happens {
                *state = next;
            }
            happened
        };
        take(Action::CatchUp);
        take(Action::Tick);
        take(Action::LateLands);
        for shard in 0..SHARDS {
            take(Action::HoldRenewed(shard, true));
            take(Action::HoldEnds(shard));
            take(Action::Restart(shard));
            take(Action::Resume(shard));
            for renews in [Action::Renew, Action::RenewalLands, Action::RenewalAnswered] {
                take(renews(shard));
            }
            take(Action::Release(shard));
            take(Action::List(shard, false));
            take(Action::Bookmark(shard));
            while take(Action::Deliver(shard)) {}
            for object in 0..self.case.objects {
                take(Action::WriteLands(shard, object));
                take(Action::Rest(shard, object));
                take(Action::AcknowledgementLands(shard, object, Some(0)));
                take(Action::ForgetDrain(shard, object));
                take(Action::SeeDrain(shard, object));
                take(Action::Acknowledge(shard, object));
            }
        }
        for replica in 0..self.case.replicas {
            for shard in 0..SHARDS {
                take(Action::SeeLease(replica, shard));
                take(Action::TakeLease(replica, shard, true));
                take(Action::SeeLease(replica, shard));
            }
            for object in 0..self.case.objects {
                while take(Action::CarryOut(replica)) {}
                take(Action::Decide(replica, object, false));
            }
            while take(Action::CarryOut(replica)) {}
            for shard in 0..SHARDS {
                take(Action::ReleaseLease(replica, shard));
            }
        }
    }

    fn is_settled(&self, state: &State) -> bool {
        let there = all_ready(state.leases.map(|lease| lease.holder == Holder::Shard));
        let held = |shard: usize| state.pods[shard].holds;
        (0..self.case.objects).all(|object| {
            let stored = state.now.objects[object];
            stored.shard.is_some()
                && stored.drain.is_none()
                && stored.shard == self.receiver(object, there)
                && stored.child.is_none_or(|child| Some(child) == stored.shard)
                && (0..SHARDS).all(|shard| {
                    let pod = &state.pods[shard].objects[object];
                    pod.cached == stored.is_shown_to(shard) && pod.write == Write::None && pod.acknowledgement.is_none()
                })
        }) && (0..SHARDS).all(|shard| held(shard) || !state.pods[shard].runs)
            && state.pods.iter().all(|pod| !pod.ended)
            && state.late.is_none()
    }
}

fn hash(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
