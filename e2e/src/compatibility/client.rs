//! A client that speaks one version of HTTP and shows answers as they came.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version, header, response::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Bytes, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::relay::{MARK, MAX_HEADERS};

/// The windows of a [`Connection`], for a stream and for all: as golang.org/x/net/http2 has them.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// The version that a client speaks, or a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

impl Http {
    /// Each version.
    pub const BOTH: [Self; 2] = [Self::One, Self::Two];
    /// A client's version, and that of the server behind the proxy.
    pub const PAIRS: [(Self, Self); 4] =
        [(Self::One, Self::One), (Self::One, Self::Two), (Self::Two, Self::One), (Self::Two, Self::Two)];

    /// A pair as people write it.
    pub fn towards(self, upstream: Self) -> String {
        format!("{} to {}", self.name(), upstream.name())
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "HTTP/1.1",
            Self::Two => "HTTP/2",
        }
    }

    /// As the `http` crate has it.
    pub fn version(self) -> Version {
        match self {
            Self::One => Version::HTTP_11,
            Self::Two => Version::HTTP_2,
        }
    }
}

/// A server that answers as an API server does.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: SocketAddr,
    token: String,
    roots: RootCertStore,
}

/// A request, but for who sends it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The method.
    pub method: Method,
    /// Path and query, as they are written.
    pub target: String,
    /// Each line its own.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// Whether the client says how long the body is, but for what stands in the headers.
    pub sized: bool,
}

impl Ask {
    /// One without headers and body.
    pub fn new(method: Method, target: impl Into<String>) -> Self {
        Self { method, target: target.into(), headers: Vec::new(), body: Bytes::new(), sized: true }
    }

    /// One that reads.
    pub fn get(target: impl Into<String>) -> Self {
        Self::new(Method::GET, target)
    }

    /// The same with one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same for an answer of that type.
    pub fn accept(self, media_type: &str) -> Self {
        self.header("accept", media_type)
    }

    /// The same for an answer that may be compressed.
    pub fn gzip(self) -> Self {
        self.header("accept-encoding", "gzip")
    }

    /// The same as an administrator who is impersonated.
    pub fn as_somebody(self) -> Self {
        self.header("impersonate-user", "somebody").header("impersonate-group", "system:masters")
    }

    /// The same with a body.
    pub fn body(self, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self.header("content-type", content_type) }
    }

    /// The same from a client that says nothing of the body's length.
    pub fn unsized_body(self) -> Self {
        Self { sized: false, ..self }
    }

    /// What the client says of the body's length. (That there is none need not be said, where a method seldom has one:
    /// RFC 9110, section 8.6.)
    pub fn length(&self) -> Option<usize> {
        let seldom = [Method::GET, Method::HEAD, Method::DELETE, Method::CONNECT].contains(&self.method);
        (self.sized && !(seldom && self.body.is_empty())).then_some(self.body.len())
    }

    /// All headers of the request as it is sent: who asks, for which case, and under which audit id, because an API
    /// server that is given none makes one up for each answer.
    pub fn sent(&self, mark: &str) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let always = [("user-agent", "ringside-compatibility/1"), (MARK, mark), ("audit-id", mark)];
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in always.into_iter().chain(own) {
            headers.append(name.parse::<header::HeaderName>()?, value.parse()?);
        }
        Ok(headers)
    }
}

/// An answer, all of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// What came behind the body.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// The same, which must have this status.
    pub fn with(self, status: StatusCode) -> Result<Self> {
        anyhow::ensure!(self.status == status, "{}, not {status}: {}", self.status, self.text());
        Ok(self)
    }

    /// The same, which must be what was asked for.
    pub fn done(self) -> Result<Self> {
        anyhow::ensure!(self.status.is_success(), "{}: {}", self.status, self.text());
        Ok(self)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An answer whose body is still to be read. The connection lives as long.
#[derive(Debug)]
pub struct Open {
    /// The head.
    pub head: Parts,
    /// What is still to be read.
    pub body: Incoming,
    _connection: Arc<JoinSet<()>>,
}

/// An HTTP/2 connection for many requests.
#[derive(Clone, Debug)]
pub struct Connection {
    endpoint: Endpoint,
    sender: http2::SendRequest<Full<Bytes>>,
    driver: Arc<JoinSet<()>>,
}

impl Open {
    /// The next piece of the body; None at its end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.body.frame().await.transpose()? {
                None => return Ok(None),
                Some(frame) => {
                    // HTTP/2 often ends with a frame of no bytes.
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads on until the body read here, together, is enough.
    pub async fn until(&mut self, mut enough: impl FnMut(&[u8]) -> bool) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        while !enough(&read) {
            let piece = self.piece().await?;
            let seen = || format!("the body ended early: {}", String::from_utf8_lossy(&read));
            let piece = piece.with_context(seen)?;
            read.extend_from_slice(&piece);
        }
        Ok(read)
    }

    /// Waits for so long, in which nothing may come but bookmarks.
    pub async fn nothing(&mut self, within: Duration) -> Result<()> {
        let until = Instant::now() + within;
        while let Ok(piece) = timeout_at(until, self.piece()).await {
            let piece = piece?.context("the body has ended")?;
            ensure!(piece.starts_with(br#"{"type":"BOOKMARK""#), "{}", String::from_utf8_lossy(&piece));
        }
        Ok(())
    }

    /// Reads to an end in order.
    pub async fn end(mut self) -> Result<()> {
        while self.piece().await?.is_some() {}
        Ok(())
    }

    /// The answer as far as it came with the head.
    pub fn without_body(&self) -> Answer {
        let (status, headers) = (self.head.status, self.head.headers.clone());
        Answer { status, headers, body: Bytes::new(), trailers: None }
    }

    /// Reads all of it.
    pub async fn collect(self) -> Result<Answer> {
        let collected = self.body.collect().await.context("the body broke off")?;
        let trailers = collected.trailers().cloned();
        let (status, headers) = (self.head.status, self.head.headers);
        Ok(Answer { status, headers, body: collected.to_bytes(), trailers })
    }
}

impl Endpoint {
    /// The server at this address, with a certificate of the authority in this PEM file. It lets the bearer of the
    /// token in.
    pub fn new(address: SocketAddr, ca: &Path, token: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)? {
            roots.add(certificate?)?;
        }
        Ok(Self { address, token: token.to_owned(), roots })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token of who asks.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The same, for the bearer of another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// A connection on which nothing was said yet.
    pub async fn connect(&self, http: Http) -> Result<TlsStream<TcpStream>> {
        self.connect_on(TcpStream::connect(self.address).await?, http).await
    }

    /// The same on a stream that leads there.
    pub async fn connect_on(&self, stream: TcpStream, http: Http) -> Result<TlsStream<TcpStream>> {
        let mut tls = ClientConfig::builder().with_root_certificates(self.roots.clone()).with_no_client_auth();
        tls.alpn_protocols = vec![match http {
            Http::One => b"http/1.1".to_vec(),
            Http::Two => b"h2".to_vec(),
        }];
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        Ok(TlsConnector::from(Arc::new(tls)).connect(name, stream).await?)
    }

    /// A connection for many requests.
    pub async fn connection(&self) -> Result<Connection> {
        let stream = TokioIo::new(self.connect(Http::Two).await?);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connected) = http2.handshake(stream).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connected.await) });
        Ok(Connection { endpoint: self.clone(), sender, driver: Arc::new(driver) })
    }

    /// Sends a request and reads all of the answer.
    pub async fn exchange(&self, http: Http, ask: &Ask, mark: &str) -> Result<Answer> {
        self.open(http, ask, mark).await?.collect().await
    }

    /// Sends a request and reads the head of the answer.
    pub async fn open(&self, http: Http, ask: &Ask, mark: &str) -> Result<Open> {
        let body = Full::new(ask.body.clone());
        self.open_with(http, ask, mark, body).await
    }

    /// The same with a body of another kind than bytes that are there already.
    pub async fn open_with<B>(&self, http: Http, ask: &Ask, mark: &str, body: B) -> Result<Open>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static + Unpin,
    {
        self.send(self.connect(http).await?, http, ask, mark, body).await
    }

    /// Sends a request by HTTP/1.1 on a stream that leads there, and reads the head of the answer.
    pub async fn open_on(&self, stream: TcpStream, ask: &Ask, mark: &str) -> Result<Open> {
        let stream = self.connect_on(stream, Http::One).await?;
        self.send(stream, Http::One, ask, mark, Full::new(ask.body.clone())).await
    }

    async fn send<B>(&self, stream: TlsStream<TcpStream>, http: Http, ask: &Ask, mark: &str, body: B) -> Result<Open>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static + Unpin,
    {
        let stream = TokioIo::new(stream);
        let mut connection = JoinSet::new();
        let mut request = self.request(http, ask, mark, body)?;
        let response = match http {
            Http::One => {
                request.headers_mut().insert(header::HOST, self.address.to_string().parse()?);
                let (mut sender, driver) = http1::Builder::new().max_headers(MAX_HEADERS).handshake(stream).await?;
                // An error of the connection is one of the answer as well.
                connection.spawn(async move { drop(driver.await) });
                sender.send_request(request).await?
            }
            Http::Two => {
                let (mut sender, driver) = http2::handshake(TokioExecutor::new(), stream).await?;
                connection.spawn(async move { drop(driver.await) });
                sender.send_request(request).await?
            }
        };
        let (head, body) = response.into_parts();
        Ok(Open { head, body, _connection: Arc::new(connection) })
    }

    fn request<B>(&self, http: Http, ask: &Ask, mark: &str, body: B) -> Result<Request<B>> {
        let uri: Uri = match http {
            Http::One => ask.target.parse()?,
            Http::Two => format!("https://{}{}", self.address, ask.target).parse()?,
        };
        let mut request = Request::builder().method(ask.method.clone()).uri(uri).body(body)?;
        *request.headers_mut() = ask.sent(mark)?;
        request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {}", self.token).parse()?);
        Ok(request)
    }
}

impl Connection {
    /// Sends a request and reads the head of the answer.
    pub async fn open(&self, ask: &Ask, mark: &str) -> Result<Open> {
        let request = self.endpoint.request(Http::Two, ask, mark, Full::new(ask.body.clone()))?;
        let (head, body) = self.sender.clone().send_request(request).await?.into_parts();
        Ok(Open { head, body, _connection: Arc::clone(&self.driver) })
    }
}
