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
    /// How long letting go of an object may take.
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
pub enum Knowledge {
    /// Nothing, and why: no request for a resource can be answered.
    Unknown(String),
    /// The ring as last seen.
    Known(Arc<Policy>),
}

impl Knowledge {
    /// Whether a resource is known to be narrowed.
    pub fn narrows(&self, resource: &GroupResource) -> bool {
        matches!(self, Self::Known(policy) if policy.narrows(resource))
    }
}

/// The one who knows; others [`watch::Sender::subscribe`].
pub fn channel() -> watch::Sender<Knowledge> {
    watch::Sender::new(Knowledge::Unknown("the ring has not been read yet".to_owned()))
}

/// Follows the ring until the shutdown.
pub async fn follow(
    client: Client,
    (ring, namespace): (RingName, String),
    (knowledge, mut newest): (watch::Sender<Knowledge>, watch::Receiver<i64>),
    check: Check,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let mut events = events(client.clone(), &ring, Duration::ZERO);
    let mut follower = Follower {
        ring,
        namespace,
        knowledge,
        check,
        listed: false,
        refused: None,
        last: Arc::default(),
        generation: 0,
        uid: None,
    };
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

struct Follower {
    ring: RingName,
    /// The namespace of the shard's Lease.
    namespace: String,
    knowledge: watch::Sender<Knowledge>,
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

impl Follower {
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

    /// Takes in that there is this generation of the ring; returns whether the ring must be read anew for it. A watch may have
    /// shown nothing for long, of an API server that is cut off from etcd. A list that begins now shows what is at least as
    /// new, also of a ring that was made again and counts from 1.
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
        let is_known = matches!(&*self.knowledge.borrow(), Knowledge::Known(known) if **known == policy);
        if !(is_known && is_the_same_ring) {
            self.last = Arc::new(policy);
            self.knowledge.send_replace(Knowledge::Known(self.last.clone()));
            tracing::info!(ring = %self.ring, ?resources, ?unlabelled, "read the ring's resources");
        }
        self.check.pass();
    }

    fn forget(&mut self, reason: String) {
        self.refused = None;
        let new = Knowledge::Unknown(reason.clone());
        if self.knowledge.send_if_modified(|known| std::mem::replace(known, new.clone()) != new) {
            tracing::warn!(ring = %self.ring, reason, "refusing requests for resources until this is fixed");
        }
        self.check.fail(reason);
    }

    /// What was known stays valid while the API server is away: nobody can change the ring meanwhile. One that
    /// answers but refuses is there for others, who can.
    fn fail(&mut self, error: &watcher::Error) -> bool {
        let (code, reason) = (code(error), explain(&self.ring, error));
        let refused = matches!(code, Some(401 | 403 | 404));
        if matches!(*self.knowledge.borrow(), Knowledge::Unknown(_)) {
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

fn code(error: &watcher::Error) -> Option<u16> {
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicI64, Ordering};

    use futures::FutureExt;
    use ringside_ring::cluster_ring::{ClusterRing, ClusterRingSpec};
    use ringside_runtime::admin::{Health, Probe};
    use tokio::sync::Semaphore;

    use super::*;

    fn ring(resource: &str) -> Ring {
        let resource = RingResource { resource: resource.into(), ..RingResource::default() };
        ClusterRing::new("example", ClusterRingSpec { resources: vec![resource], ..ClusterRingSpec::default() }).into()
    }

    fn follower() -> (Follower, Health, watch::Receiver<Knowledge>) {
        let (health, knowledge) = (Health::new(), channel());
        let receiver = knowledge.subscribe();
        let check = health.check("ring", Probe::Ready);
        (
            Follower {
                ring: "example".parse().unwrap(),
                namespace: "here".to_owned(),
                knowledge,
                check,
                listed: false,
                refused: None,
                last: Arc::default(),
                generation: 0,
                uid: None,
            },
            health,
            receiver,
        )
    }

    fn forbidden() -> watcher::Error {
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn an_unknown_ring_is_named_and_heals_when_it_comes() {
        let (mut follower, health, knowledge) = follower();
        follower.take(Ok(watcher::Event::Init));
        follower.take(Ok(watcher::Event::InitDone));
        assert!(health.failures(Probe::Ready)[0].contains("there is no ClusterRing 'example'"));
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        assert!(health.failures(Probe::Ready).is_empty());
        let things = GroupResource { group: String::new(), resource: "things".into() };
        assert!(knowledge.borrow().narrows(&things));
        follower.take(Ok(watcher::Event::Delete(ring("things"))));
        assert!(!knowledge.borrow().narrows(&things));
        assert_eq!(health.failures(Probe::Ready).len(), 1);
    }

    #[test]
    fn counts_in_the_status_change_nothing_and_a_ring_that_was_unknown_is_learned_anew() {
        let (mut follower, _health, knowledge) = follower();
        let known = || match &*knowledge.borrow() {
            Knowledge::Known(policy) => Arc::clone(policy),
            Knowledge::Unknown(reason) => panic!("{reason}"),
        };
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        let first = known();
        let mut counted = ring("things");
        counted.status.get_or_insert_default().available_shards = 7;
        follower.take(Ok(watcher::Event::Apply(counted)));
        assert!(
            Arc::ptr_eq(&first, &known()),
            "what the fence knows of objects is forgotten with the policy that it goes by"
        );
        let mut again = ring("things");
        again.metadata.uid = Some("another".to_owned());
        for event in [watcher::Event::Init, watcher::Event::InitApply(again), watcher::Event::InitDone] {
            assert!(follower.take(Ok(event)));
        }
        let second = known();
        assert!(!Arc::ptr_eq(&first, &second), "objects may have moved while there was no ring");
        follower.take(Ok(watcher::Event::Delete(ring("things"))));
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        assert!(!Arc::ptr_eq(&second, &known()), "and so where its end was seen");
    }

    #[test]
    fn ring_of_an_older_generation_than_the_lease_says_is_unknown_until_read_anew() {
        let (mut follower, _health, knowledge) = follower();
        let of = |generation| {
            let mut ring = ring("things");
            ring.metadata.generation = Some(generation);
            ring
        };
        let is_known = || matches!(*knowledge.borrow(), Knowledge::Known(_));
        follower.take(Ok(watcher::Event::Apply(of(2))));
        assert!(!follower.is_behind(1) && !follower.is_behind(2) && is_known());
        assert!(follower.is_behind(3) && !is_known());
        // It was deleted and made again.
        follower.take(Ok(watcher::Event::InitApply(of(1))));
        assert!(is_known(), "a list that began later is newer, whatever it counts from");
        assert!(!follower.is_behind(1) && is_known());
        assert!(follower.is_behind(2) && !is_known());
    }

    #[test]
    fn a_ring_whose_shards_are_in_other_namespaces_is_unknown() {
        let (mut follower, health, knowledge) = follower();
        let of = |namespaces: &[&str]| {
            let mut ring = ring("things");
            ring.spec.shard_namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
            Ok(watcher::Event::Apply(ring))
        };
        follower.take(of(&["elsewhere", "here"]));
        assert!(matches!(*knowledge.borrow(), Knowledge::Known(_)));
        follower.take(of(&["elsewhere"]));
        assert!(matches!(*knowledge.borrow(), Knowledge::Unknown(_)));
        assert!(health.failures(Probe::Ready)[0].contains("spec.shardNamespaces"));
        follower.take(of(&[]));
        assert!(health.failures(Probe::Ready).is_empty());
        // The sharder says it where the ring does not.
        let listed = |namespaces: &[&str]| {
            let mut ring = ring("things");
            let namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
            ring.status.get_or_insert_default().shard_namespaces = Some(namespaces);
            Ok(watcher::Event::Apply(ring))
        };
        follower.take(listed(&["elsewhere"]));
        assert!(matches!(*knowledge.borrow(), Knowledge::Unknown(_)));
        assert!(health.failures(Probe::Ready)[0].contains("ringside rbac example --shards here/"));
        follower.take(listed(&["elsewhere", "here"]));
        assert!(health.failures(Probe::Ready).is_empty());
    }

    #[test]
    fn what_joins_or_leaves_gets_a_new_floor_and_all_else_keeps_its_own() {
        let (mut follower, _health, knowledge) = follower();
        let [things, others] =
            ["things", "others"].map(|it| GroupResource { group: String::new(), resource: it.into() });
        let mut learn = |resource: &str| {
            follower.take(Ok(watcher::Event::Apply(ring(resource))));
            let Knowledge::Known(policy) = knowledge.borrow().clone() else { unreachable!("it was just learned") };
            policy
        };
        let first = learn("things");
        assert_eq!(learn("things").floors, first.floors, "the same again");
        let left = learn("others");
        assert!(left.floors[&things] != first.floors[&things] && left.floors.contains_key(&others));
        let back = learn("things");
        assert!(back.floors[&things] != left.floors[&things] && back.floors[&things] != first.floors[&things]);
    }

    #[test]
    fn resource_is_narrowed_once_the_status_says_that_it_is_filtered() {
        let things = GroupResource { group: String::new(), resource: "things".into() };
        let narrows = |status: serde_json::Value| {
            let status = serde_json::from_value(status).unwrap();
            Policy::of(&Ring { status, ..ring("things") }).narrows(&things)
        };
        let filtered = |observed: i64, resources: &[&GroupResource]| serde_json::json!({"observedGeneration": 2, "filtered": {"observedGeneration": observed, "resources": resources}});
        assert!(narrows(serde_json::Value::Null), "no sharder has seen the ring");
        assert!(narrows(serde_json::json!({"observedGeneration": 2})), "an older sharder does not say");
        assert!(narrows(filtered(2, &[&things])) && !narrows(filtered(2, &[])));
        assert!(narrows(filtered(1, &[])), "an older sharder has written since");
    }

    #[test]
    fn what_follows_an_object_is_its_whole_chain_however_the_ring_says_it() {
        let of = |resource: &str| GroupResource { group: String::new(), resource: resource.into() };
        let entry = |resource: &str, controlled: &[&str]| RingResource {
            resource: resource.into(),
            controlled_resources: controlled.iter().map(|child| of(child)).collect(),
            ..RingResource::default()
        };
        let policy = |resources: Vec<RingResource>| {
            Policy::of(&ClusterRing::new("example", ClusterRingSpec { resources, ..Default::default() }).into())
        };
        let whole = policy(vec![entry("a", &["b", "c"]), entry("x", &[])]);
        let by_links = policy(vec![entry("a", &["b"]), entry("b", &["c"]), entry("x", &[])]);
        assert_eq!(whole, by_links);
        let of_each = |is: &dyn Fn(&GroupResource) -> bool| ["a", "b", "c", "x", "y"].map(|name| is(&of(name)));
        assert_eq!(of_each(&|name| by_links.is_main(name)), [true, false, false, true, false]);
        assert_eq!(of_each(&|name| by_links.is_controlled(name)), [false, true, true, false, false]);
        assert_eq!(of_each(&|owner| by_links.follows(&of("c"), owner)), [true, true, true, false, false]);
    }

    fn unreachable() -> watcher::Error {
        watcher::Error::WatchFailed(kube::Error::Service("connection refused".into()))
    }

    #[test]
    fn a_missing_permission_is_explained_and_an_absent_api_server_changes_nothing_that_is_known() {
        let (mut follower, health, knowledge) = follower();
        assert!(!follower.take(Err(forbidden())), "a list has to show that it is allowed again");
        let failure = health.failures(Probe::Ready).remove(0);
        assert!(
            failure.contains("may not read ClusterRing 'example'") && failure.contains("service account"),
            "{failure}"
        );
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        assert!(follower.take(Err(unreachable())));
        assert!(matches!(*knowledge.borrow(), Knowledge::Known(_)));
        assert!(health.failures(Probe::Ready).is_empty());
        assert!(follower.patience_is_over().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ring_that_is_refused_is_unready_at_once_and_forgotten_after_a_while() {
        let (mut follower, health, knowledge) = follower();
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        let start = Instant::now();
        follower.take(Err(forbidden()));
        assert!(health.failures(Probe::Ready)[0].contains("may not read ClusterRing 'example'"));
        assert!(matches!(*knowledge.borrow(), Knowledge::Known(_)), "it may pass");
        sleep(ASK_AGAIN).await;
        follower.take(Err(forbidden()));
        follower.take(Err(unreachable()));
        follower.patience_is_over().await;
        assert_eq!(start.elapsed(), FORGET_AFTER, "of the first refusal");
        follower.forget_what_is_refused();
        assert!(matches!(&*knowledge.borrow(), Knowledge::Unknown(reason) if reason.contains("may not read")));
        follower.take(Ok(watcher::Event::InitApply(ring("things"))));
        assert!(health.failures(Probe::Ready).is_empty());
        assert!(follower.patience_is_over().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_ring_that_is_shown_again_in_time_is_not_forgotten() {
        let (mut follower, health, _knowledge) = follower();
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        follower.take(Err(forbidden()));
        follower.take(Ok(watcher::Event::InitApply(ring("things"))));
        assert!(health.failures(Probe::Ready).is_empty());
        assert!(follower.patience_is_over().now_or_never().is_none());
    }

    /// The watch of before shows nothing: its API server may be cut off.
    #[tokio::test(start_paused = true)]
    async fn ring_is_read_anew_where_the_lease_says_that_it_has_changed() {
        let (lists, allowed) = (Arc::new(AtomicI64::new(0)), Arc::new(Semaphore::new(1)));
        let (counted, admits) = (lists.clone(), allowed.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (lists, allowed) = (counted.clone(), admits.clone());
            async move {
                if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                    std::future::pending::<()>().await;
                }
                let generation = lists.fetch_add(1, Ordering::Relaxed) + 1;
                allowed.acquire().await?.forget();
                let spec = serde_json::json!({"resources": [{"resource": "things"}]});
                let ring = serde_json::json!({"kind": "ClusterRing", "metadata": {"name": "example", "generation": generation}, "spec": spec});
                let list = serde_json::json!({"metadata": {"resourceVersion": "1"}, "items": [ring]});
                Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(serde_json::to_vec(&list)?)))
            }
        });
        let (knowledge, newest) = (channel(), watch::Sender::new(0));
        let mut known = knowledge.subscribe();
        let shutdown = Shutdown::new();
        let following = follow(
            Client::new(service, "default"),
            ("example".parse().unwrap(), "here".to_owned()),
            (knowledge, newest.subscribe()),
            Health::new().check("ring", Probe::Ready),
            shutdown.clone(),
        );
        let story = async {
            let is_known = |now: &Knowledge| matches!(now, Knowledge::Known(_));
            known.wait_for(is_known).await.unwrap();
            newest.send_replace(1);
            sleep(Duration::from_secs(60)).await;
            assert!(is_known(&known.borrow()) && lists.load(Ordering::Relaxed) == 1);
            newest.send_replace(2);
            known.wait_for(|now| !is_known(now)).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            assert!(!is_known(&known.borrow()), "for as long as that takes");
            allowed.add_permits(1);
            known.wait_for(is_known).await.unwrap();
            assert_eq!(lists.load(Ordering::Relaxed), 2);
        };
        tokio::select! {
            _ = following => unreachable!("nothing asked for the end"),
            done = tokio::time::timeout(Duration::from_secs(600), story) => done.unwrap(),
        }
    }
}
