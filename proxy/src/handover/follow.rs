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
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::{
    discovery::{self, LookUpError},
    explain::explain_watch,
};
use tokio::time::{Instant, sleep_until};

use super::{
    Handover,
    acknowledge::{Acknowledge, ByPatch},
    drain::let_go,
};
use crate::{policy::code, views::DrainingObject};

/// How long to wait before asking again for a resource that is not served (yet).
const DISCOVER_AGAIN: Duration = Duration::from_secs(5);
/// How long after its list a watch must not have failed to count as there: a refusal takes one round trip.
const SETTLES: Duration = Duration::from_secs(1);

/// How long the first list in one of several versions may take before another is tried, and how often that is doubled at most. An
/// API server whose cache can't convert the objects asks for pauses of half a minute, again and again.
const LISTS_WITHIN: Duration = Duration::from_secs(5);
const DOUBLED: u32 = 6;

type DrainedObject = PartialObjectMeta<DynamicObject>;

/// Why a version of a resource is followed no longer.
enum Ended {
    /// The API server can't read its objects in this version, as where a conversion webhook does not answer.
    Unreadable(String),
    /// It does not serve the version, or does not allow it.
    Refused(String),
}

/// Never returns; ends when it is dropped. Follows the resource in the first of its versions in which its objects can be listed:
/// the controller itself may serve the conversion webhook that others need, and starts after the proxy.
pub(super) async fn follow(handover: &Handover, client: Client, resource: GroupResource) {
    let mut turn = 0_usize;
    loop {
        let group = discovery::group(&client, &resource.group).await;
        let mut versions = match group.and_then(|group| group.in_each_version(&resource)) {
            Ok(versions) => {
                handover.views.is_served(&resource, true);
                versions
            }
            Err(error) => {
                let reason = error.to_string();
                match error {
                    LookUpError::NotServed(_) => {
                        handover.views.is_served(&resource, false);
                        handover.followed.nothing_missed(&resource);
                    }
                    LookUpError::NoAnswer(_) => handover.followed.disturbed(&resource, &reason),
                }
                say(&resource, &reason);
                tokio::time::sleep(DISCOVER_AGAIN).await;
                continue;
            }
        };
        let count = versions.len();
        let api = versions.swap_remove(turn % count).api;
        let doubled = u32::try_from(turn / count).unwrap_or(DOUBLED).min(DOUBLED);
        let lists_within = (count > 1).then(|| LISTS_WITHIN * 2_u32.pow(doubled));
        let ended = watch(handover, client.clone(), &resource, (&api, lists_within)).await;
        let (reason, is_last) = match ended {
            Ended::Unreadable(reason) => {
                turn += 1;
                (format!("{}: {reason}", api.version), turn.is_multiple_of(count))
            }
            Ended::Refused(reason) => (reason, true),
        };
        handover.followed.broken(&resource, &reason);
        say(&resource, &reason);
        if is_last {
            tokio::time::sleep(DISCOVER_AGAIN).await;
        }
    }
}

fn say(resource: &GroupResource, reason: &str) {
    tracing::warn!(%resource, reason, "can't follow the drained objects of a resource yet; trying again");
}

/// Follows one version of a resource, until it can't go on by itself: returns why. Where there are others it has to be listed in
/// time.
async fn watch(
    handover: &Handover,
    client: Client,
    resource: &GroupResource,
    (api, lists_within): (&ApiResource, Option<Duration>),
) -> Ended {
    let by_patch = ByPatch {
        client: client.clone(),
        api: api.clone(),
        labels: handover.labels.clone(),
        shard: handover.shard.clone(),
    };
    let drained = watcher::Config::default().labels(&handover.labels.drained_from(&handover.shard));
    let objects: Api<DrainedObject> = Api::all_with(client, api);
    let mut events = pin!(watcher(objects, drained).default_backoff());
    let mut work = Work::new(handover.clone(), resource.clone(), &api.kind, by_patch);
    // When the watch that was begun counts as established. A watcher does not say it: only its failures show.
    let mut settles: Option<Instant> = None;
    let mut late = lists_within.map(|within| Instant::now() + within);
    loop {
        tokio::select! {
            Some(event) = events.next() => match event {
                Ok(event) => {
                    if matches!(event, watcher::Event::InitDone) {
                        settles = Some(Instant::now() + SETTLES);
                        late = None;
                    }
                    work.take(event);
                }
                Err(error) => {
                    let reason = explain_watch(&error);
                    match code(&error) {
                        // The resource, or this version of it, is not served any more.
                        Some(404) => return Ended::Refused(reason),
                        Some(401 | 403) => return Ended::Refused(format!("{reason}; {}", rule(resource))),
                        Some(code) if lists_within.is_some() && is_unreadable(&error, code) => return Ended::Unreadable(reason),
                        _ => {}
                    }
                    tracing::warn!(%resource, error = reason, "the watch on drained objects failed; trying again");
                    handover.followed.disturbed(resource, &reason);
                    settles = settles.map(|_| Instant::now() + SETTLES);
                }
            },
            () = sleep_until(settles.unwrap_or_else(Instant::now)), if settles.is_some() => {
                settles = None;
                handover.followed.nothing_missed(resource);
            }
            () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => {
                let why = "the API server did not list it in time; does a conversion webhook answer?";
                return Ended::Unreadable(why.to_owned());
            }
            Some(ended) = work.under_way.next() => work.forget(ended.as_ref()),
        }
    }
}

/// Whether another version may be readable. A failed conversion is answered with 500, and by an API server's cache, which fills
/// itself by a list, with 429.
fn is_unreadable(error: &watcher::Error, code: u16) -> bool {
    matches!(code, 429 | 500) || matches!(error, watcher::Error::InitialListFailed(_)) && code > 500
}

/// What to allow, since the API server names one verb at a time.
fn rule(resource: &GroupResource) -> String {
    format!("a shard needs list, watch and patch on {resource} in all namespaces (ClusterRole and ClusterRoleBinding)")
}

/// The drains of one resource.
pub(super) struct Work<A> {
    handover: Handover,
    resource: GroupResource,
    kind: String,
    acknowledge: A,
    by_uid: HashMap<Arc<str>, DrainedItem>,
    /// Each ends with its object, or with `None` if it was taken back.
    pub(super) under_way: FuturesUnordered<BoxFuture<'static, Option<Arc<DrainingObject>>>>,
    /// The uids of the list that is under way.
    listed: HashSet<String>,
}

struct DrainedItem {
    object: Arc<DrainingObject>,
    abort: AbortHandle,
}

impl Drop for DrainedItem {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl<A: Acknowledge + Clone + Sync + 'static> Work<A> {
    pub(super) fn new(handover: Handover, resource: GroupResource, kind: &str, acknowledge: A) -> Self {
        Self {
            handover,
            resource,
            kind: kind.to_owned(),
            acknowledge,
            by_uid: HashMap::new(),
            under_way: FuturesUnordered::new(),
            listed: HashSet::new(),
        }
    }

    pub(super) fn take(&mut self, event: watcher::Event<DrainedObject>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                self.listed.extend(object.metadata.uid.clone());
                self.seen(&object, false);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone: Vec<_> = self.by_uid.extract_if(|uid, _| !listed.contains(&**uid)).collect();
                gone.iter().for_each(|(_, item)| self.gone(item));
                self.handover.fence.listed(&self.resource, self.handover.term);
            }
            watcher::Event::Apply(object) => self.seen(&object, true),
            watcher::Event::Delete(object) => {
                let item = object.metadata.uid.as_deref().and_then(|uid| self.by_uid.remove(uid));
                item.iter().for_each(|item| self.gone(item));
            }
        }
    }

    /// Without an acknowledgement, as after a forced move: no page of a list from before shows it any more.
    fn gone(&self, item: &DrainedItem) {
        self.handover.views.gone(&item.object);
    }

    /// In a list, or in an event. An event shows the very write that drained the object, unless that was drained before.
    fn seen(&mut self, object: &DrainedObject, in_event: bool) {
        let Some(drained) = self.drained(object) else { return };
        match self.by_uid.get(&drained.uid) {
            Some(item) if item.object.drain == drained.drain => {}
            known => {
                let is_exact = in_event && known.is_none();
                self.begin(DrainingObject { is_exact, ..drained });
            }
        }
    }

    fn begin(&mut self, drained: DrainingObject) {
        let object = Arc::new(drained);
        let (handover, acknowledge) = (self.handover.clone(), self.acknowledge.clone());
        // At once: when the list has ended, what it showed is known.
        let fence = handover.guard(&object);
        let (work, abort) = abortable(let_go(handover, object.clone(), fence, acknowledge));
        let ended = object.clone();
        self.by_uid.insert(object.uid.clone(), DrainedItem { object, abort });
        self.under_way.push(work.map(|end| end.ok().map(|()| ended)).boxed());
    }

    /// A drain has ended. If the object is seen drained again after that, it is work again.
    pub(super) fn forget(&mut self, ended: Option<&Arc<DrainingObject>>) {
        let Some(ended) = ended else { return };
        if self.by_uid.get(&ended.uid).is_some_and(|item| Arc::ptr_eq(&item.object, ended)) {
            self.by_uid.remove(&ended.uid);
        }
    }

    /// What the drain needs of an object; `None` if it is not drained from us after all.
    fn drained(&self, object: &DrainedObject) -> Option<DrainingObject> {
        let metadata = &object.metadata;
        let ownership = self.handover.labels.ownership(metadata.labels.as_ref());
        if ownership.shard != Some(self.handover.shard.as_str()) {
            return None;
        }
        let version = metadata.resource_version.as_deref()?;
        let version = version.parse().inspect_err(|error| {
            tracing::error!(resource = %self.resource, %error, "can't hand over objects of this resource");
        });
        Some(DrainingObject {
            resource: self.resource.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone()?,
            uid: metadata.uid.as_deref()?.into(),
            kind: self.kind.clone(),
            drain: ownership.drain?.to_owned(),
            labels: metadata.labels.clone().unwrap_or_default(),
            version: version.ok()?,
            is_exact: false,
            proved_not_shown: Mutex::default(),
        })
    }
}
