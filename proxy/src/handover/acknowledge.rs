//! The acknowledgement: the write that says "nobody owns this object now".

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use ringside_ring::{RingLabels, ShardName, patch};
use tokio::sync::Semaphore;

use super::drain::Drained;
use ringside_runtime::explain::causes;

/// How long to wait before the first retry, and at most.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// Who can acknowledge: the API server's client, or a test.
pub(super) trait Acknowledge: Send {
    /// Returns once there is nothing left to do about this drain.
    fn acknowledge(&self, object: &Drained) -> impl Future<Output = ()> + Send;
}

/// Acknowledges by a JSON patch that tests what was decided on.
#[derive(Clone)]
pub(super) struct ByPatch {
    pub(super) client: Client,
    pub(super) api: ApiResource,
    pub(super) labels: RingLabels,
    pub(super) shard: ShardName,
    pub(super) seats: Arc<Semaphore>,
}

impl Acknowledge for ByPatch {
    async fn acknowledge(&self, object: &Drained) {
        let mut pause = FIRST_RETRY;
        loop {
            let answer = {
                // Closed never.
                let _seat = self.seats.acquire().await;
                self.send(object).await
            };
            let Drained { resource, namespace, name, uid, .. } = object;
            match answer {
                Ok(()) => {
                    tracing::debug!(%resource, namespace, name, uid, "let go");
                    return;
                }
                // Gone; or written again since, which our watch will show: the labels are no more as they were.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => return,
                Err(error) => {
                    tracing::warn!(%resource, namespace, name, uid, error = causes(&error), retry_in = ?pause, "can't acknowledge a drain");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
            }
        }
    }
}

impl ByPatch {
    async fn send(&self, object: &Drained) -> kube::Result<()> {
        let api: Api<DynamicObject> = match &object.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.api),
            None => Api::all_with(self.client.clone(), &self.api),
        };
        let patch = patch::acknowledge(&self.labels, &object.uid, &self.shard, &object.drain);
        // The answer's metadata only: the object may be large.
        api.patch_metadata(&object.name, &PatchParams::default(), &Patch::Json::<()>(patch)).await.map(drop)
    }
}
