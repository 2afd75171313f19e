//! The labels of one resource's objects, taken off page by page: memory is a page.

use futures::{Stream, StreamExt, stream};
use json_patch::Patch;
use kube::{Client, api::ListParams};
use ringside_ring::{RingLabels, patch};

use super::Tally;
use crate::{
    assign::{
        BATCH, PARALLEL,
        children::pages_of,
        write::{Outcome, write},
        writes::Writes,
    },
    resources::Resource,
    target::Target,
};
use ringside_runtime::explain::{code, explain};

/// The objects with any of the two labels, page by page; selectors can't say "or".
fn pages(
    client: &Client,
    labels: &RingLabels,
    resource: &Resource,
) -> impl Stream<Item = Result<Vec<Target>, kube::Error>> + use<> {
    let (api, labels) = (resource.objects(client, None), labels.clone());
    let selectors = [labels.shard.clone(), format!("!{},{}", labels.shard, labels.drain)];
    stream::iter(selectors).flat_map(move |selector| {
        let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX)).labels(&selector);
        pages_of(api.clone(), labels.clone(), parameters)
    })
}

/// Looks at every object that carries a label, and takes both off.
pub(super) async fn take_off(client: &Client, writes: &Writes, labels: &RingLabels, resource: &Resource) -> Tally {
    change(client, writes, labels, resource, |target| patch::release(labels, &target.uid, &target.ownership())).await
}

/// Looks at every object that carries a label, and writes what `decide` says.
pub(crate) async fn change(
    client: &Client,
    writes: &Writes,
    labels: &RingLabels,
    resource: &Resource,
    decide: impl Fn(&Target) -> Option<Patch>,
) -> Tally {
    let mut tally = Tally::default();
    let mut pages = std::pin::pin!(pages(client, labels, resource));
    while let Some(page) = pages.next().await {
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                tally.fault = tally.fault.or(unread(&error));
                break;
            }
        };
        tally.found += page.len();
        let outcomes = stream::iter(page).map(|target| apply(client, writes, labels, resource, target, &decide));
        let mut outcomes = std::pin::pin!(outcomes.buffer_unordered(PARALLEL));
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(taken) => tally.taken += usize::from(taken),
                Err(error) => {
                    tally.left += 1;
                    tally.fault.get_or_insert_with(|| explain(&error));
                }
            }
        }
    }
    tally
}

/// Counts the objects that carry a label.
pub(crate) async fn count(client: &Client, labels: &RingLabels, resource: &Resource) -> Tally {
    let mut pages = std::pin::pin!(pages(client, labels, resource));
    let mut tally = Tally::default();
    while let Some(page) = pages.next().await {
        match page {
            Ok(page) => tally.found += page.len(),
            Err(error) => {
                tally.fault = unread(&error);
                break;
            }
        }
    }
    tally
}

/// Why there may be objects that were not seen; a resource that is served no more has none.
fn unread(error: &kube::Error) -> Option<String> {
    (code(error) != Some(404)).then(|| explain(error))
}

/// Returns whether there was something to write.
async fn apply(
    client: &Client,
    writes: &Writes,
    labels: &RingLabels,
    resource: &Resource,
    target: Target,
    decide: &impl Fn(&Target) -> Option<Patch>,
) -> Result<bool, kube::Error> {
    Ok(matches!(write(writes, (client, resource), labels, target, decide).await?, Outcome::Written { .. }))
}
