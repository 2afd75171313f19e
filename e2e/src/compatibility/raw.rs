//! HTTP/1.1 written by hand, where it matters how it is written, or what comes after it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{HeaderMap, HeaderName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use super::client::{Answer, Ask, Endpoint, Http};

/// A connection on which texts are exchanged.
#[derive(Debug)]
pub struct Raw {
    stream: TlsStream<TcpStream>,
    received: Vec<u8>,
}

/// The head of an answer as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawHead {
    /// The version, the status and its reason.
    pub status: String,
    /// Names and values, as they were written, but for `Date`.
    pub headers: Vec<(String, String)>,
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

    /// The same with its body, read as clients read it.
    pub fn answer(&self, body: Vec<u8>) -> Result<Answer> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(name.parse::<HeaderName>()?, value.parse()?);
        }
        let status = self.status.split(' ').nth(1).context("a status")?.parse()?;
        Ok(Answer { status, headers, body: body.into(), trailers: None })
    }

    /// The value of a header whose name is written so.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

impl Raw {
    /// Connects and sends the request: its headers, as they are written, and then those of who asks.
    pub async fn send(endpoint: &Endpoint, ask: &Ask, mark: &str) -> Result<Self> {
        Self::send_bytes(endpoint, written(endpoint, ask, mark)?.as_bytes()).await
    }

    /// The same with these bytes in place of a part of the text, which may be such as no text has.
    pub async fn send_with(endpoint: &Endpoint, ask: &Ask, mark: &str, (part, bytes): (&str, &[u8])) -> Result<Self> {
        let text = written(endpoint, ask, mark)?;
        let (before, behind) = text.split_once(part).context("no such part")?;
        Self::send_bytes(endpoint, &[before.as_bytes(), bytes, behind.as_bytes()].concat()).await
    }

    /// The same request on a stream that leads there.
    pub async fn send_on(stream: TcpStream, endpoint: &Endpoint, ask: &Ask, mark: &str) -> Result<Self> {
        let stream = endpoint.connect_on(stream, Http::One).await?;
        Self::begin(stream, written(endpoint, ask, mark)?.as_bytes()).await
    }

    async fn send_bytes(endpoint: &Endpoint, bytes: &[u8]) -> Result<Self> {
        Self::begin(endpoint.connect(Http::One).await?, bytes).await
    }

    async fn begin(stream: TlsStream<TcpStream>, bytes: &[u8]) -> Result<Self> {
        let mut raw = Self { stream, received: Vec::new() };
        raw.write(bytes).await?;
        Ok(raw)
    }

    /// Sends bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads the next head.
    pub async fn head(&mut self) -> Result<RawHead> {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.received.split_off(end + 4);
                let head = std::mem::replace(&mut self.received, rest);
                return RawHead::parse(&String::from_utf8(head)?);
            }
            self.more().await.context("no head")?;
        }
    }

    /// Reads the body behind a head, as it is framed (RFC 9112, section 6.3).
    pub async fn body(&mut self, head: &RawHead) -> Result<Vec<u8>> {
        let code = head.status.split(' ').nth(1).unwrap_or_default();
        if code.starts_with('1') || ["204", "304"].contains(&code) {
            return Ok(Vec::new());
        }
        if head.get("Transfer-Encoding") == Some("chunked") {
            return self.chunks().await;
        }
        let length = head.get("Content-Length").context("a body that only the connection's end ends")?;
        self.exactly(length.parse()?).await
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line().await?, 16)?;
            if length == 0 {
                // No trailers: no client here asks for any.
                anyhow::ensure!(self.line().await?.is_empty(), "trailers");
                return Ok(body);
            }
            body.extend(self.exactly(length).await?);
            anyhow::ensure!(self.line().await?.is_empty(), "a chunk is longer than it says");
        }
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|window| window == b"\r\n") {
                let line = String::from_utf8(self.exactly(end).await?)?;
                self.exactly(2).await?;
                return Ok(line);
            }
            self.more().await.context("no line")?;
        }
    }

    /// Reads so many bytes.
    pub async fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.received.len() < length {
            self.more().await?;
        }
        let rest = self.received.split_off(length);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    /// Reads until what is not read yet is enough.
    pub async fn until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<()> {
        while !enough(&self.received) {
            self.more().await?;
        }
        Ok(())
    }

    /// Waits for so long, in which nothing may come, and no end either.
    pub async fn nothing(&mut self, within: Duration) -> Result<()> {
        let more = if self.received.is_empty() { timeout(within, self.more()).await } else { Ok(Ok(())) };
        match more {
            Err(_) => Ok(()),
            Ok(read) => read.and_then(|()| anyhow::bail!("there came {}", String::from_utf8_lossy(&self.received))),
        }
    }

    /// Reads until the other side ends.
    pub async fn rest(mut self) -> Result<Vec<u8>> {
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

/// A request as it is sent: its head, and no body.
fn written(endpoint: &Endpoint, ask: &Ask, mark: &str) -> Result<String> {
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
    Ok(text)
}
