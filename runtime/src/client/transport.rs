//! A set of connections to the API server, as a service.
//!
//! Everything is sent over HTTP/2 but upgrades and some short reads at a time ([`Short`]). All of it is sent over
//! HTTP/1.1 where the server has no HTTP/2 (`--disable-http2-serving`). What only reads and got no answer is sent once
//! more; a write is only when the API server says that it did nothing with it, and there is no body, which would be
//! gone.
//!
//! A request that brings an `Authorization` of its own is sent with that and with none of the process's credentials: on
//! connections without its client certificate, which the API server would prefer.

use std::{
    future::{pending, poll_fn},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, Uri, header, uri::Scheme};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::{
    client::legacy::{
        self, Client,
        connect::{CaptureConnection, HttpInfo, capture_connection},
    },
    rt::TokioTimer,
};
use kube::client::{AuthError, ConfigExt};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, layer::layer_fn, service_fn, util::BoxCloneSyncService};

use super::{
    ApiServer, BoxError, ConnectError, Held,
    access::{Access, without_output},
    connector::{Connector, Offer},
    handshake::{Pings, StreamWindow},
    http2::{ATTEMPTS, Http2, UNUSED, Unanswered},
    silence::Servers,
};
use crate::{contained::Contained, explain::causes, no_answer::NoAnswer};

/// How many HTTP/1.1 connections are kept that nothing is sent on. More are closed after their request.
const UNUSED_CONNECTIONS: usize = 16;
/// Short reads that wait for an answer by HTTP/1.1 at a time. More are sent over HTTP/2.
const SHORT_READS: usize = 8;
/// How long one waits for it. HTTP/1.1 has no pings, so nothing else tells of a server that is gone behind a connection that is kept.
const SHORT_READ: Duration = Duration::from_secs(5);
/// How many headers an answer may have by HTTP/1.1, where they are counted: a write may have a hundred warnings.
const HTTP1_HEADERS: usize = 500;
/// What a connection by HTTP/1.1 keeps for what it reads: one that has read a long list may carry a watch for hours after it.
const HTTP1_BUFFER: usize = 64 << 10;
/// After how long a server that had no HTTP/2 is asked for it again: it may have been upgraded.
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// On a request: its answer is a watch, which has a window of [`super::WATCH_WINDOW`] bytes.
#[derive(Clone, Copy, Debug)]
pub struct Watch;

/// On a request: it reads one object. By HTTP/1.1 that takes less than by HTTP/2, where each answer wakes three tasks.
#[derive(Clone, Copy, Debug)]
pub struct Short;

/// A [`BoxError`] with a name: without it, `dyn` in the type of every request keeps the compiler from proving that the futures
/// around it are `Send`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(#[source] pub BoxError);

impl From<BoxError> for BodyError {
    fn from(error: BoxError) -> Self {
        Self(error)
    }
}

/// A request's body, whatever it is made of. The default has no bytes.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Sends requests by kept connections, which clones share.
#[derive(Clone)]
pub struct Transport {
    server: ApiServer,
    pings: Pings,
    generation: Arc<Mutex<Generation>>,
}

/// The connections made with one state of the files. Requests hold what they were sent on.
pub(super) struct Generation {
    access: Arc<Access>,
    stack: Stack,
    /// For requests with credentials of their own.
    anonymous: Stack,
}

type Stack = BoxCloneSyncService<Request<Body>, Response<Held>, BoxError>;

impl Transport {
    pub(super) fn new(server: ApiServer, pings: Pings) -> Result<Self, ConnectError> {
        let generation = Generation::new(&server, server.access(), pings)?;
        Ok(Self { server, pings, generation: Arc::new(Mutex::new(generation)) })
    }

    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Held>, NoAnswer>> {
        let access = self.server.access();
        let mut generation = self.generation.lock();
        if !Arc::ptr_eq(&generation.access, &access) {
            match Generation::new(&self.server, access, self.pings) {
                Ok(new) => *generation = new,
                // It was tried before it was taken up, so this passes: the old connections serve until then.
                Err(error) => tracing::warn!(%error, "going on with the connections that there are"),
            }
        }
        generation.send(request)
    }
}

impl Generation {
    pub(super) fn new(server: &ApiServer, access: Arc<Access>, pings: Pings) -> Result<Self, ConnectError> {
        let config = &access.config;
        let credentials = access.auth.as_ref().map(|auth| layer_fn(|inner| auth.layer(inner)));
        let exchange = Arc::new(Exchange::new(server, (&access, &access.tls), pings)?);
        let anonymous = Arc::new(Exchange::new(server, (&access, &access.anonymous_tls()?), pings)?);
        // kube's layers: its base path, its credentials (refreshed from files and commands), its extra headers.
        let stack = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(credentials)
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service(service_fn(move |request| exchange.clone().send(request)));
        let anonymous = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .map_err(BoxError::from)
            .service(service_fn(move |request| anonymous.clone().send(request)));
        let (stack, anonymous) = (BoxCloneSyncService::new(stack), BoxCloneSyncService::new(anonymous));
        Ok(Self { stack, anonymous, access })
    }

    pub(super) fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Held>, NoAnswer>> {
        let brings_credentials = request.headers().contains_key(header::AUTHORIZATION);
        let stack = if brings_credentials { &self.anonymous } else { &self.stack }.clone();
        Box::pin(async move { stack.oneshot(request).await.map_err(ours) })
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Held>;
    type Error = NoAnswer;
    type Future = BoxFuture<'static, Result<Response<Held>, NoAnswer>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        // Connections are made as part of the call.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.send(request)
    }
}

/// What is not ours comes from the layer that gets a token, and then nothing was sent.
fn ours(error: BoxError) -> NoAnswer {
    match error.downcast::<NoAnswer>() {
        Ok(ours) => *ours,
        Err(other) => NoAnswer::Unreachable(match other.downcast_ref::<AuthError>() {
            Some(fault) => without_output(fault).into(),
            None => other,
        }),
    }
}

/// Sends requests that have all their headers.
struct Exchange {
    http1: Client<Connector, Body>,
    /// For upgrades, each by a new connection: one that was kept may lead to a server that is gone, and an upgrade is not sent again.
    upgrades: Client<Connector, Body>,
    /// Those that answer by HTTP/1.1.
    servers: Arc<Servers>,
    /// None without TLS, where nothing is negotiated.
    http2: Option<Http2>,
    /// The same for watches.
    watches: Option<Http2>,
    /// When to ask a server for HTTP/2 that had none.
    ask_again: Mutex<Option<Instant>>,
    short_reads: Semaphore,
}

impl Exchange {
    fn new(server: &ApiServer, (access, tls): (&Access, &ClientConfig), pings: Pings) -> Result<Self, ConnectError> {
        let connector = server.connector(access, tls, Offer::Http1)?;
        let servers = Arc::new(Servers::new(connector.clone(), &access.config.cluster_url, pings));
        let http1 = |unused| {
            Client::builder(Contained)
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(UNUSED)
                .pool_max_idle_per_host(unused)
                // As the client wrote them, or as Go does.
                .http1_preserve_header_case(true)
                .http1_title_case_headers(true)
                .http1_max_headers(HTTP1_HEADERS)
                .http1_max_buf_size(HTTP1_BUFFER)
                .build(connector.clone())
        };
        let (http1, upgrades) = (http1(UNUSED_CONNECTIONS), http1(0));
        let secured = access.config.cluster_url.scheme() != Some(&Scheme::HTTP);
        let http2 = secured.then(|| server.connector(access, tls, Offer::Both)).transpose()?;
        let of = |window| http2.clone().map(|connector| Http2::new(connector, pings, window));
        let (answers, watches) = (of(StreamWindow::OF_ANSWERS), of(StreamWindow::OF_WATCHES));
        let (ask_again, short_reads) = (Mutex::default(), Semaphore::new(SHORT_READS));
        Ok(Self { http1, upgrades, servers, http2: answers, watches, ask_again, short_reads })
    }

    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<Held>, NoAnswer> {
        let again = Again::of(&request);
        let (mut outcome, mut attempts) = (self.first(request, again.as_ref()).await, 1);
        while let (Err(error), Some(again)) = (&outcome, &again)
            && again.may_follow(error, attempts)
        {
            tracing::debug!(error = causes(error), "a request is sent again");
            (outcome, attempts) = (self.attempt(again.request()).await, attempts + 1);
        }
        outcome
    }

    /// A short read is sent over HTTP/1.1 where there is a place for it, and over HTTP/2 where it has no answer then.
    async fn first(&self, request: Request<Body>, again: Option<&Again>) -> Result<Response<Held>, NoAnswer> {
        let is_short = request.extensions().get::<Short>().is_some() && self.http2.is_some();
        let place = is_short.then(|| self.short_reads.try_acquire().ok()).flatten();
        let (Some(_place), Some(again)) = (place, again) else { return self.attempt(request).await };
        match timeout(SHORT_READ, self.attempt_http1(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => self.attempt(again.request()).await,
        }
    }

    async fn attempt(&self, request: Request<Body>) -> Result<Response<Held>, NoAnswer> {
        let upgrade = request.headers().contains_key(header::UPGRADE);
        let http2 = if request.extensions().get::<Watch>().is_some() { &self.watches } else { &self.http2 };
        let Some(http2) = http2.as_ref().filter(|_| !upgrade && self.may_have_http2()) else {
            return self.attempt_http1(request).await;
        };
        match http2.send(request).await {
            Ok(response) => Ok(response),
            Err(Unanswered::NoAnswer(error)) => Err(error),
            Err(Unanswered::NotSpoken(request)) => {
                *self.ask_again.lock() = Some(Instant::now() + ASK_AGAIN);
                self.attempt_http1(*request).await
            }
        }
    }

    async fn attempt_http1(&self, mut request: Request<Body>) -> Result<Response<Held>, NoAnswer> {
        let authorization = request.headers().get(header::AUTHORIZATION).cloned();
        let http1 = if request.headers().contains_key(header::UPGRADE) { &self.upgrades } else { &self.http1 };
        let connection = capture_connection(&mut request);
        // In a place of its own: it is seldom needed for more than a moment, and every request has one.
        let gone = Box::pin(self.gone(connection, authorization.clone()));
        let response = tokio::select! {
            biased;
            response = http1.request(request) => response.map_err(|error| no_answer(&error))?,
            server = gone => return Err(NoAnswer::Gone(server)),
        };
        let server = response.extensions().get::<HttpInfo>().map(HttpInfo::remote_addr);
        let silence = server.map(|server| self.servers.silence(server, authorization));
        Ok(response.map(|body| Held::by_http1(body, silence)))
    }

    /// Returns the server that a request was sent to, once that does not answer anything any more.
    async fn gone(&self, mut connection: CaptureConnection, authorization: Option<HeaderValue>) -> SocketAddr {
        let mut found = Extensions::new();
        if let Some(connected) = &*connection.wait_for_connection_metadata().await {
            connected.get_extras(&mut found);
        }
        // Without it there was no connection, and the request has failed.
        let Some(server) = found.get::<HttpInfo>().map(HttpInfo::remote_addr) else { return pending().await };
        let mut silence = self.servers.silence(server, authorization);
        poll_fn(|context| silence.poll_gone(context)).await;
        server
    }

    fn may_have_http2(&self) -> bool {
        self.ask_again.lock().is_none_or(|again| again <= Instant::now())
    }
}

/// All of a request without a body, so that it can be sent again.
struct Again {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    watch: Option<Watch>,
}

impl Again {
    fn of(request: &Request<Body>) -> Option<Self> {
        let whole = request.body().is_end_stream() && !request.headers().contains_key(header::UPGRADE);
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let watch = request.extensions().get().copied();
        whole.then(|| Self { method: method.clone(), uri: uri.clone(), headers: headers.clone(), watch })
    }

    fn may_follow(&self, error: &NoAnswer, attempts: usize) -> bool {
        match error {
            // Connections have been tried for long enough.
            NoAnswer::Unreachable(_) => false,
            // A server that goes away does so on all connections.
            NoAnswer::NotProcessed(_) => attempts < ATTEMPTS,
            NoAnswer::Failed(_) => matches!(self.method, Method::GET | Method::HEAD) && attempts == 1,
            // The client has waited for long enough.
            NoAnswer::Gone(_) => false,
        }
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::default());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(watch) = self.watch {
            request.extensions_mut().insert(watch);
        }
        request
    }
}

fn no_answer(error: &legacy::Error) -> NoAnswer {
    let text = causes(error).into();
    if error.is_connect() { NoAnswer::Unreachable(text) } else { NoAnswer::Failed(text) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Each request has one of these until its answer begins.
    #[tokio::test]
    async fn a_request_under_way_is_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let kubeconfig = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}]}"#;
        std::fs::write(&path, kubeconfig).unwrap();
        let server = ApiServer::find(Some(&path), "test").unwrap();
        let access = server.access();
        let exchange = Arc::new(Exchange::new(&server, (&access, &access.tls), Pings::default()).unwrap());
        let size = size_of_val(&exchange.send(Request::new(Body::default())));
        assert!(size <= 4 << 10, "{size} bytes");
    }
}
