//! Takes objects from shards that are not there: a drain first, should the shard come back, and then it is asked for once more.
//!
//! A few at a time: what was drained while its shard was known to be away goes on without it. The others are given back when
//! it is there again, or have to be let go of, which takes a grace ([`super::claims`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use futures::{StreamExt, stream};
use ringside_ring::{
    decide::{Action, Covered, How},
    patch,
};

use super::{
    PARALLEL, Scope,
    batch::tell,
    failures::Failures,
    plan::Move,
    write::{Outcome, is_refused, write},
};
use crate::{faults::Task, leases::Absence, move_id::move_id, target::Target};
use ringside_runtime::explain::explain;

/// Objects that are drained before it is asked whether their shard is still away.
const AT_ONCE: usize = 32;

/// The shards that are confirmed to be away.
pub(super) type Absent = BTreeMap<String, Absence>;

/// Moves that may be carried out.
pub(super) struct Taken {
    pub(super) moves: Vec<Move>,
    pub(super) absent: Absent,
    /// The objects that wait.
    pub(super) wait: Vec<Target>,
}

/// The moves in groups: those that can be carried out at once, and then the others.
pub(super) fn groups(scope: &Scope, moves: Vec<Move>) -> Vec<Vec<Move>> {
    let (to_claim, free): (Vec<_>, Vec<_>) = moves.into_iter().partition(|one| is_to_be_claimed(scope, one));
    let claims = to_claim.chunks(AT_ONCE).map(<[Move]>::to_vec);
    [free].into_iter().chain(claims).filter(|group| !group.is_empty()).collect()
}

/// One group with the drain label on every object that is labelled for a shard which is not there.
///
/// That shard may come back at any moment, as a container does that restarts. Its controller is not shown what is drained:
/// so an object whose children have been sent ahead, or which gets its next shard just then, is nobody's meanwhile.
pub(super) async fn take(scope: &Scope, group: Vec<Move>, absent: &Absent) -> Taken {
    let (to_claim, moves): (Vec<_>, Vec<_>) = group.into_iter().partition(|one| is_to_be_claimed(scope, one));
    let any = !to_claim.is_empty();
    let mut taken = Taken { moves, absent: absent.clone(), wait: Vec::new() };
    let (claims, mut failures) = (stream::iter(to_claim).map(|one| claim(scope, one)), Failures::default());
    for outcome in claims.buffer_unordered(PARALLEL).collect::<Vec<_>>().await {
        match outcome {
            Ok(claimed) => taken.moves.extend(claimed),
            Err((target, error)) => {
                scope.failed(&target, &error);
                taken.wait.push(target);
                failures.add(error);
            }
        }
    }
    tell(scope, failures, "can't take objects from shards that are gone; trying again");
    if any {
        let Taken { moves, absent, wait } = confirmed(scope, taken.moves).await;
        taken = Taken { moves, absent, wait: taken.wait.into_iter().chain(wait).collect() };
    }
    for one in &taken.moves {
        if one.target.shard.as_ref().is_some_and(|shard| taken.absent.contains_key(shard)) {
            scope.claims.add(&scope.main.resource.id, &one.target);
        }
    }
    taken
}

fn is_to_be_claimed(scope: &Scope, one: &Move) -> bool {
    one.target.shard.is_some() && one.target.drain.is_none() && scope.shard_of(&one.target).is_none()
}

/// Returns the move of an object that is drained from now on; nothing when somebody else gave it a shard, or it is gone.
async fn claim(scope: &Scope, one: Move) -> Result<Option<Move>, (Target, kube::Error)> {
    let (labels, id) = (&scope.snapshot.labels, move_id(SystemTime::now()));
    let decide = |target: &Target| match (scope.decide(target, Covered::InRing), target.shard.as_deref()) {
        (Action::Assign { how: How::Takeover, .. }, Some(from)) if target.drain.is_none() => {
            Some(patch::drain(labels, &target.uid, from, &id))
        }
        _ => None,
    };
    let (uid, resource) = (one.target.uid.clone(), (&scope.client, &*scope.main.resource));
    // Remembered before it is written: that may be carried out when nobody waits for it any more.
    scope.claims.asking(&scope.main.resource.id, &one.target, &id);
    let outcome = write(&scope.writes, resource, labels, one.target.clone(), decide).await;
    let outcome = outcome.inspect_err(|error| {
        if is_refused(error) {
            scope.claims.end(&uid);
        }
    });
    let claimed = match outcome.map_err(|error| (one.target, error))? {
        Outcome::Written { on: target, .. } => Target { drain: Some(id), has_labels: true, ..*target },
        Outcome::Needless(target)
            if matches!(
                scope.decide(&target, Covered::InRing),
                Action::Assign { how: How::Takeover | How::Unassigned, .. }
            ) =>
        {
            scope.claims.seen(&target);
            *target
        }
        Outcome::Needless(target) => {
            scope.claims.seen(&target);
            scope.census.settled(&scope.main.resource.id, &uid);
            return Ok(None);
        }
        Outcome::Gone => {
            scope.census.settled(&scope.main.resource.id, &uid);
            scope.claims.end(&uid);
            scope.begun.end(&uid, true);
            return Ok(None);
        }
    };
    let from = claimed.shard.clone().or(one.from);
    Ok(Some(Move { target: claimed, to: one.to, from }))
}

/// The moves that may be carried out, the shards that are confirmed to be absent, and the objects that wait.
///
/// A move asks nobody, so the API server is asked whether the shard is really not there: once for each shard of the batch,
/// and again when its objects were claimed, as one that comes later finds them drained. If it is there after all, a new
/// snapshot is on its way, which ends this work, and has what was claimed given back, or let go of where it belongs elsewhere.
pub(super) async fn confirmed(scope: &Scope, moves: Vec<Move>) -> Taken {
    let ring = &scope.snapshot.ring;
    let leaves = |one: &Move| one.target.shard.clone().filter(|_| scope.shard_of(&one.target).is_none());
    let mut absent = Absent::new();
    for shard in moves.iter().filter_map(leaves).collect::<BTreeSet<_>>() {
        match scope.leases.confirm(&scope.client, ring, &shard).await {
            Ok(absence) => absent.extend(absence.map(|absence| (shard, absence))),
            Err(error) => {
                scope.faults.failed(&scope.main.resource.id, Task::Assign, &error);
                tracing::warn!(%ring, shard, error = %explain(&error), "can't read the Lease of a shard; its objects wait");
            }
        }
    }
    let may_go = |one: &Move| leaves(one).is_none_or(|from| absent.contains_key(&from));
    let (moves, wait): (Vec<_>, Vec<_>) = moves.into_iter().partition(may_go);
    let wait = wait.into_iter().map(|one| one.target).collect();
    Taken { moves, absent, wait }
}
