//! One connection to the API server: its addresses, TCP, TLS and HTTP/2's settings, all of it within a bounded time.
//!
//! With several addresses the next is tried when one has failed, or has not answered for a moment (RFC 8305). What
//! counts is the end of the handshakes: the kernel of an API server that hangs still accepts connections.

use std::{
    future::ready,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{
    Uri,
    uri::{InvalidUri, Scheme},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use kube::Config;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tower::{Service, ServiceExt};

use super::{BoxError, ConnectError, addresses::Addresses};
use crate::explain::causes;

/// For all of it together, whatever the number of addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For how long an address is waited for alone; the delay that RFC 8305 recommends (section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);
/// After how much silence TCP asks the peer whether it is still there, how often, and after how many questions without an
/// answer it is gone: 25 s in all. HTTP/2 has pings of its own; HTTP/1.1 has nothing else.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// The same for what was sent and is not acknowledged: keep-alive questions wait for that (tcp(7)).
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// What a connection is made of.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The protocols that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/2, or HTTP/1.1 where the server does not have it.
    Both,
    /// HTTP/1.1 alone.
    Http1,
}

/// Makes connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector>,
    cluster: Uri,
    addresses: Arc<Addresses>,
}

impl Connector {
    pub(super) fn new(
        config: &Config,
        tls: &ClientConfig,
        offer: Offer,
        addresses: Arc<Addresses>,
    ) -> Result<Self, ConnectError> {
        let mut tls = tls.clone();
        tls.alpn_protocols = match offer {
            Offer::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Offer::Http1 => vec![b"http/1.1".to_vec()],
        };
        let cluster = config.cluster_url.clone();
        let name = config.tls_server_name.clone().unwrap_or_else(|| host(&cluster).to_owned());
        let name = ServerName::try_from(name).map_err(ConnectError::ServerName)?;
        let https = HttpsConnector::new(tcp(), tls, false, Arc::new(FixedServerNameResolver::new(name)));
        Ok(Self { https, cluster, addresses })
    }

    /// Makes one.
    pub(super) async fn connect(&self) -> Result<Stream, BoxError> {
        self.connect_and(|stream| ready(Ok(stream))).await
    }

    /// Makes one that `greet` succeeds with, too; it belongs to the attempt for one address.
    pub(super) async fn connect_and<T, F>(&self, greet: impl Fn(Stream) -> F) -> Result<T, BoxError>
    where
        F: Future<Output = Result<T, BoxError>>,
    {
        let connected = timeout(CONNECT_TIMEOUT, self.first_that_answers(greet)).await;
        connected.map_err(|_| format!("no connection within {CONNECT_TIMEOUT:?}"))?
    }

    /// Makes one to this address, in no bounded time.
    pub(super) async fn connect_to(&self, address: SocketAddr) -> Result<Stream, BoxError> {
        self.https.clone().oneshot(self.at(address)?).await
    }

    async fn first_that_answers<T, F>(&self, greet: impl Fn(Stream) -> F) -> Result<T, BoxError>
    where
        F: Future<Output = Result<T, BoxError>>,
    {
        let mut left = self.addresses.of(host(&self.cluster), port(&self.cluster)).await?.into_iter();
        let mut attempts = FuturesUnordered::new();
        let mut last: BoxError = format!("{} has no address", host(&self.cluster)).into();
        let attempt = async |address| {
            let attempt = async { greet(self.connect_to(address).await?).await };
            let ended: Result<T, BoxError> = attempt.await;
            (address, ended.map_err(|error| format!("{address}: {}", causes(&*error)).into()))
        };
        loop {
            attempts.extend(left.next().map(&attempt));
            let next_due =
                async { if left.len() > 0 { sleep(NEXT_ADDRESS).await } else { std::future::pending().await } };
            tokio::select! {
                ended = attempts.next() => match ended {
                    Some((address, Ok(connection))) => {
                        self.addresses.worked(address);
                        return Ok(connection);
                    }
                    Some((_, Err(error))) => last = error,
                    None => return Err(last),
                },
                () = next_due => {}
            }
        }
    }

    fn at(&self, address: SocketAddr) -> Result<Uri, InvalidUri> {
        format!("{}://{address}/", self.cluster.scheme().unwrap_or(&Scheme::HTTPS)).parse()
    }
}

/// For hyper-util's client. Whatever it asks for, this is the API server.
impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await })
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(PROBE_INTERVAL));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

/// Without the brackets of an IPv6 address.
pub(super) fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

pub(super) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 })
}
