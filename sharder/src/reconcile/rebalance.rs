//! Asks shards to release what belongs elsewhere, as many objects at once as moves may be in progress.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use futures::{StreamExt, stream::FuturesUnordered};
use ringside_ring::{
    Grace,
    decide::{Action, Covered},
    patch,
};
use tokio::time::{Instant, sleep};

use super::{
    family::{CANT_DRAIN, Failed},
    ring::{Ring, Seen, What},
};
use crate::{
    api_error::{is_certainly_refused, is_refused},
    index::{ResourceId, Slot},
    move_id::{self, move_id},
    queue::{
        limiter::Priority,
        moves::Wanted,
        work::{Outcome, Work},
    },
    resources::Resource,
    snapshot::Main,
    target::Target,
    write::{Outcome as Written, write},
};

/// How soon it is looked again whether lists have ended.
pub(super) const INCOMPLETE: Duration = Duration::from_millis(100);

/// How soon an object is looked at again whose move is held back.
const HELD_BACK: Duration = Duration::from_secs(10);

/// An object that is about to be drained.
struct Ask {
    work: Work,
    slot: Slot,
    main: Main,
    covered: Covered,
    target: Target,
    shard: String,
    promised: Option<Grace>,
    wanted: Wanted,
}

/// Asks for one after the other, when it has a place.
pub(super) async fn rebalance(ring: &Ring) -> Infallible {
    let mut unlisted: FuturesUnordered<_> = ring.judge.unlisted().map(|id| until_listed(ring, id)).collect();
    let (mut next, mut under_way) = (None::<Ask>, FuturesUnordered::new());
    loop {
        let written = under_way.len();
        let wanted = next.as_ref().map(|next| next.wanted.clone());
        let place = async {
            ring.moves.place(&ring.judge.drains, &wanted?, written).await;
            Some(())
        };
        tokio::select! {
            // What was begun counts as a move before there is a place for the next.
            biased;
            Some(()) = under_way.next() => {}
            Some(id) = unlisted.next() => begin(ring, id),
            Some(()) = place => {
                // While it waited others may have failed.
                let ask = next.take().and_then(|ask| unless_held_back(ring, ask, true));
                under_way.extend(ask.map(|ask| drain(ring, ask)));
            }
            work = ring.judge.next_rebalance(), if next.is_none() => {
                next = look(ring, work).and_then(|ask| unless_held_back(ring, ask, false));
                ring.moves.begin(&ring.judge.drains);
            }
        }
    }
}

/// Returns the resource once its families are known as a whole: what is not known yet must not be drained too early.
async fn until_listed(ring: &Ring, id: ResourceId) -> ResourceId {
    while !ring.is_listed(id) {
        sleep(INCOMPLETE).await;
    }
    id
}

/// Begins to drain the families of a resource. Another one that can't be listed holds up none of them.
fn begin(ring: &Ring, id: ResourceId) {
    let resource = &ring.resource(id).id;
    // What ended while nothing was watched is over.
    ring.judge.drains.keep(|of, uid| of != resource || ring.is_moving(of, uid));
    ring.judge.listed(id);
    ring.sort(|of| of == id);
}

/// What is to be drained still; what is not goes where it belongs by now.
fn look(ring: &Ring, work: Work) -> Option<Ask> {
    let slot = work.key();
    let Some(Seen {
        resource,
        target: Some(target),
        what: What::Root { main, covered, action: Action::Drain { from } },
        ..
    }) = ring.see(slot)
    else {
        work.done(Outcome::Ok);
        return None;
    };
    let promised = ring.tools.leases.grace(&ring.judge.view().ring, from.as_str());
    let members = &ring.judge.view().members;
    let works = !members.is_relieved(from.as_str()) || members.is_leaving(from.as_str());
    let (children, objects) = ring.index.read(|all| {
        let owned = all.by_shard(resource).map(|(_, of)| usize::try_from(of.owned).unwrap_or(usize::MAX));
        (all.followers(slot).len(), owned.sum())
    });
    let grace = promised.map_or(Duration::ZERO, Grace::duration);
    let worked_on_by = (covered == Covered::InRing && works).then(|| from.to_string());
    let wanted = Wanted { resource: main.resource.id.clone(), grace, children, objects, worked_on_by };
    Some(Ask { work, slot, main, covered, target, shard: from.to_string(), promised, wanted })
}

/// Puts off a voluntary move that may fail at what others failed at, or that failed a while ago itself. `begins`: the drain is asked
/// for now.
///
/// Moves that are needed are never held back. No shard works on their objects, or none is to.
fn unless_held_back(ring: &Ring, ask: Ask, begins: bool) -> Option<Ask> {
    if ask.wanted.worked_on_by.is_none() {
        return Some(ask);
    }
    let (drains, failed) = (&ring.judge.drains, &ring.judge.failed_moves);
    let may_begin = || {
        let causes = if failed.has_failed() { ring.causes(ask.slot, &ask.shard) } else { Vec::new() };
        !ask.wanted.is_held_back(drains) && if begins { failed.begin(&causes) } else { failed.may_begin(&causes) }
    };
    let rest = failed.rest(&ask.target.uid);
    if rest.is_none() && may_begin() {
        return Some(ask);
    }
    // What was mended meanwhile ends the rest.
    let wait = rest.map_or(HELD_BACK, |rest| rest.min(HELD_BACK));
    ring.judge.rebalance_after(ask.slot, wait);
    ask.work.done(Outcome::Ok);
    None
}

async fn drain(ring: &Ring, ask: Ask) {
    let Ask { work, slot, main, covered, target, shard, promised, .. } = ask;
    let of = target.clone();
    let reason = if covered == Covered::Leaving { "left the ring" } else { "belongs to another shard" };
    let asks = |now: &Target| matches!(ring.next_of(&main, now, covered), Action::Drain { .. });
    let outcome = match ask_for(ring, (&main.resource, reason), target, (&shard, promised), asks).await {
        Ok(()) => {
            ring.told.faults.worked(slot.0);
            Outcome::Ok
        }
        Err(error) => {
            let failed = Failed { error, child: None, what: CANT_DRAIN };
            ring.told.failed(&main.resource.id, (slot, &of), failed)
        }
    };
    work.done(outcome);
}

/// Asks a shard to release an object, if it still `asks` for that when it is written to.
pub(super) async fn ask_for(
    ring: &Ring,
    (kind, reason): (&Resource, &str),
    target: Target,
    (shard, promised): (&str, Option<Grace>),
    asks: impl Fn(&Target) -> bool,
) -> Result<(), kube::Error> {
    let id = Grace::drain_value(&move_id(SystemTime::now()), promised);
    let decide = |now: &Target| {
        let from = now.shard.as_deref().filter(|_| asks(now))?;
        Some(patch::drain(&ring.labels, &now.uid, from, &id))
    };
    // Remembered before it is asked: the acknowledgement may come at once.
    let (of, resource, drains) = (&ring.judge.view().ring, &kind.id, &ring.judge.drains);
    let asking = drains.asking(resource, &target, shard, &id);
    let (namespace, name, uid) = (target.namespace.clone(), target.name.clone(), target.uid.clone());
    let (writes, start) = (ring.writes.with_priority(Priority::Rebalance), Instant::now());
    match write(&writes, (ring.client(), kind), &ring.labels, target, decide).await {
        Ok(Written::Written { on }) => {
            asking.answered();
            ring.moves.written(resource, start.elapsed());
            ring.tools.metrics.moves_limit(of, ring.moves.bound());
            ring.tools.metrics.drained(of, resource);
            let id = move_id::short(&id);
            tracing::info!(ring = %of, %resource, namespace, name, uid, from = on.shard, id, reason, "drained object");
            Ok(())
        }
        Ok(Written::Needless(now)) => {
            asking.answered();
            match (&now.shard, &now.drain) {
                // By a write of ours that had no answer, or by the leader before.
                (Some(shard), Some(id)) => drains.remember(resource, &now, shard, id),
                _ => drains.forget(&uid),
            }
            Ok(())
        }
        Ok(Written::Gone) => {
            asking.answered();
            drains.forget(&uid);
            Ok(())
        }
        Err(error) => {
            // One that may be carried out has its deadline.
            if is_refused(&error) || is_certainly_refused(&error) {
                drains.refused(&uid);
            }
            Err(error)
        }
    }
}
