//! All objects of a cluster, to tell what an installation leaves behind.

use std::collections::BTreeSet;

use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
    core::PartialObjectMeta,
    discovery::{Discovery, verbs},
};

/// What every cluster makes and deletes on its own.
const PASSING: [&str; 6] = ["Event", "Pod", "ReplicaSet", "ControllerRevision", "EndpointSlice", "Endpoints"];

/// The API groups of labels that a ring puts on objects.
const RING_LABELS: [&str; 2] = ["sharding.timebertt.dev/", "ringside.dev/"];

/// The objects of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Kind, namespace and name.
    pub(crate) objects: BTreeSet<String>,
    /// Those that have a label or an annotation of a ring.
    pub(crate) marked: BTreeSet<String>,
}

impl Inventory {
    pub(crate) async fn take(client: &Client) -> Self {
        let mut inventory = Self::default();
        let discovery = Discovery::new(client.clone()).run().await.unwrap();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                if !capabilities.supports_operation(verbs::LIST) {
                    continue;
                }
                let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
                for object in api.list_metadata(&ListParams::default()).await.unwrap() {
                    let namespace = object.namespace().unwrap_or_default();
                    let name = format!("{} {namespace}/{}", resource.kind, object.name_any());
                    let keys = || object.labels().keys().chain(object.annotations().keys());
                    if keys().any(|key| RING_LABELS.iter().any(|part| key.contains(part))) {
                        inventory.marked.insert(name.clone());
                    }
                    // Each node renews a Lease of its own.
                    if !PASSING.contains(&resource.kind.as_str()) && namespace != "kube-node-lease" {
                        inventory.objects.insert(name);
                    }
                }
            }
        }
        inventory
    }
}
