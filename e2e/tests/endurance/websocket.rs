//! HTTP/1.1, byte by byte, and a watch by WebSocket.

use std::{sync::Arc, time::Duration};

use ringside_e2e::proxy::Proxy;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    ground::DEADLINE,
    http2::{objects, trusting},
};

/// What ends one in order: a frame that closes it, with 1000 (RFC 6455, section 5.5.1).
pub(crate) const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];

pub(crate) struct WebSocket(TlsStream<TcpStream>);

/// Sends a GET on a connection of its own, with these headers beside the usual ones; nothing of the answer is read.
pub(crate) async fn ask(proxy: &Proxy, path: &str, headers: &str) -> TlsStream<TcpStream> {
    let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
    let tls = TlsConnector::from(Arc::new(trusting(&proxy.access.join("ca.crt"))));
    let stream = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
    let mut stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

impl WebSocket {
    /// A watch that has begun.
    pub(crate) async fn watch(proxy: &Proxy) -> Self {
        let upgrade = "Origin: http://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let mut stream = ask(proxy, &objects("watch=1"), upgrade).await;
        let mut head = Vec::new();
        let read = async {
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
        };
        timeout(DEADLINE, read).await.expect("no handshake");
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Self(stream)
    }

    /// All that still comes, to the end.
    pub(crate) async fn rest(mut self, within: Duration) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = timeout(within, self.0.read_to_end(&mut rest)).await;
        read.unwrap_or_else(|_| panic!("no end within {within:?}")).unwrap();
        rest
    }
}
