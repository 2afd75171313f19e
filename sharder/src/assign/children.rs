//! Moves the children of a batch: before their owners get a shard, so that the new shard finds them and does
//! not create them again (DESIGN, "Sharder: Children").

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{ListParams, VersionMatch},
};
use ringside_ring::{RingLabels, ShardName, cluster_ring::GroupResource};

use super::{
    BATCH, PARALLEL, Scope,
    plan::{Search, Sought, searches},
};
use crate::{
    child::bring,
    resources::{Object, Resource},
    target::Target,
};

/// Lists of one resource at once.
const SEARCHES: usize = 8;

/// A controlled object of an owner that moves.
#[derive(Clone, Debug)]
pub(super) struct Child {
    kind: Arc<Resource>,
    object: Target,
}

/// The objects that follow one owner, by their distance from it: its children, theirs, and so on.
pub(super) type Family = Vec<Vec<Child>>;

/// Finds the families of `owners`, by the uid of the owner. What is kept is what follows them, whatever else is listed, and
/// no more than `most` objects: of an owner whose family is too large there is nothing.
///
/// A chain is followed link by link: who is controlled by a child is only known when all children are. Another list is made
/// only of resources that showed objects with a controller that is controlled itself. That one may be as old as the first of
/// its resource, which showed all that was asked for: so the API server has it at hand, and needs not ask etcd how far it is,
/// which takes it up to a tenth of a second.
///
/// # Errors
/// When the children can't be listed: then none of the owners may be assigned.
pub(super) async fn families(
    scope: &Scope,
    sought: &[Sought],
    most: usize,
) -> Result<HashMap<String, Family>, kube::Error> {
    let searches = searches(sought, &scope.snapshot.labels);
    let mut families = Families { most, ..Families::default() };
    families.by_owner.extend(sought.iter().map(|one| (one.uid.clone(), Family::new())));
    let mut owners: HashMap<String, String> = sought.iter().map(|one| (one.uid.clone(), one.uid.clone())).collect();
    let unknown: Versions = vec![None; searches.len()];
    let mut kinds: Vec<_> = scope.main.controlled.iter().map(|kind| (kind.clone(), unknown.clone())).collect();
    let mut distance = 0;
    while !kinds.is_empty() && !owners.is_empty() {
        let found = kinds.iter().map(|(kind, versions)| find(scope, kind, searches.iter().zip(versions), &owners));
        let found = futures::future::try_join_all(found).await?;
        let mut next = HashMap::new();
        kinds = Vec::new();
        for Found { kind, children, chained, versions } in found {
            for (owner, object) in children {
                next.insert(object.uid.clone(), owner.clone());
                families.add(&owner, distance, Child { kind: kind.clone(), object });
            }
            kinds.extend(chained.then_some((kind, versions)));
        }
        owners = next;
        distance += 1;
    }
    Ok(families.by_owner)
}

/// Families as they are found.
#[derive(Default)]
struct Families {
    by_owner: HashMap<String, Family>,
    size: usize,
    most: usize,
}

impl Families {
    fn add(&mut self, owner: &str, distance: usize, child: Child) {
        let Some(family) = self.by_owner.get_mut(owner) else { return };
        if self.size >= self.most {
            self.size -= family.iter().map(Vec::len).sum::<usize>();
            self.by_owner.remove(owner);
            return;
        }
        family.resize_with(family.len().max(distance + 1), Vec::new);
        family[distance].push(child);
        self.size += 1;
    }
}

/// Of which version the last list of a kind was, by search.
type Versions = Vec<Option<String>>;

/// The objects of one kind that certain objects control.
struct Found {
    kind: Arc<Resource>,
    /// Each with the uid of the owner that it follows in the end.
    children: Vec<(String, Target)>,
    /// Whether controlled objects control some of this kind.
    chained: bool,
    versions: Versions,
}

impl Found {
    fn nothing(kind: &Arc<Resource>) -> Self {
        Self { kind: kind.clone(), children: Vec::new(), chained: false, versions: Vec::new() }
    }
}

/// `owners`: the owner in the end, by the uid of the object that may control some of `kind`. A new leader looks in each
/// namespace by itself, and each list of the present waits for etcd: so some of them are asked for at once.
async fn find(
    scope: &Scope,
    kind: &Arc<Resource>,
    searches: impl Iterator<Item = (&Search, &Option<String>)>,
    owners: &HashMap<String, String>,
) -> Result<Found, kube::Error> {
    let lists: Vec<_> =
        searches.map(|(search, at_least)| search_in(scope, kind, search, at_least.as_deref(), owners)).collect();
    let mut lists = std::pin::pin!(stream::iter(lists).buffered(SEARCHES));
    let mut found = Found::nothing(kind);
    while let Some(Found { children, chained, versions, .. }) = lists.try_next().await? {
        found.children.extend(children);
        found.chained |= chained;
        found.versions.extend(versions);
    }
    Ok(found)
}

/// What one of the searches finds.
async fn search_in(
    scope: &Scope,
    kind: &Arc<Resource>,
    search: &Search,
    at_least: Option<&str>,
    owners: &HashMap<String, String>,
) -> Result<Found, kube::Error> {
    let mut found = Found::nothing(kind);
    let (mut pages, mut version) = (std::pin::pin!(pages(scope, kind, search, at_least)), None);
    while let Some(page) = pages.try_next().await? {
        version = page.version;
        for child in page.targets {
            let Some(controller) = &child.controller else { continue };
            match owners.get(&controller.uid) {
                Some(owner) => found.children.push((owner.clone(), child)),
                None => found.chained |= scope.main.link(controller).is_some(),
            }
        }
    }
    found.versions.push(version);
    Ok(found)
}

/// Brings a family to where its owner is going, the farthest first: whoever works on an object must find what follows it
/// there. Fails when one of them stays behind, with its resource.
pub(super) async fn move_family(
    scope: &Scope,
    family: Family,
    to: &ShardName,
) -> Result<(), (GroupResource, kube::Error)> {
    for distance in family.into_iter().rev() {
        let moved = distance.into_iter().map(|Child { kind, object }| async move {
            bring(scope, &kind, object, to).await.map(drop).map_err(|error| (kind.id.clone(), error))
        });
        stream::iter(moved).buffer_unordered(PARALLEL).try_collect::<()>().await?;
    }
    Ok(())
}

/// The objects of one kind where the children are, page by page; `at_least` as a list was that showed enough.
///
/// Without that the list is not older than the request: it must show every child that the old shard created before it let go.
fn pages(
    scope: &Scope,
    kind: &Resource,
    search: &Search,
    at_least: Option<&str>,
) -> impl futures::Stream<Item = Result<Page, kube::Error>> {
    let namespace = search.namespace.as_deref();
    let mut parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    parameters.label_selector.clone_from(&search.selector);
    if let Some(version) = at_least {
        parameters = parameters.at(version).matching(VersionMatch::NotOlderThan);
    }
    whole_pages(kind.objects(&scope.client, namespace), scope.snapshot.labels.clone(), parameters)
}

/// Lists the objects of one resource page by page, each reduced to what matters here before the next is asked for.
pub(crate) fn list(
    scope: &Scope,
    kind: &Resource,
    namespace: Option<&str>,
    parameters: ListParams,
) -> impl futures::Stream<Item = Result<Vec<Target>, kube::Error>> {
    pages_of(kind.objects(&scope.client, namespace), scope.snapshot.labels.clone(), parameters)
}

/// The same for whoever has no snapshot of the ring.
pub(crate) fn pages_of(
    api: Api<Object>,
    labels: RingLabels,
    parameters: ListParams,
) -> impl futures::Stream<Item = Result<Vec<Target>, kube::Error>> + use<> {
    whole_pages(api, labels, parameters).map_ok(|page| page.targets)
}

/// A page of a list, and of which version all of its pages are.
struct Page {
    targets: Vec<Target>,
    version: Option<String>,
}

fn whole_pages(
    api: Api<Object>,
    labels: RingLabels,
    parameters: ListParams,
) -> impl futures::Stream<Item = Result<Page, kube::Error>> + use<> {
    stream::try_unfold(Some(parameters), move |next| {
        let (api, labels) = (api.clone(), labels.clone());
        async move {
            let Some(mut parameters) = next else { return Ok(None) };
            let page = api.list(&parameters).await?;
            let targets = page.items.iter().map(|object| Target::of(&object.metadata, &labels)).collect();
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = parameters.continue_token.is_some().then_some(parameters);
            Ok(Some((Page { targets, version: page.metadata.resource_version }, next)))
        }
    })
}
