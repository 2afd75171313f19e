//! One family: what is next for its root is carried out, the children first.

use std::time::Duration;

use ringside_ring::{
    ShardName,
    cluster_ring::GroupResource,
    decide::{Action, Covered, How, Waiting},
    patch,
};

use super::{
    children::{self, Brought, Mode, Refused},
    judge::OVERDUE,
    ring::{Ring, Seen, What},
    strays,
    told::{Before, Moved},
};
use crate::{
    api_error::{has_ended, is_refused},
    failed_moves::Part,
    index::{Mark, ResourceId, Selected, Slot},
    queue::{
        limiter::Priority,
        work::{Outcome, Work},
    },
    release::release_or_drain,
    snapshot::Main,
    target::Target,
    write::{Outcome as Written, write},
    writes::Writes,
};

const CANT_READ: &str = "can't read objects; trying again";
pub(super) const CANT_DRAIN: &str = "can't drain objects; trying again";

/// How soon an object is tried again whose children other shards have to release, or whose namespace was not seen yet.
const HELD: Duration = Duration::from_secs(1);

/// A write that failed.
pub(super) struct Failed {
    pub(super) error: kube::Error,
    /// The resource of the child that it was to, if it was one.
    pub(super) child: Option<Box<GroupResource>>,
    /// What is logged.
    pub(super) what: &'static str,
}

impl Failed {
    pub(super) fn of_root(error: kube::Error) -> Self {
        Self { error, child: None, what: "can't assign objects; trying again" }
    }

    pub(super) fn of_child(resource: &GroupResource, error: kube::Error) -> Self {
        Self { error, child: Some(Box::new(resource.clone())), what: "can't move children; trying again" }
    }
}

/// A root that is worked on.
pub(super) struct Root {
    pub(super) resource: ResourceId,
    pub(super) slot: Slot,
    pub(super) main: Main,
    pub(super) covered: Covered,
    pub(super) target: Target,
}

/// Works on an object of a resource to the end.
pub(super) async fn work_on(ring: &Ring, resource: ResourceId, work: Work) {
    let slot = work.key();
    // The slot may be that of another resource's object by now, which is in that one's queue.
    let seen = ring.see(slot).filter(|seen| seen.resource == resource);
    let Some(seen) = seen else {
        // Gone, or a child by now.
        ring.told.faults.worked(slot.0);
        return work.done(Outcome::Ok);
    };
    let outcome = match ring.is_unsure(slot) {
        false => reconcile(ring, slot, seen, work.priority()).await,
        true => match read(ring, slot, &seen).await {
            Err(outcome) => outcome,
            Ok(_) => {
                ring.is_sure(slot);
                match ring.see(slot).filter(|seen| seen.resource == resource) {
                    Some(seen) => reconcile(ring, slot, seen, work.priority()).await,
                    None => Outcome::Ok,
                }
            }
        },
    };
    work.done(outcome);
}

/// The object as it is now, or when it is tried again.
async fn read(ring: &Ring, slot: Slot, seen: &Seen) -> Result<Option<Target>, Outcome> {
    let (resource, known) = (seen.resource, &seen.known);
    let found = ring.read((resource, slot), (known.namespace.as_deref(), &known.name)).await;
    found.map_err(|error| {
        let failed = Failed { error, child: None, what: CANT_READ };
        ring.told.failed(&ring.resource(resource).id, (slot, known), failed)
    })
}

async fn reconcile(ring: &Ring, slot: Slot, mut seen: Seen, priority: Priority) -> Outcome {
    if seen.selected == Selected::Unknown {
        match ring.tools.namespaces.is_selected(&ring.judge.view().namespaces, &seen.selected_by) {
            // The watch on namespaces may be a moment behind.
            None => ring.judge.queue(seen.resource).add_after(slot, Priority::Between, HELD),
            selected => ring.index.select(&seen.selected_by, selected),
        }
        return Outcome::Ok;
    }
    let target = match seen.target.take() {
        Some(target) => Some(target),
        None => match read(ring, slot, &seen).await {
            Ok(found) => found,
            Err(outcome) => return outcome,
        },
    };
    let Some(target) = target else { return Outcome::Ok };
    let (of, resource) = (target.clone(), seen.resource);
    let done = match seen.what {
        What::Held { main } => {
            if target.drain.is_some() {
                ring.told.overdue(&ring.judge.drains, &main, &target);
                ring.judge.queue(resource).add_after(slot, Priority::Repair, OVERDUE);
            }
            Ok(())
        }
        What::Stray { is_lone } => strays::release(ring, (resource, slot), target, is_lone).await,
        What::Root { main, covered, action } => {
            let root = Root { resource, slot, main, covered, target };
            carry_out(ring, root, action, priority).await
        }
    };
    match done {
        Ok(()) => {
            ring.told.faults.worked(slot.0);
            Outcome::Ok
        }
        Err(failed) => {
            if failed.child.is_none() && !is_refused(&failed.error) {
                ring.unsure(slot);
            }
            ring.told.failed(&ring.resource(resource).id, (slot, &of), failed)
        }
    }
}

async fn carry_out(ring: &Ring, root: Root, action: Action<ShardName>, priority: Priority) -> Result<(), Failed> {
    let writes = ring.writes.with_priority(priority);
    match action {
        Action::Keep | Action::Stay | Action::NoShard | Action::Wait(Waiting::Distribution) => Ok(()),
        Action::Wait(Waiting::Acknowledgement) => {
            wait(ring, &root, &root.target);
            Ok(())
        }
        Action::Drain { .. } => {
            ring.judge.rebalance((root.resource, root.slot));
            Ok(())
        }
        Action::TakeBack => take_back(ring, &writes, &root).await,
        Action::Overdue => {
            ring.told.overdue(&ring.judge.drains, &root.main, &root.target);
            ring.judge.queue(root.resource).add_after(root.slot, Priority::Repair, OVERDUE);
            Ok(())
        }
        Action::Gather { to } => children::gather(ring, &writes, &root, &to).await,
        Action::Assign { to, how } => {
            // Before a hold is used: a list of all objects may take long.
            children::until_listed(ring, &root).await;
            let writes = match how {
                How::Takeover => match ring.takeovers.hold(ring, &root) {
                    Some(hold) => writes.under(hold),
                    None => return Ok(()),
                },
                _ => writes,
            };
            assign(ring, &writes, root, to, how).await
        }
        Action::Release => release(ring, &writes, root).await,
    }
}

/// Brings the children to where the root is going, and then the root.
///
/// Where children are refused, the root goes to the shard that has them, if that is there ([`receiver_beside`]): the
/// family stays together, and is worked on. Else it goes on without them: no shard works on what a gone shard has.
///
/// [`receiver_beside`]: ringside_ring::decide::View::receiver_beside
async fn assign(ring: &Ring, writes: &Writes, root: Root, to: ShardName, how: How) -> Result<(), Failed> {
    let began = Mark::now();
    let before = Before::of(ring, root.slot, &root.target);
    let hold = writes.hold().filter(|_| !root.main.controlled.is_empty());
    if let Err(error) = hold.map_or(Ok(()), |hold| hold.begin(&root.target.uid)) {
        return ended(ring, &root, error);
    }
    let meant = to.clone();
    let (to, refused) = match bring(ring, writes, &root, (to, before.left.as_deref()), began).await {
        Err(failed) if has_ended(&failed.error) => return ended(ring, &root, failed.error),
        brought => match brought? {
            Some(brought) => brought,
            None => {
                ring.judge.queue(root.resource).add_after(root.slot, Priority::Between, HELD);
                return Ok(());
            }
        },
    };
    if to != meant {
        ring.told.gives_back(ring, &root, &to, &refused);
    }
    if how == How::Forced {
        ring.judge.drains.given_up(&root.target.uid);
    }
    let outcome = match give(ring, writes, &root, &to).await {
        Err(error) if has_ended(&error) => return ended(ring, &root, error),
        outcome => outcome.map_err(Failed::of_root)?,
    };
    if let Some(hold) = hold {
        hold.end(&root.target.uid);
    }
    if let Written::Needless(now) = &outcome {
        wait(ring, &root, now);
    }
    if let Written::Written { on } = outcome {
        if before.left.is_none() {
            ring.first_shards.send_replace(());
        }
        if to == meant {
            ring.told.ended(ring, &root, &before, how, &refused);
        }
        let behind = refused.iter().filter(|refused| refused.child.shard.as_deref() != Some(to.as_str()));
        ring.told.left_behind(ring, &root, behind);
        ring.told.moved(ring, &Moved { main: &root.main, target: &on, to: &to, how, before });
        ring.judge.drains.forget(&on.uid);
    }
    Ok(())
}

/// Brings the children of a root that is going `to` a shard. Returns the shard that the root goes to, and the children that stay
/// behind; nothing where others have to release some first.
async fn bring(
    ring: &Ring,
    writes: &Writes,
    root: &Root,
    (to, left): (ShardName, Option<&str>),
    began: Mark,
) -> Result<Option<(ShardName, Vec<Refused>)>, Failed> {
    let refused = match children::bring_all(ring, writes, root, (&to, left), (began, Mode::Stops)).await? {
        Brought::Held => return Ok(None),
        Brought::Whole(_) => return Ok(Some((to, Vec::new()))),
        Brought::Broken(refused) => refused,
    };
    let to = ring.receiver_beside(root, to, left, &refused);
    let behind = refused.iter().map(|refused| refused.child.uid.clone()).collect();
    let mode = Mode::LeavesBehind(&behind);
    Ok(match children::bring_all(ring, writes, root, (&to, left), (began, mode)).await? {
        Brought::Held => None,
        Brought::Whole(more) | Brought::Broken(more) => Some((to, refused.into_iter().chain(more).collect())),
    })
}

/// Takes a drain back that its shard has not acknowledged in time. An acknowledgement that comes first wins.
async fn take_back(ring: &Ring, writes: &Writes, root: &Root) -> Result<(), Failed> {
    let decide = |now: &Target| match (ring.next_of(&root.main, now, root.covered), &now.shard, &now.drain) {
        (Action::TakeBack, Some(shard), Some(drain)) => Some(patch::take_back(&ring.labels, &now.uid, shard, drain)),
        _ => None,
    };
    ring.told.takes_back(ring, root);
    let written = write(writes, (ring.client(), &root.main.resource), &ring.labels, root.target.clone(), decide).await;
    match written {
        Ok(Written::Written { on }) => ring.told.took_back(ring, root, &on),
        Ok(Written::Needless(_) | Written::Gone) => ring.judge.failed_moves.forget(&root.target.uid, Part::Whole),
        Err(error) => return Err(Failed { error, child: None, what: CANT_DRAIN }),
    }
    Ok(())
}

/// One that drains is looked at again when its deadline has passed.
fn wait(ring: &Ring, root: &Root, now: &Target) {
    if let Some(id) = now.drain.as_ref().filter(|_| now.shard.is_some()) {
        ring.judge.await_acknowledgement((root.resource, root.slot), ring.judge.drains.age(&now.uid, id));
    }
}

/// The hold has ended: what is left is taken under the next one.
fn ended(ring: &Ring, root: &Root, error: kube::Error) -> Result<(), Failed> {
    if !has_ended(&error) {
        return Err(Failed::of_root(error));
    }
    ring.takeovers.wait(root);
    Ok(())
}

/// Writes the root. Its children are with `to` by now, so a shard that has become late since is not passed any more.
async fn give(ring: &Ring, writes: &Writes, root: &Root, to: &ShardName) -> Result<Written, kube::Error> {
    let may_take =
        |now: &Target| now.shard.as_deref().is_some_and(|shard| writes.hold().is_some_and(|hold| hold.is_of(shard)));
    let decide = |now: &Target| {
        let gives = match ring.next_of(&root.main, now, root.covered) {
            Action::Assign { how: How::Takeover, .. } => may_take(now),
            Action::Assign { .. } => true,
            _ => false,
        };
        gives.then(|| patch::assign(&ring.labels, &now.seen(), to))
    };
    write(writes, (ring.client(), &root.main.resource), &ring.labels, root.target.clone(), decide).await
}

/// Takes the labels off a root that left the ring, and that no shard works on.
async fn release(ring: &Ring, writes: &Writes, root: Root) -> Result<(), Failed> {
    let shard = root.target.shard.clone();
    let is_gone = shard.as_deref().is_some_and(|shard| !ring.judge.view().members.is_available(shard));
    let writes = if is_gone {
        let Some(hold) = ring.takeovers.hold(ring, &root) else { return Ok(()) };
        writes.under(hold)
    } else {
        writes.clone()
    };
    let next = |now: &Target| match ring.next_of(&root.main, now, root.covered) {
        Action::Release if now.shard == shard => Action::Release,
        _ => Action::Keep,
    };
    let (at, target) = ((ring.client(), &*root.main.resource), root.target.clone());
    match release_or_drain(&writes, at, &ring.labels, target, next).await {
        Ok(outcome) => {
            if outcome.wrote() {
                ring.judge.drains.forget(&root.target.uid);
            }
            Ok(())
        }
        Err(error) if has_ended(&error) => ended(ring, &root, error),
        Err(error) => Err(Failed::of_root(error)),
    }
}
