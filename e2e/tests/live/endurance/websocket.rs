//! HTTP/1.1, byte by byte: a watch, one by WebSocket, and a session in a pod.

use std::{path::Path, sync::Arc, time::Duration};

use ringside_e2e::{proxy::Proxy, relay::MARK};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    fixture::{DEADLINE, Fixture, NAMESPACE},
    http2::{End, STREAMING_LIST, objects, trusting},
};

/// What ends one in order: a frame that closes it, with 1000 (RFC 6455, section 5.5.1).
pub(crate) const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];

pub(crate) struct WebSocket(TlsStream<TcpStream>);

/// Sends a GET on a connection of its own, with these headers beside the usual ones; nothing of the answer is read.
pub(crate) async fn ask(proxy: &Proxy, path: &str, headers: &str) -> TlsStream<TcpStream> {
    let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
    ask_by(stream, &proxy.access.join("ca.crt"), &token, path, headers).await
}

/// The same past the proxy, on this connection.
async fn ask_past(stream: TcpStream, fixture: &Fixture, path: &str, headers: &str) -> TlsStream<TcpStream> {
    let control_plane = &fixture.control_plane;
    ask_by(stream, &control_plane.ca_path(), control_plane.admin_token(), path, headers).await
}

async fn ask_by(stream: TcpStream, ca: &Path, token: &str, path: &str, headers: &str) -> TlsStream<TcpStream> {
    let tls = TlsConnector::from(Arc::new(trusting(ca)));
    let mut stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Names alone, which are small whatever the objects are.
const NAMES: &str = "Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1\r\n";

/// A watch that selects nothing.
const NOBODYS: &str = "watch=1&labelSelector=nobodys";

/// What the end of a body in chunks is (RFC 9112, section 7.1), and what an end without it is not.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

const END_OF_CHUNK: &[u8] = b"\r\n";

/// A watch by HTTP/1.1 that has begun.
pub(crate) struct Http1(TlsStream<TcpStream>);

impl Http1 {
    pub(crate) async fn watch(proxy: &Proxy) -> Self {
        Self::begun(ask(proxy, &objects(STREAMING_LIST), NAMES).await).await
    }

    /// One that has nothing to say as long as it goes on: of nobody's objects, and without bookmarks, of which a second one
    /// may follow on the first at once.
    pub(crate) async fn watch_nothing(proxy: &Proxy) -> Self {
        Self::answered(ask(proxy, &objects(NOBODYS), NAMES).await).await
    }

    /// The same past the proxy, on this connection.
    pub(crate) async fn watch_past(stream: TcpStream, fixture: &Fixture) -> Self {
        Self::answered(ask_past(stream, fixture, &objects(NOBODYS), NAMES).await).await
    }

    async fn answered(mut stream: TlsStream<TcpStream>) -> Self {
        let head = read_until(&mut stream, b"\r\n\r\n").await;
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        Self(stream)
    }

    async fn begun(stream: TlsStream<TcpStream>) -> Self {
        let Self(mut stream) = Self::answered(stream).await;
        read_until(&mut stream, b"k8s.io/initial-events-end").await;
        // The rest of the bookmark, and of its chunk.
        read_until(&mut stream, END_OF_CHUNK).await;
        Self(stream)
    }

    /// Waits for so long, in which nothing may come, and no end either.
    pub(crate) async fn nothing(&mut self, within: Duration) {
        nothing(&mut self.0, within).await;
    }

    /// Reads to the end.
    pub(crate) async fn end(mut self, within: Duration) -> End {
        // As `read_until`: the connection itself stays open, for the next request.
        let read = async {
            // Read when it began.
            let mut rest = END_OF_CHUNK.to_vec();
            while !rest.ends_with(LAST_CHUNK) {
                match self.0.read_u8().await {
                    Ok(byte) => rest.push(byte),
                    Err(_) => return End::Error,
                }
            }
            End::InOrder
        };
        timeout(within, read).await.unwrap_or_else(|_| panic!("no end within {within:?}"))
    }
}

/// A session in a pod that has begun: of it nothing is known but bytes.
pub(crate) struct Session(TlsStream<TcpStream>);

impl Session {
    /// By a protocol that the API server agrees to, and until it has said this.
    pub(crate) async fn exec(proxy: &Proxy, protocol: &str, mark: &str, said: &[u8]) -> Self {
        let (path, headers) = Self::asked(protocol, mark);
        Self::begun(ask(proxy, &path, &headers).await, said).await
    }

    /// The same past the proxy, on this connection.
    pub(crate) async fn exec_past(
        stream: TcpStream,
        fixture: &Fixture,
        protocol: &str,
        mark: &str,
        said: &[u8],
    ) -> Self {
        let (path, headers) = Self::asked(protocol, mark);
        Self::begun(ask_past(stream, fixture, &path, &headers).await, said).await
    }

    /// Path and headers.
    fn asked(protocol: &str, mark: &str) -> (String, String) {
        let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let headers = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n{key}{MARK}: {mark}\r\n");
        (format!("/api/v1/namespaces/{NAMESPACE}/pods/a-pod/exec?command=sleep&stdout=true"), headers)
    }

    async fn begun(mut stream: TlsStream<TcpStream>, said: &[u8]) -> Self {
        let head = read_until(&mut stream, b"\r\n\r\n").await;
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        read_until(&mut stream, said).await;
        Self(stream)
    }

    /// Waits for so long, in which nothing may come, and no end either.
    pub(crate) async fn nothing(&mut self, within: Duration) {
        nothing(&mut self.0, within).await;
    }

    /// Waits for its end, in which nothing may come.
    pub(crate) async fn end(mut self, within: Duration) {
        let mut rest = Vec::new();
        let read = timeout(within, self.0.read_to_end(&mut rest)).await;
        // With or without a notice of TLS: the client sees that it is over.
        drop(read.unwrap_or_else(|_| panic!("no end within {within:?}")));
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

async fn nothing(stream: &mut TlsStream<TcpStream>, within: Duration) {
    let mut some = [0; 64];
    if let Ok(read) = timeout(within, stream.read(&mut some)).await {
        panic!("{:?}", read.map(|length| some[..length].to_vec()));
    }
}

/// Reads until that has come, and no further.
async fn read_until(stream: &mut TlsStream<TcpStream>, wanted: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    let reading = async {
        while !read.ends_with(wanted) {
            read.push(stream.read_u8().await.unwrap());
        }
    };
    timeout(DEADLINE, reading).await.unwrap_or_else(|_| panic!("no {:?}", String::from_utf8_lossy(wanted)));
    read
}

impl WebSocket {
    /// A watch that has begun.
    pub(crate) async fn watch(proxy: &Proxy) -> Self {
        let upgrade = "Origin: http://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let mut stream = ask(proxy, &objects("watch=1"), upgrade).await;
        let head = read_until(&mut stream, b"\r\n\r\n").await;
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Self(stream)
    }

    /// Sends a ping of the client's own, masked with zeros, and reads its pong.
    pub(crate) async fn ping(&mut self) {
        self.0.write_all(b"\x89\x82\0\0\0\0hi").await.unwrap();
        let mut pong = [0; 4];
        timeout(DEADLINE, self.0.read_exact(&mut pong)).await.expect("no pong").unwrap();
        assert_eq!(&pong, b"\x8a\x02hi");
    }

    /// Waits for so long, in which nothing may come.
    pub(crate) async fn nothing(&mut self, within: Duration) {
        nothing(&mut self.0, within).await;
    }

    /// Reads messages, up to and with one that has this in it.
    pub(crate) async fn until(&mut self, wanted: &str) {
        let read = async { while !self.message().await.contains(wanted) {} };
        timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("no '{wanted}'"));
    }

    /// One that is no longer than 64 KiB.
    async fn message(&mut self) -> String {
        assert_eq!(self.0.read_u8().await.unwrap(), 0x81, "a text message in one frame");
        let length = match self.0.read_u8().await.unwrap() {
            126 => self.0.read_u16().await.unwrap(),
            short => short.into(),
        };
        let mut text = vec![0; length.into()];
        self.0.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// All that still comes, to the end.
    pub(crate) async fn rest(mut self, within: Duration) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = timeout(within, self.0.read_to_end(&mut rest)).await;
        read.unwrap_or_else(|_| panic!("no end within {within:?}")).unwrap();
        rest
    }
}
