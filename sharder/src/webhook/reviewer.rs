//! What reviews are answered from: the rings as this replica knows them, and owners that it reads.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::TryFutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use ringside_ring::{RingKind, RingName, ShardName};
use ringside_runtime::explain::explain;
use tokio::{sync::watch, time::timeout};

use super::{
    body::{Arrived, Room},
    created::Creates,
    injector::Injector,
    owner_reads::{Answer as Found, OwnerReads},
    request::{Request, Unreadable, parse},
    response::Answer,
    review::{Decision, decide, followed},
};
use crate::{
    leases::Leases,
    metrics::Metrics,
    move_id,
    owners::{self, Owner, owner},
    resources::Object,
    snapshot::{Above, Snapshot, Snapshots},
    target::Target,
};

/// How long reading an owner may take: it leaves time to answer within the 2 seconds that the API server waits.
const OWNER_TIMEOUT: Duration = Duration::from_millis(1_200);
/// How long a create waits for its turn to read an owner.
const ROOM_TIMEOUT: Duration = Duration::from_millis(150);
/// How soon an owner without a shard is read again: a move leaves it without one for some milliseconds.
const BETWEEN_OWNERS: Duration = Duration::from_millis(20);

/// What the reviews are answered from.
#[derive(Clone)]
pub(crate) struct Reviewer {
    pub(crate) client: Client,
    pub(crate) leases: Leases,
    pub(crate) snapshots: watch::Receiver<Option<Arc<Snapshots>>>,
    pub(crate) metrics: Metrics,
    pub(crate) room: Room,
    pub(crate) owners: Arc<OwnerReads>,
    pub(crate) creates: Creates,
    /// Adds the proxy to pods, where that is wanted.
    pub(crate) injector: Option<Injector>,
}

impl Reviewer {
    /// Answers a review once it has arrived.
    pub(super) async fn read(
        &self,
        ring: &str,
        request: axum::extract::Request,
        answer: impl AsyncFnOnce(&[u8]) -> Answer,
    ) -> Answer {
        self.whole(request, answer).await.unwrap_or_else(|fault| unread(ring, &fault))
    }

    /// What is made of a review that has arrived as a whole.
    pub(super) async fn whole<T>(
        &self,
        request: axum::extract::Request,
        make: impl AsyncFnOnce(&[u8]) -> T,
    ) -> Result<T, Unreadable> {
        let (head, body) = request.into_parts();
        match self.room.collect(&head.headers, body).await {
            Arrived::Whole(body, _room) => Ok(make(&body).await),
            Arrived::Part(beginning, why) => Err(Unreadable::new(&beginning, why)),
        }
    }

    /// Answers a review for a ring.
    pub(super) async fn answer(&self, kind: RingKind, ring: &str, body: &[u8]) -> Answer {
        let request = match parse(body) {
            Ok(request) => request,
            Err(fault) => return unread(ring, &fault),
        };
        let allow = Answer::allow(&request.uid);
        let Some(snapshots) = self.snapshots.borrow().clone() else {
            // Just started: the object is assigned by the controller.
            return allow;
        };
        let unknown = || format!("this sharder knows no {kind} '{ring}', so the object is not assigned");
        let named = RingName::new(kind, ring).ok();
        let Some(snapshot) = named.and_then(|ring| snapshots.get(&ring)) else { return allow.with_warning(unknown()) };
        match self.decide(&request, snapshot).await {
            // A label of a ring that is gone would be there for ever: they may have been taken off already.
            Decision::Restore(_) | Decision::Assign(_) if self.is_gone(snapshot) => allow.with_warning(unknown()),
            Decision::Restore(patch) => allow.with_patch(&patch),
            Decision::Assign(patch) => {
                if request.dry_run != Some(true) {
                    self.metrics.assigned(&snapshot.ring, &request.resource);
                    // An acknowledgement: only the webhook sees this move end.
                    let age = request.drain(&snapshot.labels).and_then(|id| move_id::age(id, SystemTime::now()));
                    age.inspect(|age| self.metrics.move_took(&snapshot.ring, *age));
                    self.note_create(&request, snapshot);
                }
                allow.with_patch(&patch)
            }
            Decision::Foreign => {
                allow.with_warning(format!("'{}' is not a resource of {kind} '{ring}'", request.resource))
            }
            Decision::Odd(odd) => allow.with_warning(odd.to_string()),
            Decision::Leave | Decision::Follow(_) => allow,
        }
    }

    /// An object is about to be created with its label, if no other webhook or policy refuses that.
    fn note_create(&self, request: &Request, snapshot: &Snapshot) {
        let (Some(object), true) = (request.placed(), request.creates()) else { return };
        if let (Some(resource), Some(name)) = (snapshot.resource(&request.resource), object.name) {
            self.creates.labelled(&self.client, (&snapshot.ring, resource), (request.namespace(), &name));
        }
    }

    /// Whether the ring was deleted since the snapshot was taken.
    fn is_gone(&self, snapshot: &Snapshot) -> bool {
        let now = self.snapshots.borrow();
        let same = |rings: &Snapshots| rings.get(&snapshot.ring).is_some_and(|ring| ring.uid == snapshot.uid);
        !now.as_deref().is_some_and(same)
    }

    /// Decides, looking up the owner where that counts. A draining owner is still its shard's: the child goes along
    /// when it moves.
    async fn decide<'a>(&self, request: &'a Request, snapshot: &'a Arc<Snapshot>) -> Decision<'a> {
        let controller = match decide(request, snapshot) {
            Decision::Follow(controller) => controller,
            decision => return decision,
        };
        let mut known = match snapshot.above(&request.resource, controller) {
            Some(Above::Owner(main)) => Some(Owner { main, reference: controller.clone() }),
            _ => None,
        };
        let following = async {
            // Most wait for some milliseconds.
            let _permit = timeout(ROOM_TIMEOUT, self.owners.room.acquire()).await.ok()?.ok()?;
            Some(timeout(OWNER_TIMEOUT, self.follow(request, snapshot, controller, &mut known)).await)
        };
        let fault = match following.await {
            Some(Ok(Ok(decision))) => return decision,
            Some(Ok(Err(error))) => explain(&error),
            Some(Err(_)) => "no shard has it, or the API server takes too long".to_owned(),
            None => "too many others wait for theirs".to_owned(),
        };
        let (ring, namespace, owner) = (&snapshot.ring, request.namespace(), &controller.name);
        tracing::warn!(%ring, namespace, owner, fault, "can't tell who works on the owner of an object");
        // Where its owner belongs, if that is known; else the controller finds it.
        let place = |owner: &Owner<'_>| owner.place(snapshot, request.namespace());
        known.map_or(Decision::Leave, |owner| followed(request, snapshot, (owner.main, place(&owner)), None))
    }

    /// Decides by the owner of a controlled object. An owner that was just released gets its next shard in a moment.
    /// The webhook must not guess another shard for a child that is created right now.
    async fn follow<'a>(
        &self,
        request: &'a Request,
        snapshot: &'a Arc<Snapshot>,
        controller: &OwnerReference,
        known: &mut Option<Owner<'a>>,
    ) -> Found<Decision<'a>> {
        let namespace = request.namespace();
        let owner = owner(&self.client, snapshot, &request.resource, controller, namespace).await?;
        let Some(owner) = owner else { return Ok(Decision::Leave) };
        let owner = known.insert(owner);
        loop {
            // It is gone, or was never there in this namespace: the object follows nothing.
            let Some(found) = self.read_owner(snapshot, owner, namespace).await? else { return Ok(Decision::Leave) };
            let place = snapshot.place_of(owner.main, &found.metadata);
            let found = Target::of(&found.metadata, &snapshot.labels);
            let live = self.live_shard(snapshot, &found).await?;
            let comes = found.shard.is_none() && snapshot.shard_for_new(owner.main, place).is_some();
            if !(comes && request.creates()) {
                return Ok(followed(request, snapshot, (owner.main, Some(place)), live));
            }
            tokio::time::sleep(BETWEEN_OWNERS).await;
        }
    }

    /// The owner as it is now.
    async fn read_owner(&self, snapshot: &Arc<Snapshot>, owner: &Owner<'_>, of: Option<&str>) -> Found<Option<Object>> {
        let (reference, resource) = (owner.reference.clone(), owner.main.resource.clone());
        let key = format!("{} {} {of:?} {} {}", snapshot.ring, resource.id, reference.name, reference.uid);
        let (client, namespace) = (self.client.clone(), of.map(str::to_owned));
        let read =
            async move { owners::read(&client, &resource, &reference, namespace.as_deref()).await.map_err(Arc::new) };
        self.owners.objects.join(key, read).await
    }

    /// The available shard that works on an owner, or is about to release it. None when no available shard has it.
    ///
    /// A shard that is not available as far as this replica knows may have come back: then its controller already creates
    /// children, and only the API server can tell.
    async fn live_shard(&self, snapshot: &Snapshot, owner: &Target) -> Found<Option<ShardName>> {
        let Some(shard) = owner.shard.clone() else { return Ok(None) };
        let named = shard.parse().ok();
        if snapshot.members.is_available(&shard) {
            return Ok(named);
        }
        let (leases, client, ring) = (self.leases.clone(), self.client.clone(), snapshot.ring.clone());
        let key = format!("{ring} {shard}");
        let is_there = async move { leases.is_there(&client, &ring, &shard).await };
        let is_there = self.owners.shards.join(key, is_there.map_err(Arc::new)).await?;
        Ok(named.filter(|_| is_there))
    }
}

/// Lets a write pass whose review can't be read, and says so.
pub(super) fn unread(ring: &str, fault: &Unreadable) -> Answer {
    tracing::warn!(ring, %fault, "got a review that can't be read");
    Answer::allow_unread(fault)
}
