//! The client of a measurement: connections of their own, and nothing between them and the requests.

use anyhow::{Context as _, bail, ensure};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::{
    certificates::{SERVER, of_client},
    loads::Protocol,
    started::Target,
};

/// HTTP/2 windows of a client that reads all it gets.
const WINDOW: u32 = 4 << 20;

/// One connection.
pub(super) struct Connection {
    sender: Sender,
    /// With which each request begins.
    origin: String,
    token: HeaderValue,
    _driver: AbortOnDropHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A request, as often as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
}

impl Call {
    /// A `GET`.
    pub(super) fn get(path: &'static str, accept: &'static str) -> Self {
        let accept = (header::ACCEPT, HeaderValue::from_static(accept));
        Self { method: Method::GET, path, headers: vec![accept], body: Bytes::new() }
    }
}

impl Connection {
    /// Connects to what is measured.
    pub(super) async fn open(target: &Target, protocol: Protocol) -> anyhow::Result<Self> {
        let tls = of_client(&target.authority, &[protocol])?;
        let stream = TcpStream::connect(target.address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(tls).connect(ServerName::try_from(SERVER)?, stream).await.context("TLS")?;
        let chosen = stream.get_ref().1.alpn_protocol() == Some(Protocol::Http2.alpn());
        ensure!(chosen == (protocol == Protocol::Http2), "the server chose another version of HTTP");
        let stream = TokioIo::new(stream);
        let (sender, driver) = match protocol {
            Protocol::Http1 => {
                let (sender, driver) = http1::handshake(stream).await?;
                (Sender::Http1(sender), tokio::spawn(async move { drop(driver.await) }))
            }
            Protocol::Http2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.initial_stream_window_size(WINDOW).initial_connection_window_size(4 * WINDOW);
                let (sender, driver) = builder.handshake(stream).await?;
                (Sender::Http2(sender), tokio::spawn(async move { drop(driver.await) }))
            }
        };
        let origin = match protocol {
            Protocol::Http1 => String::new(),
            Protocol::Http2 => format!("https://{SERVER}:{}", target.address.port()),
        };
        let token = HeaderValue::try_from(format!("Bearer {}", target.token))?;
        Ok(Self { sender, origin, token, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Sends a request that is to be answered with 200.
    pub(super) async fn send(&mut self, call: &Call) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = Uri::try_from(format!("{}{}", self.origin, call.path))?;
        let headers = request.headers_mut();
        headers.extend(call.headers.iter().cloned());
        headers.insert(header::AUTHORIZATION, self.token.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static("bench-proxy"));
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                headers.insert(header::HOST, HeaderValue::from_static(SERVER));
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => sender.send_request(request).await,
        };
        let response = response.context("send a request")?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, body) = (response.status(), response.into_body().collect().await?.to_bytes());
        bail!("{} {}: {status}: {}", call.method, call.path, String::from_utf8_lossy(&body))
    }

    /// The same, and reads the answer to its end. Returns how many bytes it had.
    pub(super) async fn exchange(&mut self, call: &Call) -> anyhow::Result<usize> {
        let mut body = self.send(call).await?.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.context("read an answer")?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }
}
