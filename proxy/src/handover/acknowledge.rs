//! The acknowledgement: the write that says "this object has no owner now".

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta},
};
use ringside_ring::{RingLabels, ShardName, labels::ACKNOWLEDGER, patch};
use ringside_runtime::explain::{code, explain};
use tokio::time::timeout;

use super::ask::{Shown, shown};
use crate::views::{DrainingObject, Scope};

#[cfg(test)]
mod tests;

/// How long an attempt may take: kube's client has no bound on reading an answer, and there are few seats.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// What is said of an acknowledgement that the API server took, and undid in the same write.
const PUT_BACK: &str =
    "the API server took the acknowledgement, and a webhook or policy put the labels back in that write";

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// There is nothing left to do about this drain.
    Done,
    /// It is to be tried again, because of this.
    Again(String),
}

/// Who can acknowledge: the API server's client, or a test.
pub(super) trait Acknowledge: Send {
    /// Tries once.
    fn attempt(&self, object: &DrainingObject) -> impl Future<Output = Attempt> + Send;

    /// Asks whether a watch of this scope showed the object.
    fn shown(&self, scope: &Scope, object: &DrainingObject) -> impl Future<Output = Shown> + Send;
}

/// Acknowledges by a JSON patch that tests what was decided on.
#[derive(Clone)]
pub(super) struct ByPatch {
    pub(super) client: Client,
    pub(super) api: ApiResource,
    pub(super) labels: RingLabels,
    pub(super) shard: ShardName,
}

impl Acknowledge for ByPatch {
    async fn attempt(&self, object: &DrainingObject) -> Attempt {
        match timeout(ANSWER, self.settle(object)).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(error)) => Attempt::Again(explain(&error)),
            Err(_) => Attempt::Again(format!("no answer from the API server within {ANSWER:?}")),
        }
    }

    async fn shown(&self, scope: &Scope, object: &DrainingObject) -> Shown {
        shown(&self.client, &self.api, scope, object).await
    }
}

impl ByPatch {
    async fn settle(&self, object: &DrainingObject) -> kube::Result<Attempt> {
        let DrainingObject { resource, namespace, name, uid, .. } = object;
        let error = match self.send(object).await {
            Ok(left) if self.drains(object, &left.metadata) => return Ok(Attempt::Again(PUT_BACK.to_owned())),
            Ok(_) => {
                // Behind it is what this shard promised.
                let id = object.drain.split('.').next();
                tracing::info!(%resource, namespace, name, uid = &**uid, id, "released object");
                return Ok(Attempt::Done);
            }
            Err(error) => error,
        };
        match code(&error) {
            Some(404) => Ok(Attempt::Done),
            // Either a test in the patch failed, because the drain was taken back, or an admission webhook or
            // the CustomResourceDefinition's validation refuses the object as it is: both are this code.
            Some(422) if !self.is_drained(object).await? => Ok(Attempt::Done),
            _ => Err(error),
        }
    }

    fn api(&self, object: &DrainingObject) -> Api<DynamicObject> {
        match &object.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.api),
            None => Api::all_with(self.client.clone(), &self.api),
        }
    }

    /// Returns what the API server made of it: admission may put labels back in the same write.
    async fn send(&self, object: &DrainingObject) -> kube::Result<PartialObjectMeta<DynamicObject>> {
        let patch = patch::acknowledge(&self.labels, &object.uid, &self.shard, &object.drain);
        let named = PatchParams { field_manager: Some(ACKNOWLEDGER.to_owned()), ..PatchParams::default() };
        // The answer's metadata only: the object may be large.
        self.api(object).patch_metadata(&object.name, &named, &Patch::Json::<()>(patch)).await
    }

    /// Whether the object is still drained by this very move. By a list, which needs no permission that the watch
    /// does not need too.
    async fn is_drained(&self, object: &DrainingObject) -> kube::Result<bool> {
        let this = ListParams::default().fields(&format!("metadata.name={}", object.name));
        let found = self.api(object).list_metadata(&this).await?.items;
        Ok(found.iter().any(|it| self.drains(object, &it.metadata)))
    }

    /// Whether the object is drained by this very move.
    fn drains(&self, object: &DrainingObject, metadata: &ObjectMeta) -> bool {
        let ownership = self.labels.ownership(metadata.labels.as_ref());
        metadata.uid.as_deref() == Some(&*object.uid)
            && ownership.shard == Some(self.shard.as_str())
            && ownership.drain == Some(&object.drain)
    }
}
