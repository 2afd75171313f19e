//! The namespaces of a ring, as one look shows them.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::ListParams,
    core::{Selector, SelectorExt as _},
    discovery::ApiResource,
};

use crate::{pages::pages_with, resources::Object};

/// The names of the namespaces that the selector matches.
pub(super) async fn selected(client: &Client, selector: &Selector) -> Result<BTreeSet<String>, kube::Error> {
    let api: Api<Object> = Api::all_with(client.clone(), &ApiResource::erase::<Namespace>(&()));
    let name = |namespace: &ObjectMeta| {
        let is_selected = selector.matches(namespace.labels.as_ref().unwrap_or(&Default::default()));
        namespace.name.clone().filter(|_| is_selected)
    };
    let names = pages_with(api, ListParams::default(), name).try_concat().await?;
    Ok(names.into_iter().flatten().collect())
}
