//! Looks at every object of a ring once. What is kept are counts: memory is a page, whatever the number of objects.

use std::collections::{BTreeSet, HashMap};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::{Client, api::ListParams};
use ringside_ring::{
    ShardName,
    cluster_ring::GroupResource,
    handover::{Patience, next_step},
};
use ringside_runtime::explain::explain;

use super::Forecast;
use crate::{
    assign::{BATCH, children::pages_of},
    owners::owner,
    resources::Resource,
    snapshot::{Main, Snapshot},
    target::Target,
};

/// Counts all objects and children of the ring that are in these namespaces.
pub(super) async fn count(
    client: &Client,
    snapshot: &Snapshot,
    namespaces: &BTreeSet<String>,
    forecast: &mut Forecast,
) {
    let counting = Counting { client, snapshot, namespaces };
    let mut controlled: HashMap<&GroupResource, &Resource> = HashMap::new();
    for main in &snapshot.mains {
        controlled.extend(main.controlled.iter().map(|kind| (&kind.id, &**kind)));
        if let Err(error) = counting.objects(main, forecast).await {
            forecast.unread.push(format!("{}: {}", main.resource.id, explain(&error)));
        }
    }
    // A resource may be controlled by several.
    for kind in controlled.into_values() {
        if let Err(error) = counting.children(kind, forecast).await {
            forecast.unread.push(format!("{}: {}", kind.id, explain(&error)));
        }
    }
}

struct Counting<'a> {
    client: &'a Client,
    snapshot: &'a Snapshot,
    namespaces: &'a BTreeSet<String>,
}

impl Counting<'_> {
    async fn objects(&self, main: &Main, forecast: &mut Forecast) -> Result<(), kube::Error> {
        let (resource, snapshot) = (&main.resource, self.snapshot);
        let mut pages = std::pin::pin!(self.pages(resource));
        while let Some(page) = pages.try_next().await? {
            for object in page {
                let key = resource.key(object.namespace.as_deref(), &object.name);
                // What the deadline of a drain would do later is not a step of today.
                let (members, ring) = (&snapshot.members, &snapshot.hash_ring);
                let step = next_step(object.ownership(), Patience::Left, &key, members, ring);
                forecast.object(&resource.id, &object, ring.owner(&key), &step);
            }
        }
        Ok(())
    }

    /// By the keys of their owners: whether these are still there is not looked at, as that would be a read for each child
    /// that moves, and what is left without owner is the garbage collector's.
    async fn children(&self, kind: &Resource, forecast: &mut Forecast) -> Result<(), kube::Error> {
        let mut pages = std::pin::pin!(self.pages(kind));
        while let Some(page) = pages.try_next().await? {
            // Siblings stand together in a list, so knowing the controllers of one page saves most reads of links.
            let mut known: HashMap<String, Option<ShardName>> = HashMap::new();
            for child in page {
                let Some(controller) = &child.controller else { continue };
                if !known.contains_key(&controller.uid) {
                    known.insert(controller.uid.clone(), self.place(kind, &child).await?);
                }
                if let Some(Some(to)) = known.get(&controller.uid) {
                    forecast.child(&kind.id, &child, to);
                }
            }
        }
        Ok(())
    }

    /// The shard where the owner of a child belongs; none where it follows nobody of the ring.
    async fn place(&self, kind: &Resource, child: &Target) -> Result<Option<ShardName>, kube::Error> {
        let Some(controller) = &child.controller else { return Ok(None) };
        let namespace = child.namespace.as_deref();
        let owner = owner(self.client, self.snapshot, &kind.id, controller, namespace).await?;
        Ok(owner.and_then(|owner| self.snapshot.hash_ring.owner(&owner.key(namespace)).cloned()))
    }

    /// The objects that are in the ring's namespaces, or in none.
    fn pages(&self, resource: &Resource) -> impl futures::Stream<Item = Result<Vec<Target>, kube::Error>> {
        let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
        let pages = pages_of(resource.objects(self.client, None), self.snapshot.labels.clone(), parameters);
        let selects = |target: &Target| target.namespace.as_ref().is_none_or(|it| self.namespaces.contains(it));
        pages.map(move |page| page.map(|page| page.into_iter().filter(selects).collect()))
    }
}
