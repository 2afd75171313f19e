//! A list in JSON, as an API server answers it.

use serde::Deserialize;

/// A list, or a page of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    /// `ThingList`; of metadata, `PartialObjectMetadataList`.
    pub(super) kind: String,
    /// That of its objects, if they are whole.
    pub(super) api_version: String,
    pub(super) metadata: ListMeta,
    /// API servers write an empty list as none.
    pub(super) items: Option<Vec<T>>,
}

/// Of which state a list is, and what comes next.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    pub(super) r#continue: Option<String>,
}
