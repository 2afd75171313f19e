//! Objects of one resource, page by page, each page reduced to what matters here before the next is asked for.

use futures::{Stream, stream};
use kube::{Api, api::ListParams};
use ringside_ring::RingLabels;

use crate::{resources::Object, target::Target};

/// Objects on a page.
pub(crate) const PAGE: usize = 500;

/// Lists what the parameters select.
pub(crate) fn pages_of(
    api: Api<Object>,
    labels: RingLabels,
    parameters: ListParams,
) -> impl Stream<Item = Result<Vec<Target>, kube::Error>> + use<> {
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
