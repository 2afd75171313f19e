//! The beginning of an HTTP/2 connection: it can be used when the server has said how much it allows.

use std::time::Duration;

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::{client::legacy::connect::Connection as _, rt::TokioTimer};
use tokio::time::sleep;

use super::{Body, BoxError, connector::Stream, http2::PLACES};
use crate::contained::Contained;

/// What each stream of a connection may buffer while its answer is not read. A connection has one value for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamWindow(u32);

impl StreamWindow {
    /// At a millisecond to the API server this is 250 MB/s for a list.
    pub(super) const OF_ANSWERS: Self = Self(256 << 10);
    /// Hundreds of watches may be left unread for as long as a client stands still.
    pub(super) const OF_WATCHES: Self = Self(super::WATCH_WINDOW);

    /// That of all streams of a connection together.
    const fn of_connection(self) -> u32 {
        const STREAMS: u32 = 64;
        const _: () = assert!(STREAMS as usize == PLACES);
        STREAMS * self.0
    }
}
/// How many requests a server allows before it has said so; what is sent on top of what it says then would wait for as
/// long as the watches before it go on.
const NOT_SAID: usize = usize::MAX - 1;
/// The settings are the first that a server sends (RFC 9113, section 3.4). hyper has no event for their arrival.
const SETTINGS_INTERVAL: Duration = Duration::from_millis(1);
/// Answers' headers, all of one answer together. Go's servers take as much.
const HEADERS: u32 = 1 << 20;

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

/// Sends and receives for the requests of a connection.
pub(super) type Driver = Connection<Stream, Body, Contained>;

/// What a new connection is.
pub(super) enum Greeted {
    Http2(SendRequest<Body>, Driver),
    /// The server chose HTTP/1.1.
    Http1,
}

/// Exchanges settings with the server. It takes as long as the server does.
pub(super) async fn greet(stream: Stream, pings: Pings, window: StreamWindow) -> Result<Greeted, BoxError> {
    if !stream.connected().is_negotiated_h2() {
        return Ok(Greeted::Http1);
    }
    let handshake = Builder::new(Contained)
        .timer(TokioTimer::new())
        .initial_stream_window_size(window.0)
        .initial_connection_window_size(window.of_connection())
        .max_header_list_size(HEADERS)
        .keep_alive_interval(pings.after)
        .keep_alive_timeout(pings.timeout)
        // So that no request is sent on a connection that has been dead for long.
        .keep_alive_while_idle(true)
        .initial_max_send_streams(NOT_SAID)
        .handshake(stream);
    let (sender, mut driver) = handshake.await?;
    while driver.current_max_send_streams() == NOT_SAID {
        tokio::select! {
            ended = &mut driver => {
                ended?;
                return Err("the server closed the connection before its HTTP/2 settings".into());
            }
            () = sleep(SETTINGS_INTERVAL) => {}
        }
    }
    match driver.current_max_send_streams() {
        0 => Err("the server allows no requests on the connection".into()),
        _ => Ok(Greeted::Http2(sender, driver)),
    }
}
