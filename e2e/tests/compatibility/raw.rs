//! HTTP/1.1 written by hand, where it matters how it is written, or what comes after it.

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::client::{Ask, Endpoint, Http};

/// A connection on which texts are exchanged.
pub(crate) struct Raw {
    stream: TlsStream<TcpStream>,
    received: Vec<u8>,
}

/// The head of an answer as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawHead {
    /// The version, the status and its reason.
    pub(crate) status: String,
    /// Names and values, as they were written, but for `Date`.
    pub(crate) headers: Vec<(String, String)>,
}

impl RawHead {
    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.split("\r\n");
        let status = lines.next().context("a status line")?.to_owned();
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut headers: Vec<_> = lines.filter(|line| !line.is_empty()).filter_map(header).collect();
        headers.retain(|(name, _)| name != "Date");
        headers.sort();
        Ok(Self { status, headers })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

impl Raw {
    /// Connects and sends the request: its headers, as they are written, and then those of who asks.
    pub(crate) async fn send(endpoint: &Endpoint, ask: &Ask, mark: &str) -> Result<Self> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", ask.method, ask.target, endpoint.address());
        let sent = ask.sent(mark)?;
        let own = ask.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let own_names: Vec<_> = ask.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let others = sent.iter().filter(|(name, _)| !own_names.iter().any(|it| it == name.as_str()));
        let others = others.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        for (name, value) in own.chain(others) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Authorization: Bearer {}\r\n\r\n", endpoint.token()));
        let mut raw = Self { stream: endpoint.connect(Http::One).await?, received: Vec::new() };
        raw.write(text.as_bytes()).await?;
        Ok(raw)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads the next head.
    pub(crate) async fn head(&mut self) -> Result<RawHead> {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.received.split_off(end + 4);
                let head = std::mem::replace(&mut self.received, rest);
                return RawHead::parse(&String::from_utf8(head)?);
            }
            self.more().await.context("no head")?;
        }
    }

    /// Reads so many bytes.
    pub(crate) async fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.received.len() < length {
            self.more().await?;
        }
        let rest = self.received.split_off(length);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    /// Reads until the other side ends.
    pub(crate) async fn rest(mut self) -> Result<Vec<u8>> {
        // TLS of Go and of others ends with and without a notice.
        while self.more().await.is_ok() {}
        Ok(self.received)
    }

    async fn more(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.received).await?;
        anyhow::ensure!(read > 0, "the connection ended; so far: {}", String::from_utf8_lossy(&self.received));
        Ok(())
    }
}
