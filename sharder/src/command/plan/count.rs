//! Looks at every object of a ring once. What is kept are counts, and in a ring with groups or keys where each owner belongs.

use std::collections::{BTreeSet, HashMap};

use crate::lock::Mutex;
use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Client, api::ListParams};
use ringside_ring::{
    Ownership, ShardName,
    cluster_ring::GroupResource,
    decide::{Action, Covered, Drain, Family, Object, decide},
};

use super::Forecast;
use crate::{
    groups::GroupId,
    leftovers::Leftovers,
    owners::owner,
    pages::{pages_of, pages_with},
    resources::{Resource, Unusable},
    snapshot::{Main, Place, Snapshot},
    target::Target,
};

/// Counts all objects and children of the ring, and what has labels of it and is not in these namespaces, or of a resource
/// that it names no more.
pub(super) async fn count(
    client: &Client,
    snapshot: &Snapshot,
    namespaces: &BTreeSet<String>,
    forecast: &mut Forecast,
) {
    let counting = Counting { client, snapshot, namespaces, placed: Mutex::default() };
    let mut controlled: HashMap<&GroupResource, &Resource> = HashMap::new();
    for main in &snapshot.mains {
        controlled.extend(main.controlled.iter().map(|kind| (&kind.id, &**kind)));
        let outcome = counting.objects(main, forecast).await;
        forecast.looked_at(&main.resource.id, outcome);
    }
    // A resource may be controlled by several.
    for kind in controlled.into_values() {
        let outcome = counting.children(kind, forecast).await;
        forecast.looked_at(&kind.id, outcome);
    }
    counting.leftovers(forecast).await;
}

struct Counting<'a> {
    client: &'a Client,
    snapshot: &'a Snapshot,
    namespaces: &'a BTreeSet<String>,
    /// By uid, where children of owners may be: of those whose references don't say it.
    placed: Mutex<HashMap<String, Places>>,
}

/// Where a controlled object may be.
#[derive(Clone)]
struct Places {
    /// Where its owner belongs: the sharder looks at no child that is there.
    home: ShardName,
    /// Where its owner is, once what the sharder does next is done; none when it is gone.
    owner: Option<ShardName>,
}

impl Counting<'_> {
    async fn objects(&self, main: &Main, forecast: &mut Forecast) -> Result<(), kube::Error> {
        let (resource, labels) = (&main.resource, self.snapshot.labels.clone());
        let keep = |object: &ObjectMeta| (Target::of(object, &labels), self.snapshot.place_of(main, object));
        let has_owner = |object: &Target| {
            let owner = self.snapshot.owner(&object.owners).one();
            owner.is_some_and(|owner| self.snapshot.follows(&resource.id, owner))
        };
        let mut pages = std::pin::pin!(pages_with(resource.objects(self.client, None), ListParams::default(), keep));
        while let Some(page) = pages.try_next().await? {
            for (object, place) in page {
                if has_owner(&object) {
                    // It is counted with what it follows.
                } else if self.selects(resource, &object) {
                    let (next, to) = self.next(&object, place);
                    forecast.object(&resource.id, &object, (&next, to.as_ref()));
                    if let Some(home) = self.snapshot.home(place).filter(|_| !self.snapshot.is_placed_by_name(main)) {
                        self.placed.lock().insert(object.uid, Places { home: home.clone(), owner: to });
                    }
                } else {
                    forecast.leaver(&resource.id, &object, &self.decide(&object, place, Covered::Leaving));
                }
            }
        }
        Ok(())
    }

    /// What is done next with an object, and the shard that it is with after all that follows from that.
    fn next(&self, object: &Target, place: Place) -> (Action<ShardName>, Option<ShardName>) {
        let next = self.decide(object, place, Covered::InRing);
        let to = match &next {
            Action::Assign { to, .. } => Some(to.clone()),
            Action::Keep | Action::Stay => object.shard.as_ref().and_then(|shard| shard.parse().ok()),
            Action::NoShard => None,
            _ => self.snapshot.receiver(place).cloned(),
        };
        (next, to)
    }

    /// What the deadline of a drain would do later is nothing of today.
    fn decide(&self, object: &Target, place: Place, covered: Covered) -> Action<ShardName> {
        let (view, ownership) = (self.snapshot.view(place.group), object.ownership());
        let object = Object {
            key: place.key,
            holder: view.holder(ownership.shard),
            drain: ownership.drain.map(|_| Drain::InTime),
            covered,
        };
        decide(&object, Family::default(), view).named(view)
    }

    async fn children(&self, kind: &Resource, forecast: &mut Forecast) -> Result<(), kube::Error> {
        let mut pages = std::pin::pin!(self.pages(kind));
        while let Some(page) = pages.try_next().await? {
            // Siblings stand together in a list, so knowing the controllers of one page saves most reads.
            let mut known: HashMap<String, Option<Places>> = HashMap::new();
            for child in page {
                let owner = self.snapshot.owner(&child.owners).one();
                let controller = owner.filter(|owner| self.snapshot.above(&kind.id, owner).is_some());
                if controller.is_none() && owner.is_some_and(|owner| self.snapshot.may_be_above(owner)) {
                    // Nobody can say yet whom it follows.
                    continue;
                }
                if controller.is_none() && self.snapshot.main(&kind.id).is_some() {
                    continue;
                }
                let Some(controller) = controller.filter(|_| self.selects(kind, &child)) else {
                    // It is not let go of by itself: it follows its owner out of the ring, or follows nobody of it.
                    forecast.leaver(&kind.id, &child, &released(&child));
                    continue;
                };
                if !known.contains_key(&controller.uid) {
                    known.insert(controller.uid.clone(), self.places(kind, &child, controller).await?);
                }
                let Some(Some(Places { home, owner })) = known.get(&controller.uid) else { continue };
                let is_home = child.shard.as_deref() == Some(home.as_str());
                if let Some(to) = if is_home { Some(home) } else { owner.as_ref() } {
                    forecast.child(&kind.id, &child, to);
                }
            }
        }
        Ok(())
    }

    /// Where a child may be; none where it follows nobody of the ring.
    ///
    /// Its owner is where it belongs, or about to be: whether it is still there is not looked at, as that would be a read for
    /// each child that moves, and what is left without owner is the garbage collector's. It is read only where it may stay
    /// elsewhere, because the shard that it belongs to is late, or shards are being replaced.
    async fn places(
        &self,
        kind: &Resource,
        child: &Target,
        controller: &OwnerReference,
    ) -> Result<Option<Places>, kube::Error> {
        let (snapshot, namespace) = (self.snapshot, child.namespace.as_deref());
        let Some(owner) = owner(self.client, snapshot, &kind.id, controller, namespace).await? else { return Ok(None) };
        if let Some(known) = self.placed.lock().get(&owner.reference.uid) {
            return Ok(Some(known.clone()));
        }
        let home = |place: Place| snapshot.home(place).cloned();
        let known = owner.place(snapshot, namespace);
        if let Some(place) = known.filter(|place| snapshot.view(place.group).settles_at(place.key).is_some()) {
            return Ok(home(place).map(|home| Places { owner: Some(home.clone()), home }));
        }
        let found = owner.read(self.client, namespace).await?.map(|found| {
            (Target::of(&found.metadata, &snapshot.labels), snapshot.place_of(owner.main, &found.metadata))
        });
        let Some(home) = found.as_ref().map(|(_, place)| *place).or(known).and_then(home) else { return Ok(None) };
        let owner = found.and_then(|(found, place)| self.next(&found, place).1);
        Ok(Some(Places { home, owner }))
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
        let mut pages = std::pin::pin!(self.pages(resource));
        while let Some(page) = pages.try_next().await? {
            for object in page {
                // It belongs nowhere.
                let nowhere = Place { key: 0, group: GroupId::default() };
                let of_main = || self.decide(&object, nowhere, Covered::Leaving);
                let next = if is_main { of_main() } else { released(&object) };
                forecast.leaver(&resource.id, &object, &next);
            }
        }
        Ok(())
    }

    /// Whether the object is in one of the ring's namespaces, or in none.
    fn selects(&self, resource: &Resource, object: &Target) -> bool {
        let namespace = resource.selected_by(object.namespace.as_deref(), Some(&object.name));
        namespace.is_none_or(|namespace| self.namespaces.contains(namespace))
    }

    fn pages(&self, resource: &Resource) -> impl futures::Stream<Item = Result<Vec<Target>, kube::Error>> {
        pages_of(resource.objects(self.client, None), self.snapshot.labels.clone(), ListParams::default())
    }
}

/// What becomes of the labels of somebody who is not let go of by himself.
fn released(object: &Target) -> Action<ShardName> {
    if object.ownership() == Ownership::default() { Action::Keep } else { Action::Release }
}
