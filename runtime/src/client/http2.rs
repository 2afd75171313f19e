//! HTTP/2 connections with a bounded number of requests on each.
//!
//! A server limits the streams of a connection (Go's default: 250), and what exceeds that waits for as long as the
//! watches on it go on. And HTTP/2 has one window for all streams of a connection, beside one for each: readers that
//! stop could use it up, and the others would starve. So a connection carries at most [`PLACES`] requests, and its window
//! is that of all of them together: one that is never read costs its own window's memory, and nobody anything else.
//!
//! Watches and short requests share connections. Their windows are apart as said, the API server sends the streams of a
//! connection in turn, and a connection for watches alone would be one more per process, and one more way to be dead.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, Response};
use http_body::Body;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::{
    client::legacy::connect::Connection as _,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::{
    BoxError, Held, NoAnswer,
    connector::{Connector, Stream},
    place::{Place, Usage},
};
use crate::explain::causes;

/// Requests on one connection. RFC 9113 asks servers to allow no less than 100 (section 6.5.2).
pub(super) const PLACES: usize = 64;
/// What one stream may buffer: at a millisecond to the API server this is 250 MB/s for a list.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;
const _: () = assert!(CONNECTION_WINDOW as usize == PLACES * STREAM_WINDOW as usize);
/// How many requests a server allows before it has said so; what is sent on top of what it says then would wait for as
/// long as the watches before it go on.
const NOT_SAID: usize = usize::MAX - 1;
/// Its settings are the first that it sends (RFC 9113, section 3.4). hyper has no event for their arrival.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);
const SETTINGS_INTERVAL: Duration = Duration::from_millis(1);
/// How long a connection without requests is kept: as Go keeps them.
const UNUSED: Duration = Duration::from_secs(90);
/// Answers' headers, all of one answer together. Go's servers take as much.
const HEADERS: u32 = 1 << 20;
/// How often a request that was not sent yet, because its connection had just ended, gets another.
const ATTEMPTS: usize = 3;

/// When a peer is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pings {
    /// After how much silence it is asked whether it is still there.
    pub(super) after: Duration,
    /// How long it may take to say so.
    pub(super) timeout: Duration,
}

impl Default for Pings {
    fn default() -> Self {
        Self { after: Duration::from_secs(10), timeout: Duration::from_secs(10) }
    }
}

/// Why there is no answer here.
#[derive(Debug)]
pub(super) enum Unanswered<B> {
    /// The server has no HTTP/2; the request was not sent.
    NotSpoken(Request<B>),
    /// There was an attempt.
    NoAnswer(NoAnswer),
}

/// The connections.
pub(super) struct Http2<B>(Arc<Inner<B>>);

impl<B> Clone for Http2<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<B> {
    connector: Connector,
    pings: Pings,
    /// How many requests the server allows on a connection, as it said last.
    allowed: AtomicUsize,
    lanes: Mutex<Vec<Lane<B>>>,
}

/// A connection, or one that is being made.
struct Lane<B> {
    usage: Arc<Usage>,
    opening: Opening<B>,
}

impl<B> Clone for Lane<B> {
    fn clone(&self) -> Self {
        Self { usage: self.usage.clone(), opening: self.opening.clone() }
    }
}

/// All who wait for a connection share its making, and its failure.
type Opening<B> = Shared<BoxFuture<'static, Result<Opened<B>, Arc<str>>>>;

enum Opened<B> {
    Http2(SendRequest<B>),
    /// The server chose HTTP/1.1.
    Http1,
}

impl<B> Clone for Opened<B> {
    fn clone(&self) -> Self {
        match self {
            Self::Http2(sender) => Self::Http2(sender.clone()),
            Self::Http1 => Self::Http1,
        }
    }
}

impl<B> Lane<B> {
    /// Whether it may still be of use: open, or being opened.
    fn is_live(&self) -> bool {
        match self.opening.peek() {
            None => true,
            Some(Ok(Opened::Http2(sender))) => !sender.is_closed(),
            Some(Ok(Opened::Http1) | Err(_)) => false,
        }
    }
}

impl<B> Http2<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(connector: Connector, pings: Pings) -> Self {
        let allowed = AtomicUsize::new(PLACES);
        Self(Arc::new(Inner { connector, pings, allowed, lanes: Mutex::default() }))
    }

    /// Sends a request on a connection with room.
    pub(super) async fn send(&self, mut request: Request<B>) -> Result<Response<Held>, Unanswered<B>> {
        let mut ended = None;
        for _ in 0..ATTEMPTS {
            let (mut sender, place) = match self.connection().await {
                Ok((Opened::Http2(sender), place)) => (sender, place),
                Ok((Opened::Http1, _)) => return Err(Unanswered::NotSpoken(request)),
                Err(text) => return Err(Unanswered::NoAnswer(NoAnswer::Unreachable((*text).into()))),
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| Held::new(body, Some(place)))),
                Err(mut error) => match error.take_message() {
                    // The connection ended before the request was sent, so sending it elsewhere does not repeat it.
                    Some(unsent) => {
                        request = unsent;
                        ended = Some(error.into_error());
                    }
                    None => return Err(Unanswered::NoAnswer(NoAnswer::Failed(text(&error.into_error())))),
                },
            }
        }
        let error = ended.map_or_else(|| "no connection".into(), |error| text(&error));
        Err(Unanswered::NoAnswer(NoAnswer::Unreachable(error)))
    }

    /// A connection, and a place on it.
    async fn connection(&self) -> Result<(Opened<B>, Place), Arc<str>> {
        loop {
            let (lane, place) = self.place();
            let opened = lane.opening.await?;
            // By now the server has said how many it allows.
            if let Some(place) = place.confirm() {
                return Ok((opened, place));
            }
        }
    }

    /// A place on the first connection with room, so that connections that are not needed any more run empty.
    fn place(&self) -> (Lane<B>, Place) {
        let mut lanes = self.0.lanes.lock();
        lanes.retain(Lane::is_live);
        let found = lanes.iter().find_map(|lane| Some((lane.clone(), lane.usage.take(PLACES)?)));
        found.unwrap_or_else(|| {
            let (usage, place) = Usage::with_place(self.0.allowed.load(Ordering::Relaxed));
            let opening = open(self.0.connector.clone(), self.0.pings, usage.clone(), Arc::downgrade(&self.0));
            let lane = Lane { usage, opening: opening.boxed().shared() };
            lanes.push(lane.clone());
            (lane, place)
        })
    }
}

impl<B> Inner<B> {
    /// Lets go of connections that nothing was sent on for a while; they end when nobody holds them.
    fn sweep(&self) {
        self.lanes.lock().retain(|lane| {
            let unused = lane.usage.unused_since().is_some_and(|since| since.elapsed() >= UNUSED);
            lane.is_live() && !unused
        });
    }
}

async fn open<B>(
    connector: Connector,
    pings: Pings,
    usage: Arc<Usage>,
    inner: Weak<Inner<B>>,
) -> Result<Opened<B>, Arc<str>>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let stream = connector.connect().await.map_err(|error| Arc::from(causes(&*error)))?;
    if !stream.connected().is_negotiated_h2() {
        return Ok(Opened::Http1);
    }
    let handshake = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS)
        .keep_alive_interval(pings.after)
        .keep_alive_timeout(pings.timeout)
        // So that no request is sent on a connection that has been dead for long.
        .keep_alive_while_idle(true)
        .initial_max_send_streams(NOT_SAID)
        .handshake(stream);
    let (sender, connection) = handshake.await.map_err(|error| Arc::from(causes(&error)))?;
    let late = |_| Arc::from(format!("no HTTP/2 settings within {SETTINGS_TIMEOUT:?}"));
    let connection = timeout(SETTINGS_TIMEOUT, settled(connection)).await.map_err(late)?;
    usage.allow(connection.current_max_send_streams());
    tokio::spawn(drive(connection, usage, inner));
    Ok(Opened::Http2(sender))
}

/// Waits until the server has sent its settings.
async fn settled<B>(connection: Connection<Stream, B, TokioExecutor>) -> Connection<Stream, B, TokioExecutor>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    while connection.current_max_send_streams() == NOT_SAID {
        sleep(SETTINGS_INTERVAL).await;
    }
    connection
}

/// Runs a connection to its end, which comes at the latest when nobody wants to send on it any more.
async fn drive<B>(connection: Connection<Stream, B, TokioExecutor>, usage: Arc<Usage>, inner: Weak<Inner<B>>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let mut connection = pin!(connection);
    let mut allowed = None;
    let mut ended = poll_fn(|context| {
        let ended = connection.as_mut().poll(context);
        let now = connection.current_max_send_streams();
        if allowed.replace(now) != Some(now) {
            usage.allow(now);
            if let Some(inner) = inner.upgrade() {
                inner.allowed.store(now.max(1), Ordering::Relaxed);
            }
        }
        ended
    });
    loop {
        tokio::select! {
            ended = &mut ended => {
                if let Err(error) = ended {
                    tracing::debug!(error = causes(&error), "a connection to the API server ended");
                }
                return;
            }
            () = sleep(UNUSED) => {
                if let Some(inner) = inner.upgrade() {
                    inner.sweep();
                }
            }
        }
    }
}

fn text(error: &hyper::Error) -> BoxError {
    causes(error).into()
}
