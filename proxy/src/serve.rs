//! The local side: TLS, HTTP/1.1 and HTTP/2, and an orderly end.
//!
//! The end, after SIGTERM. Beside the controller's container (which gets it at the same time) or after it (as
//! a native sidecar): go on serving until the controller's connections are gone or `LINGER` is over. Then
//! drain: accept nothing more, end watches, let requests finish for `DRAIN`. Then force: cut what is left.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use ringside_runtime::{
    connection_limit::{ConnectionLimit, ConnectionPermit},
    contained,
    listen::accept,
    shutdown::Shutdown,
};
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

/// How long to go on for a controller that was asked to end together with us. Kubernetes gives a pod 30 s. This stays
/// below them with [`DRAIN`], which only a controller needs that goes on beyond it, or with the releases after the
/// controller has left, and with the release of the Lease.
const LINGER: Duration = Duration::from_secs(22);
/// How long to go on where hooks have used up all but ten seconds of the pod's time.
const LINGER_AFTER_HOOKS: Duration = Duration::from_secs(4);
/// How long requests have that are under way when the proxy stops.
const DRAIN: Duration = Duration::from_secs(2);
/// How long the whole shutdown may take, for a caller that waits for it. A release that takes longer than what is left
/// then is broken off: the Lease runs out by itself.
pub const ENDS_WITHIN: Duration = Duration::from_secs(28);
/// How long a client may take to show a right token, from its connection on.
const FIRST_TOKEN: Duration = Duration::from_secs(10);
/// How long it may take for the head of the next request on HTTP/1.1. This must be longer than clients
/// keep an unused connection (Go: 90 s): who sends just when we close has a failed request.
const NEXT_REQUEST: Duration = Duration::from_secs(120);
/// After how much silence a client's HTTP/2 connection is checked, and how long the client may take to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Connections at the same time, and those among them that have shown no right token yet.
const CONNECTIONS: usize = 512;
const UNPROVEN: usize = 64;
/// Requests on one HTTP/2 connection: a controller may well have a hundred watches, and not every client opens
/// another connection where a server allows too few.
const STREAMS: u32 = 256;
/// What one request's body may have on the way here, and those of a connection together: enough for [`UPLOADS`] that
/// don't get on, without a delay for others.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = UPLOADS * STREAM_WINDOW;
const UPLOADS: u32 = 64;
/// What waits for one slow reader, beside what its connection's buffers hold.
const SEND_BUFFER: usize = 64 << 10;
/// A request's head.
const HEAD: u32 = 64 << 10;
/// How many headers a request may have by HTTP/1.1, where they are counted: impersonation has one for each value.
const HTTP1_HEADERS: usize = 500;

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
    /// Is triggered when the pod's hooks have run: they have used up most of its time.
    pub hurry: Shutdown,
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
            let linger = if self.hurry.is_triggered() { LINGER_AFTER_HOOKS } else { self.patience.linger };
            if timeout(linger, idle).await.is_err() {
                tracing::warn!(connections = connections.len(), "the controller is still connected; ending anyway");
            }
        };
        tokio::select! {
            () = gone => {}
            () = async {
                let limit = ConnectionLimit::new(CONNECTIONS, UNPROVEN);
                loop {
                    let stream = accept(&self.listener).await;
                    let caller = Arc::new(Caller::new(limit.admit().await));
                    let (acceptor, stack, drain) = (acceptor.clone(), stack.clone(), drain.clone());
                    let serve = secured(stream, acceptor, caller, stack, drain, self.abort.clone());
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

/// The client of a connection, on each of its requests.
#[derive(Debug)]
pub(crate) struct Caller(ConnectionPermit);

impl Caller {
    pub(crate) fn new(permit: ConnectionPermit) -> Self {
        Self(permit)
    }

    /// Notes that it has shown a token that is right.
    pub(crate) fn proves(&self) {
        self.0.prove();
    }

    /// Whether the connection has shown a right token.
    #[cfg(test)]
    pub(crate) fn is_proven(&self) -> bool {
        self.0.is_proven()
    }

    /// Serves its connection, until another one needs the place or no right token is shown in time.
    async fn bound(&self, serving: Pin<&mut impl Future<Output = ()>>) {
        let silent = async {
            sleep(FIRST_TOKEN).await;
            if self.0.is_proven() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = serving => {}
            () = silent => tracing::debug!("a connection without a right token is closed"),
            () = self.0.revoked() => tracing::debug!("a connection without a right token is closed for another one"),
        }
    }
}

/// Until it has ended, or all are aborted. Each layer around a future has room for it twice: so it is boxed first.
fn contained(connection: impl Future<Output = ()>, abort: CancellationToken) -> impl Future<Output = ()> {
    let connection = Box::pin(connection);
    async move {
        abort.run_until_cancelled_owned(contained::contained(closable(connection))).await;
    }
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
    caller: Arc<Caller>,
    stack: S,
    drain: CancellationToken,
    abort: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    // Small answers should not wait for an acknowledgement of the last one; failing to say so does no harm.
    let _ = stream.set_nodelay(true);
    let serving = pin!(async {
        match acceptor.accept(stream).await {
            Ok(stream) => connection(stream, caller.clone(), stack, drain, abort).await,
            Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
        }
    });
    caller.bound(serving).await;
}

async fn connection<S>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: Arc<Caller>,
    stack: S,
    drain: CancellationToken,
    abort: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let builder = protocols(Contained(abort));
    let from = move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        request.map(boxed)
    };
    let stack = ServiceBuilder::new().map_request(from).service(stack);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(stack));
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
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
    builder.http1().max_buf_size(HEAD as usize);
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
        .max_header_list_size(HEAD);
    builder
}

#[cfg(test)]
mod tests;
