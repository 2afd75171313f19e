//! The webhook's server: TLS by the current certificate, a route for each kind of review.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, State},
    middleware::from_fn_with_state,
    routing::post,
};
use http::StatusCode;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use ringside_ring::RingKind;
use ringside_runtime::{contained::Contained, shutdown::Shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    connections::{Connections, noting},
    farewell::{FAREWELL_TIMEOUT, Farewell},
    injector::{Injector, sidecar},
    request::{Unreadable, parse},
    response::Answer,
    reviewer::{Reviewer, unread},
};
use crate::{injector, probe};

/// A client that can't finish a TLS handshake in this time is none that waits 2 seconds for an answer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may wait for a request's headers. That includes the time between requests, and the API server
/// keeps idle connections for 90 s (Go's default transport): it is to be the one who closes them, else a review might
/// meet a connection that is just being closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(100);
/// How long connections have to end at shutdown: as long as the API server waits for an answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end takes at most.
pub(crate) const ENDS_WITHIN: Duration = FAREWELL_TIMEOUT.saturating_add(DRAIN_TIMEOUT);
/// Pause after a failure to accept, such as too many open files: an immediate next attempt would fail alike.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the webhook until the shutdown, and then until no client asks it any more ([`Farewell`]).
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

/// Serves one connection. Its end and its failures concern no other connection.
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
    let reviews = RingKind::ALL.into_iter().fold(Router::new(), |router, kind| {
        let reviewed = move |state, ring, request| answer(kind, state, ring, request);
        router.route(&format!("{}{{ring}}", kind.names().webhook_path), post(reviewed))
    });
    reviews
        .route(probe::webhook::PATH, post(reached))
        .route(injector::PATH, post(inject))
        .route(injector::SIDECAR_PATH, post(keep_sidecar))
        .with_state(reviewer)
}

async fn answer(
    kind: RingKind,
    State(reviewer): State<Reviewer>,
    Path(ring): Path<String>,
    request: axum::extract::Request,
) -> Json<Answer> {
    Json(reviewer.read(&ring, request, async |body| reviewer.answer(kind, &ring, body).await).await)
}

/// Marks the write by which the leader finds out whether the API server reaches this.
async fn reached(State(reviewer): State<Reviewer>, request: axum::extract::Request) -> Json<Answer> {
    let mark = async |body: &[u8]| match parse(body) {
        Ok(request) => Answer::allow(&request.uid).with_patch(&probe::webhook::mark()),
        Err(fault) => unread("of the probe", &fault),
    };
    Json(reviewer.read("of the probe", request, mark).await)
}

/// Adds the proxy to a pod. Where it can't be told whether the pod asks for it, the failure policy decides.
async fn inject(state: State<Reviewer>, request: axum::extract::Request) -> PodAnswer {
    about_pod(state, request, async |injector: &Injector, body: &[u8]| injector.answer(body).await).await
}

/// Makes the proxy of a pod a native sidecar again.
async fn keep_sidecar(state: State<Reviewer>, request: axum::extract::Request) -> PodAnswer {
    about_pod(state, request, async |_: &Injector, body: &[u8]| sidecar::answer(body)).await
}

type PodAnswer = Result<Json<Answer>, (StatusCode, String)>;

async fn about_pod(
    State(reviewer): State<Reviewer>,
    request: axum::extract::Request,
    answer: impl AsyncFnOnce(&Injector, &[u8]) -> Result<Answer, Unreadable>,
) -> PodAnswer {
    let not_there = (StatusCode::NOT_FOUND, "this sharder does not inject".to_owned());
    let injector = reviewer.injector.clone().ok_or(not_there)?;
    let answered = reviewer.whole(request, async |body| answer(&injector, body).await).await.flatten();
    answered.map(Json).map_err(|fault| {
        tracing::warn!(%fault, "can't answer a review of a pod");
        (StatusCode::INTERNAL_SERVER_ERROR, fault.to_string())
    })
}

#[cfg(test)]
mod tests;
