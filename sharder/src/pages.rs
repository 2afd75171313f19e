//! Objects of one resource, page by page. The sizes of pages follow the bytes that were seen: objects may have 256 KiB of annotations each.

use std::{fmt::Debug, pin::pin};

use futures::{AsyncReadExt as _, Stream, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    api::ListParams,
    core::{ObjectList, Request},
};
use ringside_ring::RingLabels;
use serde::de::DeserializeOwned;

use crate::{resources::Object, target::Target};

/// Objects on a page of light ones.
const MAX_OBJECTS: u32 = 500;
/// Bytes that a page is to have at most.
const AIM: u64 = 8 << 20;
/// Bytes after which a page is given up, and fewer objects are asked for.
const MAX_BYTES: u64 = 2 * AIM;
/// By how much fewer.
const FEWER: u32 = 8;

/// How many objects a page of a list has next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSize(u32);

impl Default for PageSize {
    fn default() -> Self {
        Self(MAX_OBJECTS)
    }
}

impl PageSize {
    /// After a page of so many objects and bytes.
    fn after(objects: usize, bytes: usize) -> Self {
        let (objects, bytes) = (objects.max(1) as u64, bytes.max(1) as u64);
        let next = (AIM * objects / bytes).clamp(1, u64::from(MAX_OBJECTS));
        Self(u32::try_from(next).unwrap_or(MAX_OBJECTS))
    }

    /// After a page that was given up; none where it had one object.
    fn fewer(self) -> Option<Self> {
        (self.0 > 1).then(|| Self((self.0 / FEWER).max(1)))
    }
}

/// Reads the page that the parameters name, and names the next by them; there is none where no token is left.
pub(crate) async fn next_page<K: kube::Resource + Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    parameters: &mut ListParams,
    size: &mut PageSize,
) -> Result<ObjectList<K>, kube::Error> {
    let bytes = loop {
        parameters.limit = Some(size.0);
        let request = Request::new(api.resource_url());
        let request = if K::metadata_api() { request.list_metadata(parameters) } else { request.list(parameters) };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let mut body = pin!(api.clone().into_client().request_stream(request).await?);
        let mut bytes = Vec::new();
        (&mut body).take(MAX_BYTES).read_to_end(&mut bytes).await.map_err(kube::Error::ReadEvents)?;
        match size.fewer().filter(|_| bytes.len() as u64 == MAX_BYTES) {
            Some(fewer) => *size = fewer,
            None => {
                body.read_to_end(&mut bytes).await.map_err(kube::Error::ReadEvents)?;
                break bytes;
            }
        }
    };
    let page: ObjectList<K> = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
    *size = PageSize::after(page.items.len(), bytes.len());
    parameters.continue_token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
    Ok(page)
}

/// Lists what the parameters select.
pub(crate) fn pages_of(
    api: Api<Object>,
    labels: RingLabels,
    parameters: ListParams,
) -> impl Stream<Item = Result<Vec<Target>, kube::Error>> + use<> {
    pages_with(api, parameters, move |object| Target::of(object, &labels))
}

/// Lists what the parameters select, and keeps of each object what `keep` makes of it before the next page is asked for.
pub(crate) fn pages_with<T, K: Fn(&ObjectMeta) -> T + Clone>(
    api: Api<Object>,
    parameters: ListParams,
    keep: K,
) -> impl Stream<Item = Result<Vec<T>, kube::Error>> + use<T, K> {
    stream::try_unfold(Some((parameters, PageSize::default())), move |next| {
        let (api, keep) = (api.clone(), keep.clone());
        async move {
            let Some((mut parameters, mut size)) = next else { return Ok(None) };
            let page = next_page(&api, &mut parameters, &mut size).await?;
            let kept = page.items.iter().map(|object| keep(&object.metadata)).collect();
            Ok(Some((kept, parameters.continue_token.is_some().then_some((parameters, size)))))
        }
    })
}

#[cfg(test)]
mod tests;
