//! One batch of unowned objects: children first, then their owners.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use futures::{StreamExt, stream};
use ringside_ring::{
    ShardName,
    cluster_ring::GroupResource,
    decide::{Action, Covered, How},
};
use tokio::time::{Instant, timeout};

use super::{
    PARALLEL, Scope,
    children::{Family, move_family},
    failures::Failures,
    foresight::families_of,
    overdue,
    plan::{Move, by_left_shard, moves},
    revisit::read,
    withdraw::withdraw,
    write::{Outcome, assign, is_undone, write},
};
use crate::{
    faults::Task,
    leases::{Hold, hold::has_ended},
    move_id,
    queue::limiter::Priority,
    rebalance::Pass,
    target::Target,
};
use ringside_runtime::explain::explain;

/// What came of an object.
#[derive(Debug, Default)]
struct Given {
    /// Its uid, when it was written to, and its version by that.
    written: Option<(String, String)>,
    /// The same, when it was read and had an owner already: perhaps by a write of ours that had no answer.
    owned: Option<(String, String)>,
    /// The object as it was, when it was taken from a shard that did not let go.
    taken: Option<Box<Target>>,
    /// The object, when its children may not be where it is.
    apart: Option<Target>,
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// What must be tried again.
    pub(super) again: Vec<Target>,
    /// What has an owner by this, or was read, by uid, with its version: whatever was seen of it before is old.
    pub(super) given: HashMap<String, String>,
}

/// Gives every object of the batch that needs one an owner; returns those that must be tried again.
#[cfg(test)]
pub(crate) async fn process(scope: &Scope, batch: Vec<Target>) -> Vec<Target> {
    carry_out(scope, batch).await.again
}

/// Gives every object of the batch that needs one an owner, and brings children back to those that stay with theirs.
pub(super) async fn carry_out(scope: &Scope, batch: Vec<Target>) -> Done {
    let (batch, again) = selected(scope, batch).await;
    let stays = |target: &Target| scope.shard_of(target).filter(|_| scope.begun.has(&target.uid));
    let moves = moves(batch, |target| scope.decide(target, Covered::InRing), |uid| scope.drains.previous(uid), stays);
    let mut done = Done { again, given: HashMap::new() };
    // Nothing waits for the Lease of another shard.
    let groups = by_left_shard(moves, |target| scope.shard_of(target).is_some());
    let groups = groups.into_iter().map(|(left, moves)| async move {
        match left {
            Some(shard) => take_over(scope, &shard, moves).await,
            None => carry_all(scope, moves).await,
        }
    });
    let mut groups = stream::iter(groups).buffer_unordered(PARALLEL);
    while let Some(Done { again, given }) = groups.next().await {
        done.again.extend(again);
        done.given.extend(given);
    }
    done
}

/// Takes what a shard that is gone has left, while the sharder holds its Lease ([`crate::leases::hold`]).
async fn take_over(scope: &Scope, shard: &str, moves: Vec<Move>) -> Done {
    let Some(hold) = scope.leases.hold(&scope.snapshot.ring, shard).await else {
        return Done { again: moves.into_iter().map(|one| one.target).collect(), given: HashMap::new() };
    };
    let scope = Scope { writes: scope.writes.with_priority(Priority::Takeover).under(hold), ..scope.clone() };
    carry_all(&scope, moves).await
}

/// The same for objects of which something failed, as they are now: a write without an answer may have given one its owner,
/// and the children follow who works on it.
///
/// A read is waited for no longer than `patience`: one that hangs may do so until the connection is given up, and children of
/// others may be apart from their owners meanwhile.
pub(super) async fn carry_out_anew(scope: &Scope, batch: Vec<Target>, patience: Duration) -> Done {
    let (mut seen, mut unread, mut failures) = (Vec::with_capacity(batch.len()), Vec::new(), Failures::default());
    let mut versions = HashMap::new();
    let reads = stream::iter(batch).map(|target| async {
        let before = target.shard.clone().or_else(|| scope.drains.previous(&target.uid));
        (target.uid.clone(), before, read_within(patience, scope, target).await)
    });
    let mut reads = reads.buffer_unordered(PARALLEL);
    while let Some((uid, before, outcome)) = reads.next().await {
        match outcome {
            Ok(Some(target)) => {
                if matches!(scope.decide(&target, Covered::InRing), Action::Keep | Action::Stay) {
                    settled(scope, &uid);
                }
                if before != target.shard && scope.shard_of(&target).is_some() {
                    look_again(scope, before.as_deref());
                }
                versions.insert(uid, target.resource_version.clone());
                seen.push(target);
            }
            Ok(None) => settled(scope, &uid),
            Err((target, error)) => {
                unread.push(target);
                failures.add(error);
            }
        }
    }
    tell(scope, failures, "can't read objects of which something failed; trying again");
    let Done { mut again, given } = carry_out(scope, seen).await;
    again.extend(unread);
    versions.extend(given);
    Done { again, given: versions }
}

async fn read_within(
    patience: Duration,
    scope: &Scope,
    target: Target,
) -> Result<Option<Target>, (Target, kube::Error)> {
    match timeout(patience, read(scope, target.clone())).await {
        Ok(outcome) => outcome,
        Err(elapsed) => Err((target, kube::Error::Service(elapsed.into()))),
    }
}

/// Somebody works on the object, or it is gone.
fn settled(scope: &Scope, uid: &str) {
    scope.census.settled(&scope.main.resource.id, uid);
    scope.drains.forget(uid);
}

/// The families of all these, by the owner's uid. Where they can't be listed there is nothing, and that is told.
async fn found(scope: &Scope, moves: &[Move]) -> Option<HashMap<String, Family>> {
    match families_of(scope, moves).await {
        Ok(families) => Some(families),
        Err(error) => {
            let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
            scope.faults.failed(resource, Task::Assign, &error);
            let error = explain(&error);
            tracing::warn!(%ring, %resource, objects = moves.len(), error, "can't list children; their owners wait");
            None
        }
    }
}

/// Carries out the moves. Who has the children is looked for by now: a shard that is gone makes no more of them.
async fn carry_all(scope: &Scope, mut moves: Vec<Move>) -> Done {
    begin(scope, &mut moves);
    let Some(mut families) = found(scope, &moves).await else {
        return Done { again: moves.into_iter().map(|one| one.target).collect(), given: HashMap::new() };
    };
    // Nobody waits for another's children.
    let writes = moves.into_iter().map(|one| {
        let family = families.remove(&one.target.uid).unwrap_or_default();
        carry(scope, one, family)
    });
    let mut outcomes: Vec<_> = stream::iter(writes).buffer_unordered(PARALLEL).collect().await;
    let given = outcomes.iter_mut().filter_map(|outcome| outcome.as_mut().ok());
    let taken: Vec<_> = given.filter_map(|given| given.taken.take()).map(|taken| *taken).collect();
    overdue::taken(scope, &taken);
    report(scope, outcomes)
}

/// An object that must be tried again, and why.
struct Failed {
    target: Target,
    /// The child that stays behind, if it is one.
    child: Option<GroupResource>,
    error: kube::Error,
}

/// Brings the family to where its owner is going, and then the owner.
async fn carry(scope: &Scope, one: Move, family: Family) -> Result<Given, Failed> {
    let unfinished = match scope.writes.hold().filter(|_| !family.is_empty()).map(Hold::begin).transpose() {
        Ok(unfinished) => unfinished,
        Err(error) => return Err(Failed { target: one.target, child: None, error }),
    };
    if let Err((child, error)) = move_family(scope, family, &one.to).await {
        // That write or another one may still be carried out, when the owner has stayed where it was.
        scope.looks.may_be_late(&scope.main.resource.id, one.to.as_str());
        if is_undone(&error) {
            // It may have lost its label, and then nobody would find it by that.
            scope.begun.scatter(&scope.main.resource.id, &one.target);
        }
        return Err(Failed { target: one.target, child: Some(child), error });
    }
    let given = give(scope, one).await.map_err(|(target, error)| Failed { target, child: None, error })?;
    if let Some(unfinished) = unfinished {
        unfinished.end();
    }
    Ok(given)
}

/// The objects in namespaces of the ring, and those where that can't be told at the moment. The others lose their labels.
async fn selected(scope: &Scope, batch: Vec<Target>) -> (Vec<Target>, Vec<Target>) {
    let (mut selected, mut others, mut unknown) = (Vec::with_capacity(batch.len()), Vec::new(), Vec::new());
    let mut failures = Failures::default();
    for target in batch {
        match scope.selects(&target).await {
            Ok(true) => {
                if scope.shard_of(&target).is_none() {
                    scope.census.waits(&scope.main.resource.id, &target.uid);
                }
                selected.push(target);
            }
            Ok(false) => {
                scope.census.settled(&scope.main.resource.id, &target.uid);
                others.push(target);
            }
            Err(error) => {
                failures.add(error);
                unknown.push(target);
            }
        }
    }
    tell(scope, failures, "can't read the namespaces of objects; they wait");
    let (again, failures) = withdraw(scope, others).await;
    tell(scope, failures, "can't take labels off objects that left the ring; trying again");
    unknown.extend(again);
    (selected, unknown)
}

/// From here on the children may have been sent ahead. Where they were sent elsewhere before, by whomever, nobody knows who
/// has them.
fn begin(scope: &Scope, moves: &mut [Move]) {
    if scope.main.controlled.is_empty() {
        return;
    }
    let resource = &scope.main.resource.id;
    for one in moves {
        if !scope.begun.begin(resource, &one.target, &one.to) || !scope.begun.knows(resource) {
            one.from = None;
        }
    }
}

/// Returns what came of the object, or the object when that failed.
async fn give(scope: &Scope, one: Move) -> Result<Given, (Target, kube::Error)> {
    let next = scope.decide(&one.target, Covered::InRing);
    let forced = matches!(next, Action::Assign { how: How::Forced, .. });
    if scope.shard_of(&one.target).is_some() && !matches!(next, Action::Assign { .. }) {
        return stay(scope, one).await;
    }
    let Move { target, to, from } = one;
    let labels = &scope.snapshot.labels;
    // Where its children are by now: a shard that has become late since is not passed any more.
    let decide = |target: &Target| match scope.decide(target, Covered::InRing) {
        Action::Assign { how: How::Unassigned | How::Forced, .. } => Some(assign(labels, target, &to)),
        // One that was labelled for another shard meanwhile comes again by the watch.
        Action::Assign { how: How::Takeover, .. } if scope.may_take(target) => Some(assign(labels, target, &to)),
        _ => None,
    };
    let resource = &scope.main.resource.id;
    let unowned_since = scope.census.unowned_since(resource, &target.uid);
    let outcome =
        match write(&scope.writes, (&scope.client, &scope.main.resource), labels, target.clone(), decide).await {
            Ok(outcome) => outcome,
            Err(error) => return Err((target, error)),
        };
    let left = target.shard.clone().or_else(|| scope.drains.previous(&target.uid));
    if matches!(outcome, Outcome::Written { .. }) {
        count(scope, (&target, unowned_since), left.as_deref(), &to);
        look_again(scope, left.as_deref());
    } else {
        scope.census.settled(resource, &target.uid);
    }
    let id = target.drain.clone().or_else(|| scope.drains.id(&target.uid));
    scope.drains.forget(&target.uid);
    match outcome {
        Outcome::Written { on: target, version } => {
            let taken = (forced && target.drain.is_some()).then(|| target.clone());
            count_kind(scope, &target, &to, taken.is_some());
            log_move(scope, &target, (left.as_deref(), &to), (id.as_deref(), forced));
            let written = Some((target.uid.clone(), version));
            let owner = Target { shard: Some(to.to_string()), drain: None, ..*target };
            look_for_home(scope, &owner);
            let apart = !scope.begun.end(&owner.uid, from.is_none());
            Ok(Given { written, taken, apart: apart.then_some(owner), ..Given::default() })
        }
        Outcome::Gone => {
            scope.begun.end(&target.uid, true);
            Ok(Given::default())
        }
        Outcome::Needless(now) => {
            if now.shard.as_deref() == Some(to.as_str()) && target.shard != now.shard {
                look_again(scope, left.as_deref());
            }
            look_for_home(scope, &now);
            Ok(owned(scope, *now, &to, from.is_none()))
        }
    }
}

/// Has all objects looked at again where this one belongs to another shard by now. The shards may have changed while it was
/// written, and the pass for that change may have looked before.
fn look_for_home(scope: &Scope, owner: &Target) {
    if matches!(scope.decide(owner, Covered::InRing), Action::Drain { .. }) {
        scope.due.mark([scope.main.resource.id.clone()], &[Pass::Objects]);
    }
}

/// Somebody else gave it a shard, or a write of ours did that had no answer; one that is not available is the watch's to tell.
fn owned(scope: &Scope, target: Target, to: &ShardName, everywhere: bool) -> Given {
    let with = scope.shard_of(&target);
    let is_apart =
        |with: ShardName| scope.begun.has(&target.uid) && (with != *to || !scope.begun.end(&target.uid, everywhere));
    let apart = with.is_some_and(is_apart);
    let owned = Some((target.uid.clone(), target.resource_version.clone()));
    Given { owned, apart: apart.then_some(target), ..Given::default() }
}

/// What was made by `left` right before the object went to another shard, or where nobody is known to have had it, can be
/// shown later than its owner's children were looked for.
fn look_again(scope: &Scope, left: Option<&str>) {
    let resource = &scope.main.resource.id;
    match left {
        _ if scope.main.controlled.is_empty() => {}
        Some(left) => scope.looks.moved(resource, left),
        None => scope.looks.was_unlabelled(resource),
    }
}

/// The object, which `left` had, and which was seen without owner at `since`, was given to `to`. What is not known to have
/// waited is not measured.
fn count(scope: &Scope, (target, since): (&Target, Option<Instant>), left: Option<&str>, to: &ShardName) {
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    scope.census.given(resource, (&target.uid, since), (target.shard.as_deref(), left), to.as_str());
    let waited = since.map(|since| since.elapsed());
    let drained = scope.drains.began(&target.uid).and_then(|began| began.elapsed().ok());
    match (left, drained.or(waited), waited) {
        (Some(_), Some(took), _) => scope.metrics.move_took(ring, took),
        (None, _, Some(waited)) => scope.metrics.assignment_took(ring, waited),
        _ => {}
    }
}

/// Counts the write by what the object was before it.
fn count_kind(scope: &Scope, before: &Target, to: &ShardName, is_forced: bool) {
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    match before.shard.as_deref() {
        _ if is_forced => scope.metrics.forced(ring, resource),
        None => scope.metrics.assigned(ring, resource),
        Some(from) if from != to.as_str() => scope.metrics.moved(ring, resource),
        // It was drained, and is its own again.
        Some(_) => {}
    }
}

/// First assignments are counted in one line for many; a move has a line of its own.
fn log_move(
    scope: &Scope,
    target: &Target,
    (from, to): (Option<&str>, &ShardName),
    (id, forced): (Option<&str>, bool),
) {
    let Some(from) = from.filter(|from| *from != to.as_str()) else { return };
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let reason = match &target.shard {
        _ if forced => "drain deadline exceeded",
        Some(_) => "shard is gone",
        None => "released",
    };
    let Target { namespace, name, uid, .. } = target;
    let id = id.map(move_id::short);
    tracing::info!(%ring, %resource, namespace, name, uid, from, %to, id, reason, "moved object");
}

/// The children have come to where the owner was seen; it may have gone on meanwhile.
async fn stay(scope: &Scope, one: Move) -> Result<Given, (Target, kube::Error)> {
    let Some(owner) = read(scope, one.target).await? else { return Ok(Given::default()) };
    let stayed = scope.shard_of(&owner).is_some_and(|shard| shard == one.to);
    let apart = !(stayed && scope.begun.end(&owner.uid, one.from.is_none()));
    Ok(Given { apart: apart.then_some(owner), ..Given::default() })
}

fn report(scope: &Scope, outcomes: Vec<Result<Given, Failed>>) -> Done {
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let (mut done, mut failures) = (Done::default(), Failures::default());
    let mut children: BTreeMap<GroupResource, Failures> = BTreeMap::new();
    let mut assigned = 0;
    for outcome in outcomes {
        match outcome {
            Ok(Given { written, owned, apart, .. }) => {
                assigned += usize::from(written.is_some());
                done.given.extend(written.into_iter().chain(owned));
                done.again.extend(apart);
            }
            // It was not sent, as the hold on its shard's Lease has ended.
            Err(Failed { target, error, .. }) if has_ended(&error) => done.again.push(target),
            Err(Failed { target, child, error }) => {
                match &child {
                    None => scope.failed(&target, &error),
                    Some(child) => scope.carried.retries(resource).child_failed(&target, child, &error),
                }
                done.again.push(target);
                child.map_or(&mut failures, |child| children.entry(child).or_default()).add(error);
            }
        }
    }
    if assigned > 0 {
        tracing::info!(%ring, %resource, assigned, "assigned objects");
    }
    for (child, failures) in children {
        if let Some(first) = failures.tell(ring, &child, "can't move children; their owners wait for them") {
            scope.faults.failed(resource, Task::Assign, &first);
        }
    }
    tell(scope, failures, "can't assign objects; trying again");
    done
}

pub(super) fn tell(scope: &Scope, failures: Failures, what: &'static str) {
    let resource = &scope.main.resource.id;
    if let Some(first) = failures.tell(&scope.snapshot.ring, resource, what) {
        scope.faults.failed(resource, Task::Assign, &first);
    }
}

#[cfg(test)]
mod tests;
