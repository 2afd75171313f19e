//! Moves the children of a batch: before their owners get a shard, so that the new shard finds them and does
//! not create them again (DESIGN, "Sharder: Children").

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Api, api::ListParams};
use ringside_ring::{RingLabels, ShardName};

use super::{
    BATCH, PARALLEL_WRITES, Scope,
    failures::Failures,
    plan::{Move, Search, child_destination, destinations, searches},
    write::{assign, write},
};
use crate::{
    faults::Task,
    resources::{Object, Resource},
    target::Target,
};

/// Moves the children of `moves`; returns the uids of owners whose children could not all be moved.
///
/// # Errors
/// When the children can't be listed: then none of the owners may be assigned.
pub(super) async fn move_children(scope: &Scope, moves: &[Move]) -> Result<BTreeSet<String>, kube::Error> {
    let searches = searches(moves, &scope.snapshot.labels);
    let destinations = destinations(moves);
    let kinds = scope.main.controlled.iter().map(|kind| move_kind(scope, kind, &searches, &destinations));
    let failed = futures::future::try_join_all(kinds).await?;
    Ok(failed.into_iter().flatten().collect())
}

async fn move_kind(
    scope: &Scope,
    kind: &Resource,
    searches: &[Search],
    destinations: &BTreeMap<&str, &ShardName>,
) -> Result<BTreeSet<String>, kube::Error> {
    let (mut failed, mut failures) = (BTreeSet::new(), Failures::default());
    for search in searches {
        let mut pages = std::pin::pin!(pages(scope, kind, search));
        while let Some(page) = pages.try_next().await? {
            let outcomes = stream::iter(page).map(|child| move_child(scope, kind, child, destinations));
            let mut outcomes = std::pin::pin!(outcomes.buffer_unordered(PARALLEL_WRITES));
            while let Some(outcome) = outcomes.next().await {
                if let Err((owner, error)) = outcome {
                    failed.extend(owner);
                    failures.add(error);
                }
            }
        }
    }
    if let Some(first) =
        failures.tell(&scope.snapshot.ring, &kind.id, "can't move children; their owners wait for them")
    {
        scope.faults.failed(&scope.main.resource.id, Task::Assign, &first);
    }
    Ok(failed)
}

/// The objects of one kind where the children are, page by page.
///
/// Without a resourceVersion, so that the list is not older than the request: it must show every child that the old
/// shard created before it let go.
fn pages(
    scope: &Scope,
    kind: &Resource,
    search: &Search,
) -> impl futures::Stream<Item = Result<Vec<Target>, kube::Error>> {
    let namespace = search.namespace.as_deref();
    let mut parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    parameters.label_selector.clone_from(&search.selector);
    list(scope, kind, namespace, parameters)
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
    stream::try_unfold(Some(parameters), move |next| {
        let (api, labels) = (api.clone(), labels.clone());
        async move {
            let Some(mut parameters) = next else { return Ok(None) };
            let page = api.list(&parameters).await?;
            let targets = page.items.iter().map(|object| Target::of(&object.metadata, &labels)).collect();
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = parameters.continue_token.is_some().then_some(parameters);
            Ok(Some((targets, next)))
        }
    })
}

/// Returns the owner's uid when it failed.
async fn move_child(
    scope: &Scope,
    kind: &Resource,
    child: Target,
    destinations: &BTreeMap<&str, &ShardName>,
) -> Result<(), (Option<String>, kube::Error)> {
    let labels = &scope.snapshot.labels;
    let owner = child.controller.as_ref().map(|owner| owner.uid.clone());
    let api = kind.objects(&scope.client, child.namespace.as_deref());
    // Another owner may have adopted it meanwhile, or taken its label off.
    let decide = |child: &Target| child_destination(child, destinations).map(|to| assign(labels, child, &to));
    write(&scope.writes, &api, labels, child, decide).await.map(drop).map_err(|error| (owner, error))
}
