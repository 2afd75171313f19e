//! A watch by WebSocket, byte by byte.

use std::{sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    ground::{DEADLINE, Proxy},
    http2::{objects, trusting},
};

/// What ends one in order: a frame that closes it, with 1000 (RFC 6455, section 5.5.1).
pub(crate) const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];

pub(crate) struct WebSocket(TlsStream<TcpStream>);

impl WebSocket {
    /// A watch that has begun.
    pub(crate) async fn watch(proxy: &Proxy) -> Self {
        let token = std::fs::read_to_string(proxy.access.join("token")).unwrap();
        let tls = TlsConnector::from(Arc::new(trusting(&proxy.access.join("ca.crt"))));
        let stream = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
        let mut stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nAuthorization: Bearer {token}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            objects("watch=1")
        );
        stream.write_all(request.as_bytes()).await.unwrap();
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
