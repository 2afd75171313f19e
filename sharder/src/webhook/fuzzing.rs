//! The webhook as a function of the bytes that it is sent, for its fuzz target and the test that replays its corpus.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use kube::{Client, client::Body, discovery::ApiResource};
use ringside_inject::Sidecar;
use ringside_ring::{Members, Ring, RingName, ShardName, cluster_ring::GroupResource, lease::ShardState};
use ringside_runtime::clock::Boottime;
use tokio::{runtime::Runtime, sync::watch};

use super::{Injector, Room, reviewer::Reviewer};
use crate::{leases::Leases, metrics::Metrics, namespaces::Namespaces, resources::Resource, snapshot::Snapshot};

#[cfg(test)]
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
#[path = "../../../fuzz/src/inject.rs"]
mod inject;
#[cfg(test)]
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[cfg(test)]
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
#[path = "../../../fuzz/src/review.rs"]
mod review;
#[cfg(test)]
use ringside_inject::uninject;

/// Few: the target is about what is made of the placement.
const TOKENS: NonZeroU32 = NonZeroU32::MIN;

/// A webhook that knows one ring, and finds no API server when it asks for an owner.
pub struct Webhook {
    runtime: Runtime,
    reviewer: Reviewer,
    ring: RingName,
}

impl Webhook {
    /// For this ring, whose resources are served with these kinds, in namespaces, and which has these shards.
    pub fn new(ring: &Ring, served: &[(GroupResource, &str)], shards: &[ShardName]) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
        let resources = served.iter().map(|(id, kind)| {
            let api = ApiResource {
                group: id.group.clone(),
                version: "v1".to_owned(),
                api_version: if id.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", id.group) },
                kind: (*kind).to_owned(),
                plural: id.resource.clone(),
            };
            (id.clone(), Ok(Arc::new(Resource::new(id.clone(), api, true))))
        });
        let members: Members = shards.iter().map(|shard| (shard.clone(), ShardState::Ready)).collect();
        let name = ring.name().ok()?;
        let snapshot = Snapshot::build(name.clone(), ring, &resources.collect(), members, None, TOKENS);
        let snapshots = Arc::new(BTreeMap::from([(name.clone(), Arc::new(snapshot))]));
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        });
        // kube's client begins its worker on the runtime.
        let client = runtime.block_on(async { Client::new(nobody, "default") });
        let injector =
            Injector::new(client.clone(), Namespaces::follow(client.clone()).0, ("proxy", Default::default()));
        let reviewer = Reviewer {
            client,
            leases: Leases::new(Arc::new(Boottime)),
            snapshots: watch::channel(Some(snapshots)).1,
            metrics: Metrics::default(),
            room: Room::default(),
            owners: Arc::default(),
            creates: Default::default(),
            injector: Some(injector.knowing(Sidecar::Native)),
        };
        Some(Self { runtime, reviewer, ring: name })
    }

    /// The answer to a body that is a review of a pod; none where the failure policy decides.
    pub fn inject(&self, body: &[u8]) -> Option<Vec<u8>> {
        let answer = self.runtime.block_on(self.reviewer.injector.as_ref()?.answer(body)).ok()?;
        serde_json::to_vec(&answer).ok()
    }

    /// The answer to a body.
    pub fn answer(&self, body: &[u8]) -> Option<Vec<u8>> {
        let answer = self.runtime.block_on(self.reviewer.answer(self.ring.kind(), self.ring.name(), body));
        serde_json::to_vec(&answer).ok()
    }
}

#[test]
fn injections_keep_their_promises_on_the_corpus() {
    replay::replay("inject", inject::run);
}

#[test]
fn answers_keep_their_promises_on_the_corpus() {
    replay::replay("review", review::run);
}
