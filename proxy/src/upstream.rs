//! The connections to the API server.
//!
//! Two pools. Short requests share HTTP/2 connections. What may go on for as long as the client likes
//! (watches, followed logs, upgrades) has an HTTP/1.1 connection each: HTTP/2 has one window for all streams
//! of a connection, so one slow reader would delay every other watch, and a limit on streams (Go's default:
//! 250). DESIGN, "Proxy: the way of a request".

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::ConfigExt;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tower::{Service, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use crate::{
    body::{Body, BoxError, boxed},
    request::RequestInfo,
};
use ringside_runtime::explain::causes;

pub mod headers;

/// How long a TCP or TLS handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After how much silence a peer is asked whether it is still there; kubelets and client-go use 30 s.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long it may take to say so.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// TCP asks more often, and after so many questions without an answer the peer is gone: as soon as with HTTP/2.
/// The system's own numbers are for the internet: 75 s and 9 questions, 11 minutes in which a watch is silent.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// What one HTTP/2 stream may buffer, and all of a connection: 64 slow readers don't stop the others.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;
/// HTTP/1.1 connections kept for the next watch.
const IDLE_WATCH_CONNECTIONS: usize = 4;

/// Why the API server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// There was no connection, so the request was not sent.
    #[error("the API server can't be reached: {0}")]
    Unreachable(#[source] BoxError),
    /// The request may have been sent and done, but there is no answer to it.
    #[error("no answer from the API server: {0}")]
    Failed(#[source] BoxError),
}

/// Why the connections can't be set up at all.
#[derive(Debug, thiserror::Error)]
pub enum SetUpUpstream {
    /// Credentials or certificates.
    #[error("the credentials for the API server can't be used: {0}")]
    Credentials(#[from] kube::Error),
    /// The name that the server's certificate has to have.
    #[error("the kubeconfig's tls-server-name can't be used: {0}")]
    ServerName(#[source] InvalidDnsNameError),
    /// A proxy on the way there.
    #[error("the kubeconfig names a proxy-url, which is not supported: name a cluster that is reached directly")]
    ProxyUrl,
}

type Pool = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// The API server.
#[derive(Clone)]
pub struct Upstream {
    short: Pool,
    long: Pool,
}

impl Upstream {
    /// Sets the pools up; connections are made when they are needed.
    ///
    /// # Errors
    /// When the configuration's credentials can't be used.
    pub fn new(config: &kube::Config) -> Result<Self, SetUpUpstream> {
        if config.proxy_url.is_some() {
            return Err(SetUpUpstream::ProxyUrl);
        }
        Ok(Self { short: pool(config, Kind::Short)?, long: pool(config, Kind::Long)? })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Short,
    Long,
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(PROBE_INTERVAL));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp
}

fn pool(config: &kube::Config, kind: Kind) -> Result<Pool, SetUpUpstream> {
    let tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(SetUpUpstream::ServerName)?;
            tls.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls,
    };
    let connector = match kind {
        Kind::Short => tls.enable_all_versions().wrap_connector(tcp()),
        // Without ALPN both sides speak HTTP/1.1.
        Kind::Long => tls.enable_http1().wrap_connector(tcp()),
    };
    let mut builder = Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    match kind {
        Kind::Short => builder
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW),
        Kind::Long => builder.pool_max_idle_per_host(IDLE_WATCH_CONNECTIONS),
    };
    let client = builder.build(connector);
    let client = ServiceBuilder::new().map_err(BoxError::from).service(client);
    // kube's layers: its base path, its credentials (refreshed from files and commands), its extra headers.
    let stack = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(BoxCloneSyncService::new(stack))
}

impl Service<Request<Body>> for Upstream {
    type Response = Response<Body>;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Response<Body>, UpstreamError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        // The pools are always ready: they connect as part of the call.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let long = request.extensions().get::<RequestInfo>().is_some_and(RequestInfo::is_long_running);
        let pool = if long { &self.long } else { &self.short }.clone();
        Box::pin(async move {
            let response = pool.oneshot(request).await.map_err(|error| explain(&error))?;
            Ok(response.map(boxed))
        })
    }
}

fn explain(error: &BoxError) -> UpstreamError {
    let not_sent = error.downcast_ref().is_some_and(hyper_util::client::legacy::Error::is_connect);
    let text = causes(&**error);
    if not_sent { UpstreamError::Unreachable(text.into()) } else { UpstreamError::Failed(text.into()) }
}
