//! Follows the drained objects of one resource, and keeps one [`let_go`] for each.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{
    StreamExt,
    future::{AbortHandle, BoxFuture, FutureExt, abortable},
    stream::FuturesUnordered,
};
use kube::{
    Api, Client,
    core::{DynamicObject, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use ringside_ring::cluster_ring::GroupResource;
use tokio::sync::{Notify, Semaphore};

use super::{
    Handover,
    acknowledge::{Acknowledge, ByPatch},
    discover::discover,
    drain::{Drained, let_go},
};
use ringside_runtime::explain::causes;

/// How long to wait before asking again for a resource that is not served (yet).
const DISCOVER_AGAIN: Duration = Duration::from_secs(5);

type Object = PartialObjectMeta<DynamicObject>;

/// Never returns; ends when it is dropped.
pub(super) async fn follow(handover: &Handover, client: Client, resource: GroupResource, seats: Arc<Semaphore>) {
    let ask = async |reason: &str| {
        tracing::warn!(%resource, reason, "can't follow the drained objects of a resource yet; trying again");
        tokio::time::sleep(DISCOVER_AGAIN).await;
    };
    loop {
        let api = match discover(&client, &resource).await {
            Ok(api) => api,
            Err(error) => {
                ask(&causes(&error)).await;
                continue;
            }
        };
        let by_patch = ByPatch {
            client: client.clone(),
            api: api.clone(),
            labels: handover.labels.clone(),
            shard: handover.shard.clone(),
            seats: seats.clone(),
        };
        let drained = watcher::Config::default().labels(&handover.labels.drained_from(&handover.shard));
        let objects: Api<Object> = Api::all_with(client.clone(), &api);
        let mut events = pin!(watcher(objects, drained).default_backoff());
        let mut work = Work::new(handover.clone(), resource.clone(), by_patch);
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(event) => work.take(event),
                    Err(error) if is_not_found(&error) => break ask(&causes(&error)).await,
                    Err(error) => tracing::warn!(%resource, error = causes(&error), "the watch on drained objects failed; trying again"),
                },
                Some(_) = work.under_way.next() => {}
            }
        }
    }
}

/// The resource, or this version of it, is not served any more.
fn is_not_found(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    matches!(error, InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) if status.code == 404)
}

/// The drains of one resource.
pub(super) struct Work<A> {
    handover: Handover,
    resource: GroupResource,
    acknowledge: A,
    by_uid: HashMap<String, Item>,
    pub(super) under_way: FuturesUnordered<BoxFuture<'static, ()>>,
    /// The uids of the list that is under way.
    listed: HashSet<String>,
}

struct Item {
    drain: String,
    touched: Arc<Notify>,
    abort: AbortHandle,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl<A: Acknowledge + Clone + Sync + 'static> Work<A> {
    pub(super) fn new(handover: Handover, resource: GroupResource, acknowledge: A) -> Self {
        Self {
            handover,
            resource,
            acknowledge,
            by_uid: HashMap::new(),
            under_way: FuturesUnordered::new(),
            listed: HashSet::new(),
        }
    }

    pub(super) fn take(&mut self, event: watcher::Event<Object>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                self.listed.extend(object.metadata.uid.clone());
                self.seen(&object);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.by_uid.retain(|uid, _| listed.contains(uid));
            }
            watcher::Event::Apply(object) => self.seen(&object),
            watcher::Event::Delete(object) => {
                object.metadata.uid.as_ref().map(|uid| self.by_uid.remove(uid));
            }
        }
    }

    fn seen(&mut self, object: &Object) {
        let Some(drained) = self.drained(object) else { return };
        match self.by_uid.get(&drained.uid) {
            Some(item) if item.drain == drained.drain => item.touched.notify_one(),
            _ => self.begin(drained),
        }
    }

    fn begin(&mut self, drained: Drained) {
        let touched = Arc::new(Notify::new());
        let (uid, drain) = (drained.uid.clone(), drained.drain.clone());
        let (handover, acknowledge) = (self.handover.clone(), self.acknowledge.clone());
        let (work, abort) = abortable(let_go(handover, Arc::new(drained), touched.clone(), acknowledge));
        self.by_uid.insert(uid, Item { drain, touched, abort });
        // Whether it was aborted makes no difference here.
        self.under_way.push(work.map(drop).boxed());
    }

    /// What the drain needs of an object; `None` if it is not drained from us after all.
    fn drained(&self, object: &Object) -> Option<Drained> {
        let metadata = &object.metadata;
        let ownership = self.handover.labels.ownership(metadata.labels.as_ref());
        if ownership.shard != Some(self.handover.shard.as_str()) {
            return None;
        }
        let version = metadata.resource_version.as_deref()?;
        let version = version.parse().inspect_err(|error| {
            tracing::error!(resource = %self.resource, %error, "can't hand over objects of this resource");
        });
        Some(Drained {
            resource: self.resource.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            drain: ownership.drain?.to_owned(),
            version: version.ok()?,
        })
    }
}
