//! Objects of one resource, page by page, each page reduced to what matters here before the next is asked for.

use futures::{Stream, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
    pages_with(api, parameters, move |object| Target::of(object, &labels))
}

/// Lists what the parameters select, and keeps of each object what `keep` makes of it.
pub(crate) fn pages_with<T, K: Fn(&ObjectMeta) -> T + Clone>(
    api: Api<Object>,
    parameters: ListParams,
    keep: K,
) -> impl Stream<Item = Result<Vec<T>, kube::Error>> + use<T, K> {
    stream::try_unfold(Some(parameters), move |next| {
        let (api, keep) = (api.clone(), keep.clone());
        async move {
            let Some(mut parameters) = next else { return Ok(None) };
            let page = api.list(&parameters).await?;
            let kept = page.items.iter().map(|object| keep(&object.metadata)).collect();
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = parameters.continue_token.is_some().then_some(parameters);
            Ok(Some((kept, next)))
        }
    })
}
