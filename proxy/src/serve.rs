//! The local side: TLS, HTTP/1.1 and HTTP/2, and an orderly end.
//!
//! The end, after SIGTERM. Beside the controller's container (which gets it at the same time) or after it (as
//! a native sidecar): go on serving until the controller's connections are gone or `LINGER` is over. Then
//! drain: accept nothing more, end watches, let requests finish for `DRAIN`. Then force: cut what is left.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use ringside_runtime::{contained, shutdown::Shutdown};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Service, ServiceBuilder};

use crate::{
    body::{Body, boxed},
    connection::closable,
};

/// How long to go on for a controller that was asked to end together with us. With [`DRAIN`], which only who goes on beyond it
/// needs, or with what is let go after it has left, and with the release of the Lease it stays below the 30 s that Kubernetes
/// gives a pod.
const LINGER: Duration = Duration::from_secs(22);
/// How long requests have that are under way when the proxy stops.
const DRAIN: Duration = Duration::from_secs(2);
/// All of the end, for whoever waits for it. A release that takes longer than what is left then is broken off: the Lease
/// runs out by itself.
pub const ENDS_WITHIN: Duration = Duration::from_secs(28);
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long it may take for the head of the first request, or of the next on HTTP/1.1. This must be longer than clients
/// keep an unused connection (Go: 90 s): who sends just when we close has a failed request.
const NEXT_REQUEST: Duration = Duration::from_secs(120);
/// After how much silence a client's HTTP/2 connection is checked, and how long the client may take to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Requests on one HTTP/2 connection: a controller may well have hundreds of watches, and not every client opens
/// another connection where a server allows too few.
const STREAMS: u32 = 1024;
/// What one request's body may have on the way here, and those of a connection together: enough for [`UPLOADS`] that
/// don't get on, without a delay for others.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = UPLOADS * STREAM_WINDOW;
const UPLOADS: u32 = 64;
/// What waits for one slow reader, beside what its connection's buffers hold.
const SEND_BUFFER: usize = 64 << 10;
/// A request's headers together: as much as Go's servers take.
const HEADERS: u32 = 1 << 20;
/// How many headers a request may have by HTTP/1.1, where they are counted: impersonation has one for each value.
const HTTP1_HEADERS: usize = 500;
/// How long to wait after the system refused a connection, as it does when no file descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The connections of the controller.
#[derive(Debug)]
pub struct Server {
    /// Where they come from.
    pub listener: TcpListener,
    /// What they are secured with.
    pub tls: ServerConfig,
    /// Upgraded connections, which go on after their request.
    pub upgraded: TaskTracker,
    /// Triggered when watches have to end.
    pub closing: CancellationToken,
    /// Triggered when everything that is left has to end.
    pub abort: CancellationToken,
    /// Is triggered, before the end, when the controller has left by itself: who was cut off may well go on.
    pub left: Shutdown,
    /// How long to wait at the end.
    pub patience: Patience,
}

/// How long the two steps of the end may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the controller to end.
    pub linger: Duration,
    /// For requests under way after that.
    pub drain: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { linger: LINGER, drain: DRAIN }
    }
}

impl Server {
    /// Serves `stack` until the shutdown, and ends in order.
    ///
    /// # Errors
    /// Never; the type is what a supervised task returns.
    pub async fn run<S>(self, stack: S, shutdown: Shutdown) -> Result<(), Infallible>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    {
        let (acceptor, connections) = (TlsAcceptor::from(Arc::new(self.tls)), TaskTracker::new());
        let drain = CancellationToken::new();
        let gone = async {
            shutdown.wait().await;
            tracing::info!(connections = connections.len(), "serving the controller until it has ended");
            connections.close();
            self.upgraded.close();
            let idle = async { tokio::join!(connections.wait(), self.upgraded.wait()) };
            if timeout(self.patience.linger, idle).await.is_err() {
                tracing::warn!(connections = connections.len(), "the controller is still connected; ending anyway");
            }
        };
        tokio::select! {
            () = gone => {}
            () = async {
                loop {
                    let stream = accept(&self.listener).await;
                    let serve = secured(stream, acceptor.clone(), stack.clone(), drain.clone(), self.abort.clone());
                    connections.spawn(contained(serve, self.abort.clone()));
                }
            } => {}
        }
        if connections.is_empty() && self.upgraded.is_empty() {
            self.left.trigger();
        }
        drop(self.listener);
        self.closing.cancel();
        drain.cancel();
        let ended = async { tokio::join!(connections.wait(), self.upgraded.wait()) };
        if timeout(self.patience.drain, ended).await.is_err() {
            tracing::warn!(connections = connections.len(), "closing connections with requests under way");
            self.abort.cancel();
            tokio::join!(connections.wait(), self.upgraded.wait());
        }
        Ok(())
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Until it has ended, or all are aborted.
async fn contained(connection: impl Future<Output = ()>, abort: CancellationToken) {
    abort.run_until_cancelled_owned(contained::contained(closable(connection))).await;
}

/// Runs what HTTP/2 makes of a connection's requests in the same way.
#[derive(Clone)]
struct Contained(CancellationToken);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Contained {
    fn execute(&self, future: F) {
        tokio::spawn(contained(future, self.0.clone()));
    }
}

async fn secured<S>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    stack: S,
    drain: CancellationToken,
    abort: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    // Small answers should not wait for an acknowledgement of the last one; failing to say so does no harm.
    let _ = stream.set_nodelay(true);
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, stack, drain, abort).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn connection<S>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    stack: S,
    drain: CancellationToken,
    abort: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let builder = protocols(Contained(abort));
    let asked = Arc::new(AtomicBool::new(false));
    let asks = asked.clone();
    let note = move |request: Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        request.map(boxed)
    };
    let stack = ServiceBuilder::new().map_request(note).service(stack);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(stack));
    let mut serving = std::pin::pin!(serving);
    // hyper has no limit for what comes before the first request, be it the choice of the protocol.
    let silent = async {
        sleep(NEXT_REQUEST).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = silent => {
            tracing::debug!("a connection without a request is closed");
            return;
        }
        () = drain.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended with an error");
    }
}

fn protocols(executor: Contained) -> Builder<Contained> {
    let mut builder = Builder::new(executor);
    // Names of headers as the client wrote them, and in answers as Go's servers do.
    builder.http1().preserve_header_case(true).title_case_headers(true).max_headers(HTTP1_HEADERS);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(NEXT_REQUEST);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS);
    builder
}

#[cfg(test)]
mod tests;
