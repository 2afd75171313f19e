//! The other end of an HTTP/2 connection, frame by frame: it can do what servers do when they stop (RFC 9113).

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

const PREFACE: usize = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const DEFAULT_WINDOW: u32 = 65_535;
/// `:status: 200`, from HPACK's table.
const OK: [u8; 1] = [0x88];
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;

/// What a client did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Did {
    /// It began a stream.
    Asked(u32),
    /// It reset one.
    Reset(u32),
    /// It read all that was sent before.
    Heard,
    /// It closed the connection.
    Left,
}

pub(crate) struct Peer {
    stream: TlsStream<TcpStream>,
    /// What the client lets come of a stream that it does not read, as it has said.
    window: u32,
}

impl Peer {
    /// Says nothing yet.
    pub(crate) async fn silent(mut stream: TlsStream<TcpStream>) -> Self {
        stream.read_exact(&mut [0; PREFACE]).await.unwrap();
        Self { stream, window: DEFAULT_WINDOW }
    }

    /// Has told its settings.
    pub(crate) async fn new(stream: TlsStream<TcpStream>, streams: u32) -> Self {
        let mut peer = Self::silent(stream).await;
        peer.settings(streams).await;
        peer
    }

    pub(crate) async fn settings(&mut self, streams: u32) {
        let setting = [&MAX_CONCURRENT_STREAMS.to_be_bytes()[..], &streams.to_be_bytes()].concat();
        self.write(SETTINGS, 0, 0, &setting).await;
    }

    /// What the client does next.
    pub(crate) async fn next(&mut self) -> Did {
        loop {
            let mut head = [0; 9];
            if self.stream.read_exact(&mut head).await.is_err() {
                return Did::Left;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            if self.stream.read_exact(&mut payload).await.is_err() {
                return Did::Left;
            }
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match (head[3], head[4] & ACK) {
                (HEADERS, _) => return Did::Asked(stream),
                (RST_STREAM, _) => return Did::Reset(stream),
                (SETTINGS, 0) => {
                    for setting in payload.chunks_exact(6) {
                        if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                            self.window = u32::from_be_bytes(setting[2..].try_into().unwrap());
                        }
                    }
                    self.write(SETTINGS, ACK, 0, &[]).await;
                }
                (PING, ACK) => return Did::Heard,
                (PING, 0) => self.write(PING, ACK, 0, &payload).await,
                _ => {}
            }
        }
    }

    /// The window of each stream.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Asks it to say when it has read what was sent.
    pub(crate) async fn ping(&mut self) {
        self.write(PING, 0, 0, &[0; 8]).await;
    }

    /// The stream of the next request.
    pub(crate) async fn asked(&mut self) -> u32 {
        match self.next().await {
            Did::Asked(stream) => stream,
            other => panic!("no request, but {other:?}"),
        }
    }

    /// The client goes on as it likes, until it leaves.
    pub(crate) async fn stay(&mut self) {
        while self.next().await != Did::Left {}
    }

    /// Begins an answer.
    pub(crate) async fn head(&mut self, stream: u32) {
        self.write(HEADERS, END_HEADERS, stream, &OK).await;
    }

    pub(crate) async fn data(&mut self, stream: u32, data: &[u8]) {
        self.write(DATA, 0, stream, data).await;
    }

    pub(crate) async fn end(&mut self, stream: u32) {
        self.write(DATA, END_STREAM, stream, &[]).await;
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// Does nothing with streams above `last`.
    pub(crate) async fn go_away(&mut self, last: u32, code: u32) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()).await;
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        // The client may be gone: then the test says so.
        let _ = self.stream.write_all(&frame).await;
        let _ = self.stream.flush().await;
    }
}
