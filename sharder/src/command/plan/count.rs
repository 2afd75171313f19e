//! Looks at every object of a ring once: what the sharder's index shows of them is counted.

use std::{collections::BTreeSet, sync::Arc};

use futures::TryStreamExt as _;
use kube::{Client, api::ListParams};
use ringside_ring::{
    Ownership, ShardName,
    cluster_ring::GroupResource,
    decide::{self, Action, Covered, Drain, Family, decide},
};

use super::Forecast;
use crate::{
    groups::GroupId,
    index::{Index, Object, Objects, Observer, ResourceId, Role, Scope, Selected, Shard, Slot, Source, repair},
    leftovers::Leftovers,
    pages::pages_of,
    reconcile::kinds_of,
    resources::{Resource, Unusable},
    snapshot::{Place, Snapshot},
};

/// Counts all objects and children of the ring, and what has labels of it and is not in these namespaces, or of a resource
/// that it names no more.
pub(super) async fn count(client: &Client, snapshot: &Snapshot, namespaces: BTreeSet<String>, forecast: &mut Forecast) {
    let (counting, kinds) = (Counting { client, snapshot }, kinds_of(snapshot));
    let selection = Box::new(move |namespace: &str| Some(namespaces.contains(namespace)));
    let keys = (snapshot.labels.clone(), snapshot.groups.clone());
    let index = Index::new(kinds.clone(), keys, selection, Box::new(Unobserved));
    for (resource, kind) in (0_u8..).map(ResourceId).zip(&kinds) {
        let (index, progress, listing) = (index.clone(), Arc::default(), Arc::default());
        let source = Source { index, resource, scope: Scope::Cluster, progress, listing };
        let outcome = repair::list(&source, &kind.resource.objects(client, None), ListParams::default()).await;
        forecast.looked_at(&kind.resource.id, outcome);
    }
    index.walk(|object| counting.object(&kinds[usize::from(object.resource().0)].resource.id, object, forecast));
    counting.leftovers(forecast).await;
}

/// Nothing is done about what the index shows.
struct Unobserved;

impl Observer for Unobserved {
    fn changed(&self, _: Objects<'_>, _: Slot) {}
    fn removed(&self, _: Slot, _: Option<&str>) {}
    fn watched(&self, _: ResourceId, _: Option<&kube::Error>) {}
}

struct Counting<'a> {
    client: &'a Client,
    snapshot: &'a Snapshot,
}

impl Counting<'_> {
    fn object(&self, resource: &GroupResource, object: Object<'_>, forecast: &mut Forecast) {
        let now = ownership(object);
        match (object.role(), object.selected()) {
            (Role::Root { point }, Selected::Yes) => {
                let (next, to) = self.next(object, point);
                forecast.object(resource, now, (&next, to.as_ref()));
            }
            (Role::Root { point: key }, _) => {
                let place = Place { key, group: object.group() };
                forecast.leaver(resource, now, &self.decide(now, place, Covered::Leaving));
            }
            (Role::Child { .. }, Selected::Yes) => {
                let objects = object.objects();
                let root = objects.root(object.slot).and_then(|root| objects.get(root));
                let to = root.and_then(|root| match root.role() {
                    Role::Root { point } if root.selected() == Selected::Yes => self.next(root, point).1,
                    _ => None,
                });
                if let Some(to) = to {
                    forecast.child(resource, now, &to);
                }
            }
            // What it follows is gone, or may be served later.
            (Role::Waiting, Selected::Yes) | (Role::Lone { certain: false }, _) => {}
            // Nothing of the ring keeps it: it leaves with its owner, or has none in the ring.
            _ => forecast.leaver(resource, now, &released(now)),
        }
    }

    /// What is done next with a root, and the shard that it is with after all that follows from that.
    fn next(&self, root: Object<'_>, key: u64) -> (Action<ShardName>, Option<ShardName>) {
        let (place, now) = (Place { key, group: root.group() }, ownership(root));
        let next = self.decide(now, place, Covered::InRing);
        let to = match &next {
            Action::Assign { to, .. } => Some(to.clone()),
            Action::Keep | Action::Stay => now.shard.and_then(|shard| shard.parse().ok()),
            Action::NoShard => None,
            _ => self.snapshot.receiver(place).cloned(),
        };
        (next, to)
    }

    /// What the deadline of a drain would do later is nothing of today.
    fn decide(&self, now: Ownership<'_>, place: Place, covered: Covered) -> Action<ShardName> {
        let view = self.snapshot.view(place.group);
        let object = decide::Object {
            key: place.key,
            holder: view.holder(now.shard),
            drain: now.drain.map(|_| Drain::InTime),
            covered,
        };
        decide(&object, Family::default(), view).named(view)
    }

    /// What has labels of a resource that the ring names no more.
    async fn leftovers(&self, forecast: &mut Forecast) {
        let leftovers = Leftovers::default();
        for name in leftovers.take_in(self.snapshot) {
            match self.snapshot.departing.get(&name) {
                Some(Ok(resource)) => {
                    let outcome = self.leavers(resource, leftovers.is_main(&name), forecast).await;
                    forecast.looked_at(&name, outcome);
                }
                // Its objects are gone with it.
                None | Some(Err(Unusable::NotServed)) => {}
                Some(Err(unusable)) => forecast.unread.push(format!("{name}: it {unusable}")),
            }
        }
    }

    async fn leavers(&self, resource: &Resource, is_main: bool, forecast: &mut Forecast) -> Result<(), kube::Error> {
        let (api, labels) = (resource.objects(self.client, None), self.snapshot.labels.clone());
        let mut pages = std::pin::pin!(pages_of(api, labels, ListParams::default()));
        while let Some(page) = pages.try_next().await? {
            for object in page {
                // It belongs nowhere.
                let nowhere = Place { key: 0, group: GroupId::default() };
                let now = object.ownership();
                let next = if is_main { self.decide(now, nowhere, Covered::Leaving) } else { released(now) };
                forecast.leaver(&resource.id, now, &next);
            }
        }
        Ok(())
    }
}

/// Who works on an object. A label that must be read, as there are too many, names no shard.
fn ownership(object: Object<'_>) -> Ownership<'_> {
    let shard = match object.shard() {
        Shard::Unassigned => None,
        Shard::Named(shard) => Some(shard),
        Shard::Unnamed => Some(""),
    };
    Ownership { shard, drain: object.drain().map(|drain| &*drain.value) }
}

/// What becomes of the labels of an object that is not drained by itself.
fn released(now: Ownership<'_>) -> Action<ShardName> {
    if now == Ownership::default() { Action::Keep } else { Action::Release }
}
