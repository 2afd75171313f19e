//! The labels of one resource's objects: lists of what carries them, and writes that take them off.

use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::{Client, api::ListParams};
use ringside_ring::{RingLabels, ShardName, decide::Action};

use super::{Scope, Tally};
use crate::{pages::pages_of, release::release_or_drain, resources::Resource, target::Target, writes::Writes};
use ringside_runtime::explain::{code, explain};

/// Objects written to at once.
pub(crate) const PARALLEL: usize = 32;

/// The objects with any of the two labels, page by page; selectors can't say "or".
fn pages(
    client: &Client,
    labels: &RingLabels,
    resource: &Resource,
) -> impl Stream<Item = Result<Vec<Target>, kube::Error>> + use<> {
    let (api, labels) = (resource.objects(client, None), labels.clone());
    let selectors = [labels.shard.clone(), format!("!{},{}", labels.shard, labels.drain)];
    stream::iter(selectors).flat_map(move |selector| {
        let parameters = ListParams::default().labels(&selector);
        pages_of(api.clone(), labels.clone(), parameters)
    })
}

/// All objects that carry a label.
pub(crate) async fn list(
    client: &Client,
    labels: &RingLabels,
    resource: &Resource,
) -> Result<Vec<Target>, kube::Error> {
    match pages(client, labels, resource).try_concat().await {
        // It is served no more, and has none.
        Err(error) if code(&error) == Some(404) => Ok(Vec::new()),
        found => found,
    }
}

/// How writes to objects of one resource ended.
pub(super) struct Written {
    pub(super) taken: usize,
    /// The objects that could not be written to.
    pub(super) failed: Vec<Target>,
    /// Why not.
    pub(super) fault: Option<String>,
}

/// Takes the labels off these objects, as far as `next` says so of each.
pub(super) async fn write_all(
    writes: &Writes,
    at: (&Client, &Resource),
    labels: &RingLabels,
    objects: Vec<Target>,
    next: &impl Fn(&Target) -> Action<ShardName>,
) -> Written {
    let one = async |object: Target| (object.clone(), release_or_drain(writes, at, labels, object, next).await);
    let mut outcomes = std::pin::pin!(stream::iter(objects).map(one).buffer_unordered(PARALLEL));
    let mut written = Written { taken: 0, failed: Vec::new(), fault: None };
    while let Some((object, outcome)) = outcomes.next().await {
        match outcome {
            Ok(outcome) => written.taken += usize::from(outcome.wrote()),
            Err(error) => {
                written.failed.push(object);
                written.fault.get_or_insert_with(|| explain(&error));
            }
        }
    }
    written
}

/// Looks at every object that carries a label and is in the scope, and does what is next with it.
pub(crate) async fn change(
    writes: &Writes,
    (client, resource): (&Client, &Resource),
    labels: &RingLabels,
    scope: &Scope,
    next: impl Fn(&Target) -> Action<ShardName>,
) -> Tally {
    let mut tally = Tally::default();
    let mut pages = std::pin::pin!(pages(client, labels, resource));
    while let Some(page) = pages.next().await {
        let mut page = match page {
            Ok(page) => page,
            Err(error) => {
                tally.fault = tally.fault.or(unread(&error));
                break;
            }
        };
        page.retain(|object| scope.includes(&resource.id, object));
        tally.found += page.len();
        let written = write_all(writes, (client, resource), labels, page, &next).await;
        tally.taken += written.taken;
        tally.left += written.failed.len();
        tally.fault = tally.fault.or(written.fault);
    }
    tally
}

/// Why there may be objects that were not seen; a resource that is served no more has none.
fn unread(error: &kube::Error) -> Option<String> {
    (code(error) != Some(404)).then(|| explain(error))
}
