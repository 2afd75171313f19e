//! The namespaces of a ring, as one look shows them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::ListParams,
    core::{PartialObjectMeta, Selector, SelectorExt as _},
};

use crate::pages::{PageSize, next_page};

/// The names of the namespaces that the selector matches.
pub(super) async fn selected(client: &Client, selector: &Selector) -> Result<BTreeSet<String>, kube::Error> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let (mut parameters, mut size) = (ListParams::default(), PageSize::default());
    let mut selected = BTreeSet::new();
    loop {
        let page = next_page(&api, &mut parameters, &mut size).await?;
        let matching = page.items.into_iter().map(|namespace| namespace.metadata);
        let matching = matching.filter(|it| selector.matches(it.labels.as_ref().unwrap_or(&Default::default())));
        selected.extend(matching.filter_map(|metadata| metadata.name));
        if parameters.continue_token.is_none() {
            return Ok(selected);
        }
    }
}
