//! The webhook's server: TLS by the current certificate, one route.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
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
    request::{Request, parse},
    response::Answer,
    review::{Decision, decide, followed},
};
use crate::{
    leases::Leases,
    metrics::Metrics,
    owners::{Owner, live_shard, owner},
    rings::WEBHOOK_PATH,
    snapshot::{Snapshot, Snapshots},
};
use ringside_runtime::explain::explain;

/// A review carries an object twice, of 1.5 MB at most each (etcd's limit), and some of it twice again as escapes.
const LARGEST_REVIEW: usize = 8 << 20;
/// A client that can't finish a TLS handshake in this time is none that waits 5 seconds for an answer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may wait for a request's headers. That includes the time between requests, and the API server
/// keeps idle connections for 90 s (Go's default transport): it is to be the one who closes them, else a review might
/// meet a connection that is just being closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(100);
/// How long a review may take to arrive: after this the API server no longer waits for an answer.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long connections have to end at shutdown: as long as the API server waits for an answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long reading an owner may take: it leaves time to answer within the API server's 5 seconds.
const OWNER_TIMEOUT: Duration = Duration::from_secs(2);
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
}

/// Serves the webhook until the shutdown.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    reviewer: Reviewer,
    shutdown: Shutdown,
) -> io::Result<()> {
    let router = router(reviewer);
    let connections = GracefulShutdown::new();
    // Dropping it ends what is still there when the time at shutdown is over.
    let mut tasks = JoinSet::new();
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
            () = shutdown.wait() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connect(stream, acceptor.clone(), router.clone(), connections.watcher()));
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

/// The webhook's route.
fn router(reviewer: Reviewer) -> Router {
    Router::new()
        .route(&format!("{WEBHOOK_PATH}{{ring}}"), post(answer))
        .layer(DefaultBodyLimit::max(LARGEST_REVIEW))
        .with_state(reviewer)
}

async fn answer(
    State(reviewer): State<Reviewer>,
    Path(ring): Path<String>,
    request: axum::extract::Request,
) -> Result<Json<Answer>, Response> {
    let body = timeout(BODY_TIMEOUT, Bytes::from_request(request, &()));
    let body = body.await.map_err(|_| StatusCode::REQUEST_TIMEOUT.into_response())?;
    let body = body.map_err(IntoResponse::into_response)?;
    Ok(Json(reviewer.answer(&ring, &body).await))
}

impl Reviewer {
    /// Answers a review for a ring.
    async fn answer(&self, ring: &str, body: &[u8]) -> Answer {
        let request = match parse(body) {
            Ok(request) => request,
            Err(fault) => {
                tracing::warn!(ring, %fault, "got a review that can't be read");
                return Answer::allow(fault.uid.clone().unwrap_or_default()).with_warning(fault.to_string());
            }
        };
        let allow = Answer::allow(&request.uid);
        let Some(snapshots) = self.snapshots.borrow().clone() else {
            // Just started: the object is assigned by the controller.
            return allow;
        };
        let Some(snapshot) = snapshots.get(ring) else {
            return allow.with_warning(format!("there is no ClusterRing '{ring}', so the object is not assigned"));
        };
        match self.decide(&request, snapshot).await {
            Decision::Restore(patch) => allow.with_patch(&patch),
            Decision::Assign(patch) => {
                if request.dry_run != Some(true) {
                    self.metrics.assigned(&snapshot.ring, &request.resource);
                }
                allow.with_patch(&patch)
            }
            Decision::Foreign => {
                allow.with_warning(format!("'{}' is not a resource of ClusterRing '{ring}'", request.resource))
            }
            Decision::Leave | Decision::Follow(_) => allow,
        }
    }

    /// Decides, looking up the owner where that counts. A draining owner is still its shard's: the child goes along
    /// when it moves.
    async fn decide<'a>(&self, request: &'a Request, snapshot: &'a Snapshot) -> Decision<'a> {
        let controller = match decide(request, snapshot) {
            Decision::Follow(controller) => controller,
            decision => return decision,
        };
        let mut known = None;
        let fault = match timeout(OWNER_TIMEOUT, self.follow(request, snapshot, controller, &mut known)).await {
            Ok(Ok(decision)) => return decision,
            Ok(Err(error)) => explain(&error),
            Err(_) => "no shard has it, or the API server takes too long".to_owned(),
        };
        let (ring, namespace, owner) = (&snapshot.ring, request.namespace(), &controller.name);
        tracing::warn!(%ring, namespace, owner, fault, "can't tell who works on the owner of an object");
        // By its key, where that is known; else a pass of the controller finds it.
        known.map_or(Decision::Leave, |owner| followed(request, snapshot, &owner, None))
    }

    /// Decides by the owner of a controlled object. One that has just been let go of gets its next shard in a moment: a
    /// child that is created right now must not be guessed to be elsewhere.
    async fn follow<'a>(
        &self,
        request: &'a Request,
        snapshot: &'a Snapshot,
        controller: &OwnerReference,
        known: &mut Option<Owner<'a>>,
    ) -> Result<Decision<'a>, kube::Error> {
        let namespace = request.namespace();
        let owner = owner(&self.client, snapshot, &request.resource, controller, namespace).await?;
        let Some(owner) = owner else { return Ok(Decision::Leave) };
        let owner = known.insert(owner);
        loop {
            let found = owner.read(&self.client, snapshot, namespace).await?;
            let live = match &found {
                Some(found) => live_shard((&self.client, &self.leases), snapshot, found).await?,
                None => None,
            };
            let between = found.is_some_and(|found| found.shard.is_none());
            let comes = between && !snapshot.withholds(owner.main) && !snapshot.hash_ring.shards().is_empty();
            if !(comes && request.creates()) {
                return Ok(followed(request, snapshot, owner, live));
            }
            tokio::time::sleep(BETWEEN_OWNERS).await;
        }
    }
}

#[cfg(test)]
mod tests;
