//! What is told of the work on a ring: in logs at a rate that a person can read, in metrics, and in the ring's status.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    time::{Duration, SystemTime},
};

use ringside_ring::{RingName, ShardName, cluster_ring::GroupResource, decide::How};
use ringside_runtime::explain::{code, explain};
use tokio::time::{Instant, sleep};

use super::{
    children::Refused,
    family::{Failed, Root},
    ring::Ring,
};
use crate::{
    api_error::is_undone,
    drains::Drains,
    failed_moves::{Cause, Failure, Part},
    faults::Faults,
    index::{Object, Role, Slot},
    lock::Mutex,
    move_id,
    notices::Notice,
    queue::work::Outcome,
    snapshot::Main,
    target::Target,
};

/// How often what came of many objects is logged.
const PERIOD: Duration = Duration::from_secs(1);

/// How long an object rests that was refused twice in the same version: as invalid, or by a policy or a webhook.
const INVALID: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(60);

/// How long an object rests whose drain was taken back, in deadlines: for as long it was not worked on.
const TAKEN_BACK_RESTS: u32 = 10;
/// How long an object rests that went back for a child: for a moment it was not worked on.
const GIVEN_BACK_RESTS: Duration = Duration::from_secs(60);

/// What is to be told.
pub(super) struct Told {
    ring: RingName,
    /// The objects that are refused.
    pub(super) faults: Faults,
    tally: Mutex<Tally>,
}

/// What has come of objects since it was logged last.
#[derive(Default)]
struct Tally {
    assigned: BTreeMap<GroupResource, usize>,
    /// By resource of their owners, children that were apart from these.
    gathered: BTreeMap<GroupResource, usize>,
    /// Children that follow no object of the ring and had labels.
    strays: BTreeMap<GroupResource, usize>,
    /// By resource, what was taken from shards that did not release it.
    taken: BTreeMap<GroupResource, Vec<Target>>,
}

/// A root that was given to a shard.
pub(super) struct Moved<'a> {
    pub(super) main: &'a Main,
    /// As it was before.
    pub(super) target: &'a Target,
    pub(super) to: &'a ShardName,
    pub(super) how: How,
    pub(super) before: Before,
}

/// What was known of a root before it was written to.
pub(super) struct Before {
    /// The shard that it leaves, as far as that is known.
    pub(super) left: Option<String>,
    /// The drain label by which that was asked.
    id: Option<String>,
    drained: Option<SystemTime>,
    /// Since when it was known to be unassigned.
    unassigned: Option<Instant>,
}

impl Before {
    pub(super) fn of(ring: &Ring, slot: Slot, target: &Target) -> Self {
        let drains = &ring.judge.drains;
        let waited = ring.index.read(|objects| objects.unassigned_for(slot));
        Self {
            left: target.shard.clone().or_else(|| drains.previous(&target.uid)),
            id: target.drain.clone().or_else(|| drains.id(&target.uid)),
            drained: drains.began(&target.uid),
            unassigned: waited.and_then(|waited| Instant::now().checked_sub(waited)),
        }
    }
}

/// How long an object rests that is refused, where the API server refuses a write for what the object is: it would refuse the
/// same again. None for a missing permission, which is mended for all of them at once.
fn rests(error: &kube::Error) -> Option<Duration> {
    match error {
        _ if is_undone(error) => Some(INVALID),
        // Policies and webhooks use these words, and may soon say something else.
        kube::Error::Api(status) if status.code == 403 => {
            let is_denied = [" denied request", " denied the request"].iter().any(|it| status.message.contains(it));
            is_denied.then_some(DENIED)
        }
        _ => matches!(code(error), Some(400 | 413 | 422)).then_some(INVALID),
    }
}

fn failure(root: &Root, Refused { resource, child, error }: &Refused) -> Failure {
    let (of, cause) = (root.main.resource.id.clone(), Cause::Children(resource.clone()));
    Failure { cause, of, place: child.place(), why: Some(explain(error)), rest: GIVEN_BACK_RESTS }
}

impl Told {
    pub(super) fn new(ring: RingName, faults: Faults) -> Self {
        Self { ring, faults, tally: Mutex::default() }
    }

    /// A write of an object failed, or a read of it; returns when it is tried again.
    pub(super) fn failed(
        &self,
        resource: &GroupResource,
        (slot, target): (Slot, &Target),
        Failed { error, child, what }: Failed,
    ) -> Outcome {
        self.faults.failed(resource, (slot.0, target), child.as_deref(), &error);
        let of = child.as_deref().unwrap_or(resource);
        tracing::warn!(ring = %self.ring, resource = %of, error = explain(&error), "{what}");
        let rest = rests(&error).filter(|_| child.is_none());
        let version = target.resource_version.parse().unwrap_or_default();
        rest.map_or(Outcome::Again, |rest| Outcome::Refused { version, rest })
    }

    /// A shard does not release an object, which it keeps: for the ring's status, and logged once.
    pub(super) fn overdue(&self, drains: &Drains, main: &Main, target: &Target) {
        if drains.report(target) {
            let (ring, resource) = (&self.ring, &main.resource.id);
            let Target { namespace, name, uid, shard, .. } = target;
            tracing::warn!(
                %ring, %resource, namespace, name, uid, shard,
                "a shard does not release an object; it keeps it, as the API server's fence does not cover it"
            );
        }
    }

    /// A drain is about to be taken back: the object rests, and its shard has failed once more.
    pub(super) fn takes_back(&self, ring: &Ring, root: &Root) {
        let Some(shard) = root.target.shard.clone() else { return };
        let rest = ring.judge.view().spec.drain_deadline() * TAKEN_BACK_RESTS;
        let of = root.main.resource.id.clone();
        let failure = Failure { cause: Cause::Shard(shard), of, place: root.target.place(), why: None, rest };
        ring.judge.failed_moves.failed(&root.target.uid, Part::Whole, failure);
    }

    /// A drain was taken back.
    pub(super) fn took_back(&self, ring: &Ring, root: &Root, target: &Target) {
        let (resource, Target { namespace, name, uid, shard, drain, .. }) = (&root.main.resource.id, target);
        ring.judge.drains.forget(uid);
        ring.tools.metrics.taken_back(&self.ring, resource);
        let id = drain.as_deref().map(move_id::short);
        tracing::warn!(ring = %self.ring, %resource, namespace, name, uid, shard, id, "took a drain back; its shard did not release the object in time");
    }

    /// A root is about to go to the shard of a child that can't be written, in place of the one that it was meant for.
    pub(super) fn gives_back(&self, ring: &Ring, root: &Root, to: &ShardName, refused: &[Refused]) {
        let Some(first) = refused.first() else { return };
        ring.judge.failed_moves.failed(&root.target.uid, Part::Whole, failure(root, first));
        let (resource, Target { namespace, name, uid, .. }) = (&root.main.resource.id, &root.target);
        tracing::warn!(
            ring = %self.ring, %resource, namespace, name, uid, %to, child = first.child.place(), child_resource = %first.resource,
            error = explain(&first.error), "gave an object back to its shard; a child can't be written"
        );
    }

    /// These children stay where they are, apart from their root.
    pub(super) fn left_behind<'a>(&self, ring: &Ring, root: &Root, refused: impl IntoIterator<Item = &'a Refused>) {
        let uid = &root.target.uid;
        match refused.into_iter().next() {
            Some(first) => ring.judge.failed_moves.failed(uid, Part::Children, failure(root, first)),
            None => ring.judge.failed_moves.forget(uid, Part::Children),
        }
    }

    /// A root got the shard that it was meant for, without these children.
    pub(super) fn ended(&self, ring: &Ring, root: &Root, before: &Before, how: How, refused: &[Refused]) {
        let moves = &ring.judge.failed_moves;
        moves.forget(&root.target.uid, Part::Whole);
        let Some(left) = before.left.as_ref().filter(|_| how == How::Forced || moves.has_failed()) else { return };
        if how == How::Forced {
            moves.forced(&Cause::Shard(left.clone()));
        }
        let worked = |cause: &Cause| match cause {
            Cause::Children(kind) => !refused.iter().any(|refused| refused.resource == *kind),
            Cause::Shard(_) => false,
        };
        ring.causes(root.slot, left).iter().filter(|cause| worked(cause)).for_each(|cause| moves.succeeded(cause));
    }

    /// Children of an object were brought to its shard.
    pub(super) fn gathered(&self, resource: &GroupResource, count: usize) {
        if count > 0 {
            *self.tally.lock().gathered.entry(resource.clone()).or_default() += count;
        }
    }

    /// A child that follows no object of the ring has no labels any more.
    pub(super) fn released_stray(&self, resource: &GroupResource) {
        *self.tally.lock().strays.entry(resource.clone()).or_default() += 1;
    }

    /// A root was given to a shard.
    pub(super) fn moved(&self, ring: &Ring, moved: &Moved<'_>) {
        let Moved { main, target, to, how, before } = moved;
        let (resource, metrics) = (&main.resource.id, &ring.tools.metrics);
        let is_forced = *how == How::Forced && target.drain.is_some();
        match target.shard.as_deref() {
            _ if is_forced => metrics.forced(&self.ring, resource),
            None => metrics.assigned(&self.ring, resource),
            Some(from) if from != to.as_str() => metrics.moved(&self.ring, resource),
            // It was drained, and is its own again.
            Some(_) => {}
        }
        let drained = before.drained.and_then(|began| began.elapsed().ok());
        let waited = before.unassigned.map(|since| since.elapsed());
        match (&before.left, drained.or(waited), waited) {
            (Some(_), Some(took), _) => metrics.move_took(&self.ring, took),
            (None, _, Some(waited)) => metrics.assignment_took(&self.ring, waited),
            _ => {}
        }
        let mut tally = self.tally.lock();
        *tally.assigned.entry(resource.clone()).or_default() += 1;
        if is_forced {
            tally.taken.entry(resource.clone()).or_default().push((*target).clone());
        }
        drop(tally);
        let Some(from) = before.left.as_deref().filter(|from| *from != to.as_str()) else { return };
        let reason = match &target.shard {
            _ if is_forced => "drain deadline exceeded",
            Some(_) => "shard is gone",
            None => "released",
        };
        let (id, Target { namespace, name, uid, .. }) = (before.id.as_deref().map(move_id::short), target);
        tracing::info!(ring = %self.ring, %resource, namespace, name, uid, from, %to, id, reason, "moved object");
    }

    /// Logs what came of many objects, and forgets failures of those that are gone.
    pub(super) async fn tell(&self, ring: &Ring) -> Infallible {
        loop {
            sleep(PERIOD).await;
            let Tally { assigned, gathered, strays, taken } = std::mem::take(&mut *self.tally.lock());
            for (resource, assigned) in assigned {
                tracing::info!(ring = %self.ring, %resource, assigned, "assigned objects");
            }
            for (resource, children) in gathered {
                tracing::info!(ring = %self.ring, %resource, children, "moved children to their owners' shards");
            }
            for (resource, objects) in strays {
                tracing::info!(ring = %self.ring, %resource, objects, "removed labels of children that follow no object of the ring");
            }
            for (resource, objects) in taken {
                self.tell_taken(ring, &resource, &objects);
            }
            self.faults.keep(|number, uid| {
                // What an owner controls by now goes with that.
                let is_it = |object: Object<'_>| {
                    !matches!(object.role(), Role::Child { .. }) && object.uid().is_none_or(|known| known == uid)
                };
                ring.index.read(|objects| objects.get(Slot(number)).is_some_and(is_it))
            });
        }
    }

    fn tell_taken(&self, ring: &Ring, resource: &GroupResource, objects: &[Target]) {
        let (Some(first), snapshot) = (objects.first(), ring.judge.view()) else { return };
        // Each has its own line, as what moved.
        tracing::warn!(
            ring = %self.ring, %resource, objects = objects.len(), first = first.place(), from = first.shard,
            "objects were not released in time; they were taken from their shards"
        );
        let note = format!(
            "{} objects of '{resource}' were not released within {} s, such as '{}' by shard '{}'; they were taken from it",
            objects.len(),
            snapshot.spec.drain_deadline().as_secs(),
            first.place(),
            first.shard.as_deref().unwrap_or_default(),
        );
        let event = Notice { warns: true, reason: "DrainForced".to_owned(), action: "Move", note };
        ring.tools.notices.tell(snapshot.reference(), None, event);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::{DENIED, INVALID, rests};

    #[test]
    fn a_policy_refuses_an_object_and_a_missing_permission_does_not() {
        for (code, message, expected) in [
            (
                403,
                "secrets \"o\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no",
                Some(DENIED),
            ),
            (403, "admission webhook \"w.example.com\" denied the request: no", Some(DENIED)),
            (403, "secrets \"o\" is forbidden: User \"u\" cannot patch resource \"secrets\" in API group \"\"", None),
            (422, "Secret \"o\" is invalid", Some(INVALID)),
            (409, "the object has been modified", None),
        ] {
            let error = kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed());
            assert_eq!(rests(&error), expected, "{message}");
        }
    }
}
