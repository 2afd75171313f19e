//! What is next for each object that the index shows, and the queue that it goes into for that.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::lock::Mutex;
use crate::{
    drains::Drains,
    failed_moves::{Cause, FailedMoves, Part},
    faults::Faults,
    fence::Fences,
    index::{Object, Objects, Observer, ResourceId, Role, Selected, Shard, Slot},
    queue::{
        limiter::Priority,
        work::{Queue, Work},
    },
    snapshot::{Main, Place, Snapshot},
    target::Target,
};
use arc_swap::ArcSwap;
use ringside_ring::{
    ShardName,
    cluster_ring::GroupResource,
    decide::{self, Action, Covered, Drain, Family, Holder, How, Waiting, decide},
};
use ringside_runtime::explain::explain;

/// A timer for a drain is not shorter.
const MOMENT: Duration = Duration::from_millis(20);
/// For how long a child keeps its labels that follows no object of the ring. Its owner may not have adopted it yet: a shard
/// sees what is made by hand by its label, and adopts it with its next attempt.
pub(super) const LONE: Duration = Duration::from_secs(300);
/// How soon an object is looked at again that its shard does not release in time.
pub(super) const OVERDUE: Duration = Duration::from_secs(10);

/// Decides about the objects of one ring. A change of its shards is another view, and nothing else.
pub(super) struct Judge {
    view: ArcSwap<Snapshot>,
    /// By resource of the index; none for one that is only controlled.
    mains: Vec<Option<Main>>,
    /// By resource of the index, its name.
    ids: Vec<GroupResource>,
    /// By resource of the index, the main resource that it belongs to.
    families: Vec<Option<GroupResource>>,
    pub(super) drains: Drains,
    pub(super) failed_moves: FailedMoves,
    fences: Fences,
    faults: Faults,
    /// All families but those that are to be drained, by resource: writes of one that hang hold up no other.
    queues: Vec<Queue>,
    /// Those that are to be drained.
    rebalances: Queue,
    /// The main resources whose families are not known as a whole: nothing of them is drained.
    unlisted: Mutex<BTreeSet<ResourceId>>,
    /// The resources that can't be watched at the moment.
    unwatched: Mutex<BTreeSet<ResourceId>>,
}

impl Judge {
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        kinds: &[crate::index::Kind],
        (drains, failed_moves): (Drains, FailedMoves),
        fences: Fences,
        faults: Faults,
    ) -> Self {
        let main = |kind: &crate::index::Kind| snapshot.main(&kind.resource.id).cloned();
        let family = |kind: &crate::index::Kind| {
            let above = || snapshot.mains.iter().find(|main| main.controlled.contains(&kind.resource));
            snapshot.main(&kind.resource.id).or_else(above).map(|main| main.resource.id.clone())
        };
        let (mains, families): (Vec<_>, _) = (kinds.iter().map(main).collect(), kinds.iter().map(family).collect());
        let unlisted = (0_u8..).map(ResourceId).zip(&mains).filter(|(_, main)| main.is_some());
        let unlisted = unlisted.map(|(id, _)| id).collect();
        let queues = kinds.iter().map(|_| Queue::default()).collect();
        Self {
            view: ArcSwap::new(snapshot),
            mains,
            ids: kinds.iter().map(|kind| kind.resource.id.clone()).collect(),
            families,
            drains,
            failed_moves,
            fences,
            faults,
            queues,
            rebalances: Queue::default(),
            unlisted: Mutex::new(unlisted),
            unwatched: Mutex::default(),
        }
    }

    /// The ring as it is now.
    pub(super) fn view(&self) -> Arc<Snapshot> {
        self.view.load_full()
    }

    /// What is to be decided again of a resource.
    pub(super) fn queue(&self, resource: ResourceId) -> &Queue {
        &self.queues[usize::from(resource.0)]
    }

    /// The same of all resources.
    pub(super) fn queues(&self) -> impl Iterator<Item = (ResourceId, &Queue)> {
        (0_u8..).map(ResourceId).zip(&self.queues)
    }

    /// The next that is to be drained.
    pub(super) async fn next_rebalance(&self) -> Work {
        self.rebalances.next().await
    }

    /// A root is to be drained, once its families are known.
    pub(super) fn rebalance(&self, (resource, slot): (ResourceId, Slot)) {
        if !self.unlisted.lock().contains(&resource) {
            self.rebalances.add(slot, Priority::Rebalance);
        }
    }

    /// A root is looked at again after this time: its move is put off.
    pub(super) fn rebalance_after(&self, slot: Slot, wait: Duration) {
        self.rebalances.add_after(slot, Priority::Rebalance, wait);
    }

    /// The main resources whose families are not known as a whole.
    pub(super) fn unlisted(&self) -> impl Iterator<Item = ResourceId> + use<> {
        self.unlisted.lock().clone().into_iter()
    }

    /// The families of this one are known now.
    pub(super) fn listed(&self, resource: ResourceId) {
        self.unlisted.lock().remove(&resource);
    }

    /// Whether the index shows the present, as far as is known.
    pub(super) fn is_current(&self) -> bool {
        self.unwatched.lock().is_empty()
    }

    /// Whether a resource can't be listed or watched at the moment.
    pub(super) fn is_unwatched(&self, resource: ResourceId) -> bool {
        self.unwatched.lock().contains(&resource)
    }

    /// The ring is this from now on.
    pub(super) fn look_from(&self, snapshot: Arc<Snapshot>) {
        self.view.store(snapshot);
    }

    /// The main resource of a root.
    pub(super) fn main(&self, resource: ResourceId) -> Option<&Main> {
        self.mains.get(usize::from(resource.0))?.as_ref()
    }

    /// Whether the ring distributes a root.
    pub(super) fn covers(&self, root: Object<'_>, main: &Main) -> Covered {
        match root.selected() {
            Selected::Yes if self.view.load().withholds(main) => Covered::Withheld,
            Selected::Yes => Covered::InRing,
            Selected::No => Covered::Leaving,
            // The watch on namespaces shows it in a moment.
            Selected::Unknown => Covered::Withheld,
        }
    }

    /// The available shard, other than the one to which a child goes, that may work on it by itself: it had the child before that was
    /// adopted. None where the child's resource is no main one.
    pub(super) fn held_by<'a>(&self, child: Object<'a>, to: &str) -> Option<&'a str> {
        self.main(child.resource())?;
        match child.shard() {
            Shard::Named(shard) if shard != to => {
                matches!(self.view.load().holder(Some(shard)), Holder::Available(_)).then_some(shard)
            }
            _ => None,
        }
    }

    /// What is next for a root as the index shows it.
    fn next(&self, root: Object<'_>, key: u64) -> Action<ShardName> {
        let Some(main) = self.main(root.resource()) else { return Action::Keep };
        let snapshot = self.view.load();
        let shard = match root.shard() {
            Shard::Unassigned => None,
            Shard::Named(shard) => Some(shard),
            Shard::Unnamed => return Action::Keep,
        };
        let (holder, covered) = (snapshot.holder(shard), self.covers(root, main));
        let drain = root.drain().map(|_| match shard {
            None => Drain::InTime,
            Some(shard) => self.drain(&snapshot, main, shard, self.age(root), covered),
        });
        let counts = matches!(drain, None | Some(Drain::Overdue { fenced: false }));
        let settled = shard.filter(|_| matches!(holder, Holder::Available(_)) && counts);
        let is_apart = settled.is_some_and(|shard| {
            let objects = root.objects();
            let mut followers = objects.followers(root.slot).into_iter().filter_map(|member| objects.get(member.slot));
            // One that its own shard is asked to release comes once that has.
            let is_asked = |member: Object<'_>| member.drain().is_some() && self.held_by(member, shard).is_some();
            // Of a root that drains those count that another shard works on by now.
            let is_elsewhere = |member: Object<'_>| match member.shard() {
                Shard::Named(of) => of != shard && matches!(snapshot.holder(Some(of)), Holder::Available(_)),
                Shard::Unassigned | Shard::Unnamed => false,
            };
            followers.any(|member| {
                let is_apart = !member.is_with(shard) && (drain.is_none() || is_elsewhere(member));
                member.selected() == Selected::Yes && is_apart && !is_asked(member)
            })
        });
        let (object, view) = (decide::Object { key, holder, drain, covered }, snapshot.view(root.group()));
        decide(&object, Family { is_apart }, view).named(view)
    }

    /// What is next for a root as it was read.
    pub(super) fn next_of(
        &self,
        main: &Main,
        (target, place): (&Target, Place),
        covered: Covered,
    ) -> Action<ShardName> {
        let snapshot = self.view.load();
        let has_owner = |owner| snapshot.follows(&main.resource.id, owner);
        if snapshot.owner(&target.owners).one().is_some_and(has_owner) {
            // It was adopted since, and goes with its owner.
            return Action::Keep;
        }
        let holder = snapshot.holder(target.shard.as_deref());
        let drain = target.drain.as_ref().map(|id| match &target.shard {
            None => Drain::InTime,
            Some(shard) => self.drain(&snapshot, main, shard, self.drains.age(&target.uid, id), covered),
        });
        let (object, view) = (decide::Object { key: place.key, holder, drain, covered }, snapshot.view(place.group));
        decide(&object, Family::default(), view).named(view)
    }

    /// How far a drain of this age is. Outside the ring the API server's fence does not stand.
    fn drain(&self, snapshot: &Snapshot, main: &Main, shard: &str, age: Duration, covered: Covered) -> Drain {
        let resources = main.controlled.iter().chain([&main.resource]).map(|resource| &resource.id);
        let fenced = covered == Covered::InRing
            && snapshot.spec.asks_for_fence()
            && self.fences.holds(snapshot, resources, shard);
        Drain::after(age, snapshot.spec.drain_deadline(), fenced)
    }

    /// For how long a root has been known to drain, by the one clock for that.
    fn age(&self, root: Object<'_>) -> Duration {
        let Some(drain) = root.drain() else { return Duration::ZERO };
        root.uid().map_or_else(|| drain.since.elapsed(), |uid| self.drains.age(&uid, &drain.value))
    }

    /// A drain of this age is looked at again when its deadline has passed.
    pub(super) fn await_acknowledgement(&self, (resource, slot): (ResourceId, Slot), age: Duration) {
        let rest = self.view.load().spec.drain_deadline().saturating_sub(age);
        self.queue(resource).add_after(slot, Priority::Between, rest.max(MOMENT));
    }

    /// What is next for a root, by its slot.
    pub(super) fn decide(&self, objects: Objects<'_>, slot: Slot) -> Option<Action<ShardName>> {
        let root = objects.get(slot)?;
        let Role::Root { point } = root.role() else { return None };
        Some(self.next(root, point))
    }

    /// Puts an object into the queue where there is something to do about it.
    pub(super) fn sort(&self, object: Object<'_>) {
        let (slot, queue) = (object.slot, self.queue(object.resource()));
        match object.role() {
            Role::Root { point } => {
                queue.changed(slot, object.version());
                self.rebalances.changed(slot, object.version());
                self.note_drain(object);
                self.put(object, &self.next(object, point));
            }
            Role::Lone { certain: true } if object.is_labelled() => queue.add_after(slot, Priority::Repair, LONE),
            Role::Waiting if object.selected() == Selected::No => queue.add(slot, Priority::Repair),
            // It is not lone any more, nor a root.
            Role::Child { .. } => {
                queue.forget(slot);
                self.note_drain(object);
                if self.main(object.resource()).is_some() && object.drain().is_some() {
                    self.await_acknowledgement((object.resource(), slot), self.age(object));
                }
            }
            Role::Lone { .. } | Role::Waiting => {}
        }
    }

    fn put(&self, root: Object<'_>, action: &Action<ShardName>) {
        let (resource, slot) = (root.resource(), root.slot);
        let queue = self.queue(resource);
        match action {
            Action::Keep | Action::Stay | Action::NoShard => {}
            Action::Wait(Waiting::Distribution) => {
                if root.selected() == Selected::Unknown {
                    queue.add(slot, Priority::Between);
                }
            }
            Action::Wait(Waiting::Acknowledgement) => {
                self.await_acknowledgement((resource, slot), self.age(root));
            }
            Action::Drain { .. } => self.rebalance((resource, slot)),
            Action::Overdue | Action::TakeBack | Action::Release => queue.add(slot, Priority::Repair),
            Action::Assign { how: How::Takeover, .. } => queue.add(slot, Priority::Takeover),
            Action::Gather { .. } | Action::Assign { .. } => queue.add(slot, Priority::Between),
        }
    }

    /// Who drains what since when is known beyond the acknowledgement, which takes the label off.
    fn note_drain(&self, root: Object<'_>) {
        let Some(main) = self.main(root.resource()) else { return };
        match (root.shard(), root.drain()) {
            (Shard::Named(shard), Some(drain)) => {
                if let Some(target) = root.target() {
                    self.drains.remember(&main.resource.id, &target, shard, &drain.value);
                }
            }
            (shard @ (Shard::Named(_) | Shard::Unassigned), None) if !self.drains.is_empty() => {
                let Some(uid) = root.uid() else { return };
                let shard = if let Shard::Named(shard) = shard { Some(shard) } else { None };
                if let Some(released_by) = self.drains.released(&uid, shard) {
                    self.failed_moves.succeeded(&Cause::Shard(released_by));
                }
                if shard.is_some() {
                    self.drains.settled(&uid);
                }
            }
            _ => {}
        }
    }
}

/// The judge as the index's observer.
pub(super) struct Watching(pub(super) Arc<Judge>);

impl Observer for Watching {
    fn changed(&self, objects: Objects<'_>, slot: Slot) {
        if let Some(object) = objects.get(slot) {
            self.0.sort(object);
        }
    }

    fn removed(&self, slot: Slot, uid: Option<&str>) {
        for queue in self.0.queues.iter().chain([&self.0.rebalances]) {
            queue.forgive(slot);
            queue.forget(slot);
        }
        if let Some(uid) = uid {
            self.0.drains.forget(uid);
            [Part::Whole, Part::Children].into_iter().for_each(|part| self.0.failed_moves.forget(uid, part));
        }
    }

    fn watched(&self, resource: ResourceId, error: Option<&kube::Error>) {
        let at = usize::from(resource.0);
        let (Some(Some(family)), Some(id)) = (self.0.families.get(at), self.0.ids.get(at)) else { return };
        match error {
            None => {
                self.0.unwatched.lock().remove(&resource);
                self.0.faults.watched((family, id));
            }
            Some(error) => {
                let (ring, fault) = (self.0.view().ring.clone(), explain(error));
                tracing::warn!(%ring, resource = %id, error = fault, "can't watch objects; trying again");
                self.0.unwatched.lock().insert(resource);
                self.0.faults.unwatched((family, id), error);
            }
        }
    }
}
