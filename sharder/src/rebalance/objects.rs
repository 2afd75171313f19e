//! The pass over the objects of a main resource.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use futures::{StreamExt, TryStreamExt, stream::FuturesUnordered};
use ringside_ring::{
    Grace,
    decide::{Action, Covered},
    patch,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Due,
    window::{Ended, Window},
};
use crate::{
    assign::{
        Scope,
        failures::Failures,
        write::{Outcome, is_refused, write},
    },
    move_id::{self, move_id},
    queue::limiter::Priority,
    survey::{Way, survey},
    target::Target,
};
use ringside_runtime::explain::code;

/// How many times as long as a drain the writes take that follow from it, besides those to children: the acknowledgement,
/// and the assignment or what the next shard writes, several of them at a time.
const FOLLOWING: u32 = 2;
/// The longest time for those: a drain may have waited for its seat, behind what comes first.
const LONGEST: Duration = Duration::from_secs(1);

/// Objects drained between two looks at all of them: memory must not grow with the objects.
pub(super) const DRAINS: usize = 2_000;

/// So many refusals, and the pass asks nobody any more: it could not tell all of them from what it has not asked for yet.
/// Somebody refuses everything then; what is left waits for the next pass, as what was refused does.
pub(super) const REFUSALS: usize = 2 * DRAINS;

/// Looks at every object, and drains those that belong to another shard, or to the ring no longer; returns the first
/// refusal. It drains when it has looked, as the API server does not wait for one who takes what it streams slowly.
///
/// Those without owner are left to the watch: it began with all of them, and the worker would meet each twice.
pub(super) async fn pass(scope: &Scope, due: &Due, way: Way) -> Result<Option<kube::Error>, kube::Error> {
    let (resource, start) = (&scope.main.resource.id, Instant::now());
    let (mut drained, mut refused, mut failures) = (0_usize, HashSet::new(), Failures::default());
    let mut window = None;
    let (seen, draining) = loop {
        let Look { seen, drains, draining, whole } = look(scope, due, way, &refused).await?;
        let window = window.get_or_insert_with(|| Window::new(drains.len(), whole));
        let (mut count, mut drains, mut under_way) = (0, drains.into_iter(), FuturesUnordered::new());
        loop {
            while window.has_room(under_way.len())
                && let Some(next) = drains.next()
            {
                under_way.push(paced(scope, due, next, (window.later(), window.pause())));
            }
            let Some(Asked { uid, grace, own, outcome }) = under_way.next().await else { break };
            let limiter = scope.writes.limiter();
            window.ended(Ended { grace, own, waited: limiter.take_longest_wait(), seats: limiter.limit() });
            match outcome {
                Ok(done) => count += usize::from(done),
                // It must not hold up the others.
                Err(error) if code(&error).is_some() => {
                    failures.add(error);
                    refused.insert(uid);
                }
                Err(error) => return Err(error),
            }
        }
        drained += count;
        if whole {
            break (seen, draining + count);
        }
    };
    let refused = failures.tell(&scope.snapshot.ring, resource, "can't drain objects");
    scope.drains.forget_unseen_since(resource, start, draining);
    let (ring, took) = (&scope.snapshot.ring, start.elapsed());
    tracing::info!(%ring, %resource, objects = seen, drained, ?took, "finished object scan");
    Ok(refused)
}

/// What was seen of the objects.
struct Look {
    seen: usize,
    /// What is to be drained, by its shard.
    drains: Vec<(String, Target, Why)>,
    /// What was drained before.
    draining: usize,
    /// Whether that is all.
    whole: bool,
}

/// Looks until it has found enough to drain, besides what was `refused`.
async fn look(scope: &Scope, due: &Due, way: Way, refused: &HashSet<String>) -> Result<Look, kube::Error> {
    let resource = &scope.main.resource.id;
    let may_ask = refused.len() < REFUSALS;
    let whereabouts_unknown = !scope.main.controlled.is_empty() && !scope.begun.knows(resource);
    let mut look = Look { seen: 0, drains: Vec::new(), draining: 0, whole: true };
    let objects = scope.main.resource.objects(&scope.watches, None);
    let mut targets = survey(objects, scope.snapshot.labels.clone(), way).await?;
    let mut count = scope.census.pass(resource);
    while let Some(target) = targets.try_next().await? {
        let why = if scope.selects(&target).await? { Why::Move } else { Why::Withdraw };
        if why == Why::Move {
            look.seen += 1;
            count.count(&scope.snapshot.members, target.shard.as_deref());
        }
        let next = scope.decide(&target, why.covered());
        if why == Why::Move && whereabouts_unknown && !matches!(next, Action::Keep | Action::Stay) {
            // It will be moved, and where a leader before may have sent its children by then is not known.
            scope.begun.scatter(resource, &target);
        }
        if why == Why::Move && matches!(next, Action::Keep | Action::Stay) && !scope.is_home(&target) {
            count.away(&target.uid);
        }
        if next == Action::Stay {
            due.hold_back();
        }
        match (&target.shard, &target.drain) {
            (Some(shard), None)
                if may_ask && matches!(next, Action::Drain { .. }) && !refused.contains(&target.uid) =>
            {
                look.drains.push((shard.clone(), target, why));
            }
            (Some(shard), Some(id)) if scope.shard_of(&target).is_some() => {
                scope.drains.remember(resource, &target, shard, id);
                look.draining += 1;
            }
            _ => {}
        }
        if look.drains.len() == DRAINS {
            look.whole = false;
            break;
        }
    }
    if look.whole {
        count.end();
    }
    Ok(look)
}

/// Why a shard is asked to let go of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It belongs to another shard.
    Move,
    /// Its namespace is not the ring's any more.
    Withdraw,
}

impl Why {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Move => "belongs to another shard",
            Self::Withdraw => "left the ring",
        }
    }

    /// Whether the shard is to be asked now.
    fn asks(self, scope: &Scope, target: &Target) -> bool {
        matches!(scope.decide(target, self.covered()), Action::Drain { .. })
    }

    const fn covered(self) -> Covered {
        match self {
            Self::Move => Covered::InRing,
            Self::Withdraw => Covered::Leaving,
        }
    }
}

/// Asks the shard to let go, so much `later`, and lets so much time pass after that as it takes the API server to carry out what follows: the
/// acknowledgement, the children, the assignment, and what the next shard writes; takes `pause` at least. Were all drained at
/// once, each would be without an owner until all others had one.
async fn paced(
    scope: &Scope,
    due: &Due,
    (shard, target, why): (String, Target, Why),
    (later, pause): (Duration, Duration),
) -> Asked {
    if !later.is_zero() {
        sleep(later).await;
    }
    let (uid, start) = (target.uid.clone(), Instant::now());
    let promised = scope.leases.grace(&scope.snapshot.ring, &shard);
    let outcome = drain(scope, due, (target, shard, why), promised).await;
    let children = u32::try_from(scope.main.controlled.len()).unwrap_or(u32::MAX);
    let took = start.elapsed();
    let own = took + (took * FOLLOWING.saturating_add(children)).min(LONGEST);
    sleep_until(start + own.max(pause)).await;
    Asked { uid, grace: promised.map_or(Duration::ZERO, Grace::duration), own, outcome }
}

/// What came of asking.
struct Asked {
    /// The object's.
    uid: String,
    /// What its shard promised.
    grace: Duration,
    /// How long the drain took, with what follows from it: that is thought to take as long as the drain's write, each.
    own: Duration,
    /// Whether that was needed.
    outcome: Result<bool, kube::Error>,
}

/// Asks the shard to let go; returns whether that was needed.
async fn drain(
    scope: &Scope,
    due: &Due,
    (target, shard, why): (Target, String, Why),
    promised: Option<Grace>,
) -> Result<bool, kube::Error> {
    let labels = &scope.snapshot.labels;
    let id = Grace::drain_value(&move_id(SystemTime::now()), promised);
    let decide = |target: &Target| {
        let from = target.shard.as_deref().filter(|_| why.asks(scope, target))?;
        Some(patch::drain(labels, &target.uid, from, &id))
    };
    // Remembered before it is asked: the acknowledgement may come at once.
    let (ring, resource) = (&scope.snapshot.ring, &scope.main.resource.id);
    let asking = scope.drains.asking(resource, &target, &shard, &id);
    let (namespace, name, uid) = (target.namespace.clone(), target.name.clone(), target.uid.clone());
    let writes = scope.writes.with_priority(Priority::Rebalance);
    match write(&writes, (&scope.client, &scope.main.resource), labels, target, decide).await {
        Ok(Outcome::Written { on: target, .. }) => {
            asking.answered();
            scope.metrics.drained(ring, resource);
            let (id, reason) = (move_id::short(&id), why.as_str());
            tracing::info!(%ring, %resource, namespace, name, uid, from = target.shard, id, reason, "drained object");
            Ok(true)
        }
        Ok(outcome) => {
            asking.answered();
            asked_to_no_avail(scope, &uid, &outcome);
            // The shard that it belongs to may be late since it was looked at.
            if let Outcome::Needless(target) = outcome
                && scope.decide(&target, why.covered()) == Action::Stay
            {
                due.hold_back();
            }
            Ok(false)
        }
        Err(error) => {
            // One that may be carried out has its deadline.
            if is_refused(&error) {
                scope.drains.forget(&uid);
            }
            Err(error)
        }
    }
}

/// Nobody is asked any more to let go of the object, unless somebody is already: by a write of ours that had no answer, or by
/// the leader before.
fn asked_to_no_avail(scope: &Scope, uid: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Needless(now) if let (Some(shard), Some(id)) = (&now.shard, &now.drain) => {
            scope.drains.remember(&scope.main.resource.id, now, shard, id);
        }
        _ => scope.drains.forget(uid),
    }
}
