//! Which resources the ring shards, learned from the ring itself and kept up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use futures::{
    StreamExt,
    future::{pending, ready},
    stream::{BoxStream, once},
};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt, watcher},
};
use ringside_ring::{
    Ring, RingName,
    cluster_ring::{ClusterRingStatus, GroupResource, ReadsByName, RingResource},
};
use ringside_runtime::{admin::Check, shutdown::Shutdown};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use ringside_runtime::explain::causes;

mod floor;

pub use floor::{ANSWER, Floor, Read};

/// How long the ring as last seen is used while the API server refuses to show it. A refusal may pass: an API
/// server that starts knows roles and CustomResourceDefinitions a little later than it answers, and kube reads
/// a rotated token at most a minute later. A ring may change meanwhile without our noticing, so not for longer.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// How long to wait after a refusal before asking again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The ring's resources, as one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Every resource whose objects are distributed, the controlled ones included.
    pub resources: BTreeSet<GroupResource>,
    /// Those of them that have joined the ring lately, and whose objects the sharder has yet to label. The controller is shown all
    /// of them, as before; its writes are fenced from the beginning.
    pub unlabelled: BTreeSet<GroupResource>,
    /// How long the release of an object may take.
    pub drain_deadline: Duration,
    /// The main resources, whose objects the sharder drains, and those whose objects follow them.
    pub families: BTreeMap<GroupResource, Vec<GroupResource>>,
    /// Those of which a shard may get any object by name.
    pub read_by_all: BTreeSet<GroupResource>,
    /// Whether the ring's sharder says which instance of a shard name may work.
    pub admits_instances: bool,
    /// For every resource that is narrowed or has been: what is older than the beginning or end of that.
    pub floors: BTreeMap<GroupResource, Floor>,
}

impl Policy {
    /// What a ring says.
    pub fn of(ring: &Ring) -> Self {
        let all = |resource: &&RingResource| resource.reads_by_name == ReadsByName::All;
        let (resources, filtered) =
            (ring.spec.all_resources(), ring.status.as_ref().and_then(ClusterRingStatus::filtered));
        let is_labelled = |resource: &GroupResource| filtered.is_none_or(|filtered| filtered.contains(resource));
        Self {
            unlabelled: resources.iter().filter(|resource| !is_labelled(resource)).cloned().collect(),
            resources,
            families: ring.spec.families(),
            read_by_all: ring.spec.resources.iter().filter(all).map(RingResource::group_resource).collect(),
            drain_deadline: ring.spec.drain_deadline(),
            admits_instances: ring.status.as_ref().is_some_and(ClusterRingStatus::admits_instances),
            floors: BTreeMap::new(),
        }
    }

    /// Whether the controller is shown this shard's objects of the resource alone.
    pub fn narrows(&self, resource: &GroupResource) -> bool {
        self.resources.contains(resource) && !self.unlabelled.contains(resource)
    }

    /// Whether the sharder drains objects of the resource; the objects that they control follow them.
    pub fn is_main(&self, resource: &GroupResource) -> bool {
        self.families.contains_key(resource)
    }

    /// Whether objects of the resource belong where the object is worked on that controls them, if one does.
    pub fn is_controlled(&self, resource: &GroupResource) -> bool {
        let follows = self.families.values().any(|below| below.contains(resource));
        follows || (self.resources.contains(resource) && !self.is_main(resource))
    }

    /// Whether an object of the first resource follows one of the second that controls it, as the sharder sees it: both are of
    /// one family.
    pub fn follows(&self, child: &GroupResource, owner: &GroupResource) -> bool {
        let mut families = self.families.iter().filter(|(_, below)| below.contains(child));
        families.any(|(main, below)| main == owner || below.contains(owner))
    }

    /// This policy as the next after another one: with a new floor for what has joined or left in between.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        let floor = |resource: &GroupResource| {
            let same = before.narrows(resource) == self.narrows(resource);
            before.floors.get(resource).filter(|_| same).cloned().unwrap_or_default()
        };
        let narrowed = self.resources.iter().filter(|resource| self.narrows(resource));
        self.floors = before.floors.keys().chain(narrowed).map(|it| (it.clone(), floor(it))).collect();
        self
    }
}

/// What is known about the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingState {
    /// Nothing, and why: no request for a resource can be answered.
    Unknown(String),
    /// The ring as last seen.
    Known(Arc<Policy>),
}

impl RingState {
    /// Whether a resource is known to be narrowed.
    pub fn narrows(&self, resource: &GroupResource) -> bool {
        matches!(self, Self::Known(policy) if policy.narrows(resource))
    }
}

/// The one who knows; others [`watch::Sender::subscribe`].
pub fn ring_state() -> watch::Sender<RingState> {
    watch::Sender::new(RingState::Unknown("the ring has not been read yet".to_owned()))
}

/// Follows the ring until the shutdown.
pub async fn follow(
    client: Client,
    (ring, namespace): (RingName, String),
    (knowledge, mut newest): (watch::Sender<RingState>, watch::Receiver<i64>),
    check: Check,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let mut events = events(client.clone(), &ring, Duration::ZERO);
    let mut follower = PolicyFollower::new(ring, namespace, knowledge, check);
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            Ok(()) = newest.changed() => {
                let generation = *newest.borrow_and_update();
                if follower.is_behind(generation) {
                    events = self::events(client.clone(), &follower.ring, Duration::ZERO);
                }
            },
            () = follower.patience_is_over() => follower.forget_what_is_refused(),
            Some(event) = events.next() => if !follower.take(event) {
                // From a list on: a watch that is allowed again says nothing until the ring changes.
                events = self::events(client.clone(), &follower.ring, ASK_AGAIN);
            },
        }
    }
}

fn events(
    client: Client,
    ring: &RingName,
    wait: Duration,
) -> BoxStream<'static, watcher::Result<watcher::Event<Ring>>> {
    let only_this = watcher::Config::default().fields(&format!("metadata.name={}", ring.name()));
    let events = watcher(Api::all_with(client, &ring.kind()), only_this).default_backoff();
    once(sleep(wait)).filter_map(|()| ready(None)).chain(events).boxed()
}

struct PolicyFollower {
    ring: RingName,
    /// The namespace of the shard's Lease.
    namespace: String,
    knowledge: watch::Sender<RingState>,
    check: Check,
    /// Whether the list that is under way has named the ring.
    listed: bool,
    /// What was known last.
    last: Arc<Policy>,
    /// The generation of the ring as last seen.
    generation: i64,
    /// Its uid: one that is made again is another ring.
    uid: Option<String>,
    /// Since when the API server refuses to show the ring, and why, while something is known.
    refused: Option<(Instant, String)>,
}

impl PolicyFollower {
    /// One that has seen nothing yet.
    fn new(ring: RingName, namespace: String, knowledge: watch::Sender<RingState>, check: Check) -> Self {
        Self {
            ring,
            namespace,
            knowledge,
            check,
            listed: false,
            last: Arc::default(),
            generation: 0,
            uid: None,
            refused: None,
        }
    }

    /// Returns whether the stream of events can go on.
    fn take(&mut self, event: watcher::Result<watcher::Event<Ring>>) -> bool {
        match event {
            Ok(watcher::Event::Init) => self.listed = false,
            Ok(watcher::Event::InitApply(ring) | watcher::Event::Apply(ring)) => {
                self.listed = true;
                self.generation = ring.metadata.generation.unwrap_or_default();
                let is_the_same = std::mem::replace(&mut self.uid, ring.uid()) == ring.uid();
                match ring.has_shards_in(&self.namespace) {
                    true => self.learn(Policy::of(&ring), is_the_same),
                    // Its Lease makes no shard: objects with its name may be those of another one.
                    false => self.forget(self.is_outside(&ring)),
                }
            }
            Ok(watcher::Event::InitDone) if self.listed => {}
            Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => {
                self.forget(format!("there is no {}: create it, or name another one with --ring", self.ring.titled()));
            }
            Err(error) => return self.fail(&error),
        }
        true
    }

    /// Why the ring has no shards in this namespace.
    fn is_outside(&self, ring: &Ring) -> String {
        let (titled, namespace) = (self.ring.titled(), &self.namespace);
        let remedy = match &*ring.spec.shard_namespaces {
            [] => format!(
                "the sharder may not update Leases there, or has not asked yet: apply what `ringside rbac {} --shards {namespace}/SERVICE-ACCOUNT` prints",
                self.ring
            ),
            _ => "name it in spec.shardNamespaces, or run the shard in one of those".to_owned(),
        };
        format!("{titled} has no shards in namespace '{namespace}': {remedy}")
    }

    /// Takes in that the ring has this generation; returns whether the ring must be read again for it. A watch may have
    /// shown nothing for long, of an API server that is cut off from etcd. A list that begins now shows what is at
    /// least as new, also of a ring that was made again and counts from 1.
    fn is_behind(&mut self, generation: i64) -> bool {
        if generation <= self.generation {
            return false;
        }
        self.forget(format!("{} has changed, and is read again", self.ring.titled()));
        true
    }

    fn learn(&mut self, policy: Policy, is_the_same_ring: bool) {
        self.refused = None;
        let names = |resources: &BTreeSet<GroupResource>| resources.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (resources, unlabelled) = (names(&policy.resources), names(&policy.unlabelled));
        let policy = policy.after(&self.last);
        // The ring's status changes every few seconds. What says the same keeps its `Arc`: by that the fence knows that what it
        // has learned of objects still holds.
        let is_known = matches!(&*self.knowledge.borrow(), RingState::Known(known) if **known == policy);
        if !(is_known && is_the_same_ring) {
            self.last = Arc::new(policy);
            self.knowledge.send_replace(RingState::Known(self.last.clone()));
            tracing::info!(ring = %self.ring, ?resources, ?unlabelled, "read the ring's resources");
        }
        self.check.pass();
    }

    fn forget(&mut self, reason: String) {
        self.refused = None;
        let new = RingState::Unknown(reason.clone());
        if self.knowledge.send_if_modified(|known| std::mem::replace(known, new.clone()) != new) {
            tracing::warn!(ring = %self.ring, reason, "refusing requests for resources until this is fixed");
        }
        self.check.fail(reason);
    }

    /// What was known stays valid while the API server is away: no client can change the ring meanwhile. One that
    /// answers but refuses is there for others, who can.
    fn fail(&mut self, error: &watcher::Error) -> bool {
        let (code, reason) = (code(error), explain(&self.ring, error));
        let refused = matches!(code, Some(401 | 403 | 404));
        if matches!(*self.knowledge.borrow(), RingState::Unknown(_)) {
            self.forget(reason);
        } else if refused {
            tracing::warn!(ring = %self.ring, reason, "can't watch the ring; using its last state for a while");
            self.check.fail(reason.clone());
            let since = self.refused.take().map_or_else(Instant::now, |(since, _)| since);
            self.refused = Some((since, reason));
        } else {
            tracing::warn!(ring = %self.ring, reason, "can't watch the ring; using its last state");
        }
        !refused
    }

    /// Returns when what is known is too old for a ring that may have changed.
    async fn patience_is_over(&self) {
        match &self.refused {
            Some((since, _)) => sleep_until(*since + FORGET_AFTER).await,
            None => pending().await,
        }
    }

    fn forget_what_is_refused(&mut self) {
        if let Some((_, reason)) = self.refused.take() {
            self.forget(reason);
        }
    }
}

/// The HTTP status by which a watch failed.
pub(crate) fn code(error: &watcher::Error) -> Option<u16> {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        WatchError(status) => Some(status.code),
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            ringside_runtime::explain::code(error)
        }
        _ => None,
    }
}

/// The remedy for an error, where there is one.
fn explain(ring: &RingName, error: &watcher::Error) -> String {
    let code = code(error);
    let error = causes(error);
    let (titled, definition) = (ring.titled(), ring.kind().names().definition);
    match code {
        Some(401) => {
            format!("can't read {titled}: the API server does not accept this proxy's credentials: {error}")
        }
        Some(403) => format!(
            "may not read {titled}: allow the pod's service account to get, list and watch {definition}: {error}"
        ),
        Some(404) => format!(
            "can't read {titled}: the API server does not know the resource; install its CustomResourceDefinition: {error}"
        ),
        _ => format!("can't read {titled} yet: {error}"),
    }
}

#[cfg(test)]
mod tests;
