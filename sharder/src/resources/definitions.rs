//! The CustomResourceDefinitions: when they come, change or go, what is known of their resources is old.
//!
//! Nothing of them is kept. Where the sharder may not watch them, changes are found once a period.

use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::explain_watch;

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// The definition of this name.
    One(String),
    /// Perhaps some of them: the watch was away.
    Any,
}

impl Changed {
    /// Whether what is known of a resource may be old.
    pub(super) fn defines(&self, resource: &GroupResource) -> bool {
        match self {
            // The API server accepts no other name of a definition.
            Self::One(name) => *name == format!("{}.{}", resource.resource, resource.group),
            Self::Any => true,
        }
    }
}

/// Tells when definitions change.
pub(super) fn changes(client: Client) -> impl Stream<Item = Changed> {
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client);
    let config = watcher::Config::default();
    let events = watcher(api, config).default_backoff();
    events
        .scan(false, |listed, event| {
            let changed = match event {
                // The first list shows what has just been looked up.
                Ok(Event::InitDone) => std::mem::replace(listed, true).then_some(Changed::Any),
                Ok(Event::Init | Event::InitApply(_)) => None,
                Ok(Event::Apply(definition) | Event::Delete(definition)) => definition.metadata.name.map(Changed::One),
                Err(error) => {
                    let error = explain_watch(&error);
                    tracing::debug!(error, "can't watch CustomResourceDefinitions; they are looked up once a period");
                    None
                }
            };
            std::future::ready(Some(changed))
        })
        .filter_map(std::future::ready)
}
