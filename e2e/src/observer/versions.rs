//! Every version of the objects of some resources, as watches show them.
//!
//! The audit log has no outcome of a request whose client went away before the answer: it may have been carried out.

use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use ringside_ring::{RingLabels, cluster_ring::GroupResource, partition::controller_of};
use tokio::task::JoinHandle;

use crate::checker::{Labels, Object, Seen};

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Versions {
    seen: Arc<Mutex<Vec<Seen>>>,
    watches: JoinHandle<()>,
}

impl Versions {
    /// Starts to watch.
    pub fn start(client: &Client, resources: Vec<ApiResource>, labels: &RingLabels) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (client, labels, into) = (client.clone(), labels.clone(), seen.clone());
        let watches = tokio::spawn(async move {
            let events = resources.into_iter().map(|resource| {
                let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
                let events = watcher(api, watcher::Config::default()).default_backoff();
                events.map(move |event| (resource.clone(), event)).boxed()
            });
            let mut events = stream::select_all(events);
            while let Some((resource, event)) = events.next().await {
                let version = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => version(&resource, &object, &labels),
                    // The audit log has all deletions that were answered.
                    Ok(Event::Delete(_) | Event::Init | Event::InitDone) => None,
                    Err(error) => {
                        tracing::warn!(%error, "a watch on versions was interrupted");
                        None
                    }
                };
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(version);
            }
        });
        Self { seen, watches }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.watches.abort();
    }
}

fn version(resource: &ApiResource, object: &PartialObjectMeta<DynamicObject>, labels: &RingLabels) -> Option<Seen> {
    let metadata = &object.metadata;
    let ownership = labels.ownership(metadata.labels.as_ref());
    Some(Seen {
        at: Timestamp::now(),
        resource: GroupResource { group: resource.group.clone(), resource: resource.plural.clone() },
        object: Object {
            uid: metadata.uid.clone()?,
            name: format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref()?),
            version: Some(metadata.resource_version.as_deref()?.parse().ok()?),
            labels: Some(Labels {
                shard: ownership.shard.map(str::to_owned),
                drain: ownership.drain.map(str::to_owned),
            }),
            controller: controller_of(metadata.owner_references.as_deref()).map(|owner| owner.uid.clone()),
            holder: None,
        },
    })
}
