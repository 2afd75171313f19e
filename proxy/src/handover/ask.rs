//! The exact question: could this watch have shown this object? For selectors that only the API server understands.

use kube::{
    Api, Client,
    api::{ListParams, VersionMatch},
    core::{ApiResource, DynamicObject},
};
use ringside_runtime::explain::code;
use tokio::time::timeout;

use super::acknowledge::ANSWER;
use crate::views::{DrainingObject, Scope};

/// What the API server says to it.
#[derive(Debug)]
pub(super) enum Shown {
    /// The watch showed the object, and is sent a `DELETED`.
    Yes,
    /// It did not.
    No,
    /// The API server has forgotten that state.
    Compacted,
    /// It does not answer that.
    Unanswered(String),
}

/// Asks for the state right before the write that drained the object: the watch's own selectors and the name, at X - 1.
pub(super) async fn shown(client: &Client, api: &ApiResource, scope: &Scope, object: &DrainingObject) -> Shown {
    let Scope { resource, version, labels, fields, .. } = scope;
    // A field selector means what the version says that it was sent to.
    let group = if resource.group.is_empty() { String::new() } else { format!("{}/", resource.group) };
    let api = ApiResource { version: version.clone(), api_version: format!("{group}{version}"), ..api.clone() };
    let objects: Api<DynamicObject> = match &object.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &api),
        None => Api::all_with(client.clone(), &api),
    };
    let question = ListParams::default()
        .labels(&labels.to_string())
        .fields(&fields.and_name(&object.name))
        .at(&object.version.before().to_string())
        .matching(VersionMatch::Exact);
    match timeout(ANSWER, objects.list_metadata(&question)).await {
        Ok(Ok(found)) if found.items.iter().any(|it| it.metadata.uid.as_deref() == Some(&*object.uid)) => Shown::Yes,
        Ok(Ok(_)) => Shown::No,
        Ok(Err(error)) if code(&error) == Some(410) => Shown::Compacted,
        Ok(Err(error)) => Shown::Unanswered(ringside_runtime::explain::explain(&error)),
        Err(_) => Shown::Unanswered(format!("no answer from the API server within {ANSWER:?}")),
    }
}

#[cfg(test)]
mod tests;
