//! The webhook's server: TLS by the current certificate, a route for each kind of review.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    middleware::from_fn_with_state,
    routing::post,
};
use futures::TryFutureExt;
use http::StatusCode;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use ringside_ring::ShardName;
use ringside_runtime::{contained::Contained, shutdown::Shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    body::{Arrived, Room},
    connections::{Connections, noting},
    farewell::{Farewell, LONGEST},
    injector::Injector,
    owner_reads::{Answer as Found, OwnerReads},
    request::{Request, Unreadable, parse},
    response::Answer,
    review::{Decision, decide, followed},
};
use crate::{
    injector,
    leases::Leases,
    metrics::Metrics,
    move_id,
    owners::{self, Owner, owner},
    probe,
    resources::Object,
    rings::WEBHOOK_PATH,
    snapshot::{Above, Snapshot, Snapshots},
    target::Target,
};
use ringside_runtime::explain::explain;

/// A client that can't finish a TLS handshake in this time is none that waits 2 seconds for an answer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may wait for a request's headers. That includes the time between requests, and the API server
/// keeps idle connections for 90 s (Go's default transport): it is to be the one who closes them, else a review might
/// meet a connection that is just being closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(100);
/// How long connections have to end at shutdown: as long as the API server waits for an answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end takes at most.
pub(crate) const ENDS_WITHIN: Duration = LONGEST.saturating_add(DRAIN_TIMEOUT);
/// How long reading an owner may take: it leaves time to answer within the 2 seconds that the API server waits.
const OWNER_TIMEOUT: Duration = Duration::from_millis(1_200);
/// How long a create waits for its turn to read an owner.
const ROOM_TIMEOUT: Duration = Duration::from_millis(150);
/// How soon an owner without a shard is read again: a move leaves it without one for some milliseconds.
const BETWEEN_OWNERS: Duration = Duration::from_millis(20);
/// Pause after a failure to accept, such as too many open files: an immediate next attempt would fail alike.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the reviews are answered from.
#[derive(Clone)]
pub(crate) struct Reviewer {
    pub(crate) client: Client,
    pub(crate) leases: Leases,
    pub(crate) snapshots: watch::Receiver<Option<Arc<Snapshots>>>,
    pub(crate) metrics: Metrics,
    pub(crate) room: Room,
    pub(crate) owners: Arc<OwnerReads>,
    /// Adds the proxy to pods, where that is wanted.
    pub(crate) injector: Option<Injector>,
}

/// Serves the webhook until the shutdown, and then until nobody asks it any more ([`Farewell`]).
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    reviewer: Reviewer,
    shutdown: Shutdown,
) -> io::Result<()> {
    let farewell = Arc::new(Farewell::new(shutdown));
    let router = router(reviewer).layer(from_fn_with_state(farewell.clone(), Farewell::see_off));
    let (connections, mut open) = (GracefulShutdown::new(), Connections::default());
    // Dropping it ends what is still there when the time at shutdown is over.
    let mut tasks = JoinSet::new();
    let mut end = std::pin::pin!(farewell.over());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    // A fault of ours, and no reason to end the others' connections.
                    tracing::error!("a connection's task panicked; the connection is closed");
                }
                continue;
            }
            () = &mut end => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // An answer is to leave at once, and not with the next one.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "can't set TCP_NODELAY on a connection to the webhook");
                }
                let (last_use, router) = noting(router.clone());
                open.add(last_use, tasks.spawn(connect(stream, acceptor.clone(), router, connections.watcher())));
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection to the webhook");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // What is in flight may end; idle connections are told to go elsewhere.
    let _ended_in_time = timeout(DRAIN_TIMEOUT, connections.shutdown()).await.is_ok();
    Ok(())
}

/// One connection: its end and its failures concern nobody else.
async fn connect<S>(stream: S, acceptor: TlsAcceptor, router: Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Probes and port scans end here too.
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake with the webhook failed"),
        Err(_) => return tracing::debug!("a TLS handshake with the webhook took too long"),
    };
    let mut builder = auto::Builder::new(Contained);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error, "a connection to the webhook broke");
    }
}

/// The webhook's routes.
fn router(reviewer: Reviewer) -> Router {
    Router::new()
        .route(&format!("{WEBHOOK_PATH}{{ring}}"), post(answer))
        .route(probe::webhook::PATH, post(reached))
        .route(injector::PATH, post(inject))
        .with_state(reviewer)
}

async fn answer(
    State(reviewer): State<Reviewer>,
    Path(ring): Path<String>,
    request: axum::extract::Request,
) -> Json<Answer> {
    Json(reviewer.read(&ring, request, async |body| reviewer.answer(&ring, body).await).await)
}

/// Marks the write by which the leader finds out whether the API server reaches this.
async fn reached(State(reviewer): State<Reviewer>, request: axum::extract::Request) -> Json<Answer> {
    let mark = async |body: &[u8]| match parse(body) {
        Ok((version, request)) => Answer::allow(version, &request.uid).with_patch(&probe::webhook::mark()),
        Err(fault) => unread("of the probe", &fault),
    };
    Json(reviewer.read("of the probe", request, mark).await)
}

/// Adds the proxy to a pod. Where it can't be told whether the pod asks for it, the failure policy decides.
async fn inject(
    State(reviewer): State<Reviewer>,
    request: axum::extract::Request,
) -> Result<Json<Answer>, (StatusCode, String)> {
    let not_there = (StatusCode::NOT_FOUND, "this sharder does not inject".to_owned());
    let injector = reviewer.injector.clone().ok_or(not_there)?;
    let answered = match reviewer.whole(request, async |body| injector.answer(body).await).await {
        Ok(answered) => answered,
        Err(unread) => Err(unread.into()),
    };
    answered.map(Json).map_err(|fault| {
        tracing::warn!(%fault, "can't answer a review of a pod");
        (StatusCode::INTERNAL_SERVER_ERROR, fault.to_string())
    })
}

fn unread(ring: &str, fault: &Unreadable) -> Answer {
    tracing::warn!(ring, %fault, "got a review that can't be read");
    Answer::allow_unread(fault)
}

impl Reviewer {
    /// Answers a review once it has arrived.
    async fn read(
        &self,
        ring: &str,
        request: axum::extract::Request,
        answer: impl AsyncFnOnce(&[u8]) -> Answer,
    ) -> Answer {
        self.whole(request, answer).await.unwrap_or_else(|fault| unread(ring, &fault))
    }

    /// What is made of a review that has arrived as a whole.
    async fn whole<T>(
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
    pub(super) async fn answer(&self, ring: &str, body: &[u8]) -> Answer {
        let (version, request) = match parse(body) {
            Ok(parsed) => parsed,
            Err(fault) => return unread(ring, &fault),
        };
        let allow = Answer::allow(version, &request.uid);
        let Some(snapshots) = self.snapshots.borrow().clone() else {
            // Just started: the object is assigned by the controller.
            return allow;
        };
        let unknown = || format!("there is no ClusterRing '{ring}', so the object is not assigned");
        let Some(snapshot) = snapshots.get(ring) else { return allow.with_warning(unknown()) };
        match self.decide(&request, snapshot).await {
            // A label of a ring that is gone would be there for ever: they may have been taken off already.
            Decision::Restore(_) | Decision::Assign(_) if self.is_gone(snapshot) => allow.with_warning(unknown()),
            Decision::Restore(patch) => allow.with_patch(&patch),
            Decision::Assign(patch) => {
                if request.dry_run != Some(true) {
                    self.metrics.assigned(&snapshot.ring, &request.resource);
                    // An acknowledgement: nobody else sees this move end.
                    let age = request.drain(&snapshot.labels).and_then(|id| move_id::age(id, SystemTime::now()));
                    age.inspect(|age| self.metrics.move_took(&snapshot.ring, *age));
                }
                allow.with_patch(&patch)
            }
            Decision::Foreign => {
                allow.with_warning(format!("'{}' is not a resource of ClusterRing '{ring}'", request.resource))
            }
            Decision::Odd(odd) => allow.with_warning(odd.to_string()),
            Decision::Leave | Decision::Follow(_) => allow,
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

    /// Decides by the owner of a controlled object. One that has just been let go of gets its next shard in a moment: a
    /// child that is created right now must not be guessed to be elsewhere.
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
            let found = self.read_owner(snapshot, owner, namespace).await?;
            let place = match &found {
                Some(found) => Some(snapshot.place_of(owner.main, &found.metadata)),
                None => owner.place(snapshot, namespace),
            };
            let found = found.map(|found| Target::of(&found.metadata, &snapshot.labels));
            let live = match &found {
                Some(found) => self.live_shard(snapshot, found).await?,
                None => None,
            };
            let between = found.is_some_and(|found| found.shard.is_none());
            let comes = between && !snapshot.withholds(owner.main) && !snapshot.is_vacant();
            if !(comes && request.creates()) {
                return Ok(followed(request, snapshot, (owner.main, place), live));
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

    /// The available shard that works on an owner, or is about to let go of it. None when no available shard has it.
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

#[cfg(test)]
mod tests;
