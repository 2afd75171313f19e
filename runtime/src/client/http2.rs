//! HTTP/2 connections with a bounded number of requests on each.
//!
//! A server limits the streams of a connection (kube-apiserver's default: 100), and what exceeds that waits for as long
//! as the watches on it go on. And HTTP/2 has one window for all streams of a connection, beside one for each: readers that
//! stop could use it up, and the others would starve. So a connection carries at most [`PLACES`] requests, and its window
//! is that of all of them together: one that is never read costs its own window's memory, and no other request
//! anything.
//!
//! Watches have connections of their own, as a connection has one size of window for all of its streams: that of a list would be
//! too much for each of hundreds of watches that no client reads.

use std::{
    error::Error,
    future::poll_fn,
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use http::{Request, Response};
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

use super::{
    Body, BoxError, Connection, Held, NoAnswer,
    connector::Connector,
    handshake::{Driver, Greeted, Pings, StreamWindow, greet},
    place::{Place, Usage},
};
use crate::{contained::contained, explain::causes};

/// Requests on one connection. RFC 9113 asks servers to allow no less than 100 (section 6.5.2).
pub(super) const PLACES: usize = 64;
/// Requests beyond that which have to use one connection.
const SPARE: usize = 16;
/// How long a connection without requests is of use. kube-apiserver closes them after 90 s, and what is sent at that
/// moment may or may not be done.
pub(super) const UNUSED: Duration = Duration::from_secs(60);
/// How many connections a request is tried on that was certainly not processed on one: it had just ended, or had no room.
pub(super) const ATTEMPTS: usize = 3;

/// Why there is no answer here.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The server has no HTTP/2; the request was not sent.
    NotSpoken(Box<Request<Body>>),
    /// There was an attempt.
    NoAnswer(NoAnswer),
}

impl From<NoAnswer> for Unanswered {
    fn from(error: NoAnswer) -> Self {
        Self::NoAnswer(error)
    }
}

/// The connections.
pub(super) struct Http2(Arc<Inner>);

struct Inner {
    connector: Connector,
    pings: Pings,
    window: StreamWindow,
    /// How many requests the server allows on a connection, as it said last.
    allowed: AtomicUsize,
    lanes: Mutex<Vec<Lane>>,
}

/// A connection, or one that is being made.
#[derive(Clone)]
struct Lane {
    usage: Arc<Usage>,
    /// Its making goes on in a task of its own, whichever caller stops waiting. None until it has ended.
    opened: watch::Receiver<Option<Opened>>,
}

#[derive(Clone)]
enum Opened {
    Http2(SendRequest<Body>),
    /// The server chose HTTP/1.1.
    Http1,
    /// For all who waited.
    Failed(Arc<str>),
}

impl Lane {
    /// Whether a request may be sent on it: open and lately used, or being opened.
    fn is_live(&self) -> bool {
        match &*self.opened.borrow() {
            None => self.opened.has_changed().is_ok(),
            Some(Opened::Http2(sender)) => {
                !sender.is_closed() && self.usage.unused_since().is_none_or(|since| since.elapsed() < UNUSED)
            }
            Some(Opened::Http1 | Opened::Failed(_)) => false,
        }
    }

    async fn opened(&mut self) -> Opened {
        match self.opened.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(opened)) => opened.clone(),
            _ => Opened::Failed("the connection was not made".into()),
        }
    }
}

impl Http2 {
    pub(super) fn new(connector: Connector, pings: Pings, window: StreamWindow) -> Self {
        let allowed = AtomicUsize::new(PLACES);
        Self(Arc::new(Inner { connector, pings, window, allowed, lanes: Mutex::default() }))
    }

    /// Sends a request on a connection with room.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Held>, Unanswered> {
        let mut reason = "the API server allows too few requests on its connections".into();
        let mut wanted = request.extensions_mut().remove();
        for _ in 0..ATTEMPTS {
            let (mut lane, place) = self.place(wanted.take().as_ref());
            let mut sender = match lane.opened().await {
                Opened::Http2(sender) => sender,
                Opened::Http1 => return Err(Unanswered::NotSpoken(Box::new(request))),
                Opened::Failed(text) => return Err(NoAnswer::Unreachable((*text).into()).into()),
            };
            // By now the server has said how many it allows.
            let Some(place) = place.confirm() else { continue };
            let answered = sender.try_send_request(request);
            // What is sent in the very moment in which the connection ends stays in its channel, and is answered only when
            // the channel goes (tokio's `mpsc` drains it once, and looks at what comes behind when its last sender is gone). Who
            // held a sender while it waits for the answer would wait for itself.
            drop((sender, lane));
            match answered.await {
                Ok(mut response) => {
                    response.extensions_mut().insert(place.connection());
                    return Ok(response.map(|body| Held::by_http2(body, place)));
                }
                Err(mut error) => match error.take_message() {
                    // The connection ended before the request was sent, so sending it elsewhere does not repeat it.
                    Some(unsent) => {
                        request = unsent;
                        reason = text(&error.into_error());
                    }
                    None => return Err(no_answer(&error.into_error()).into()),
                },
            }
        }
        Err(NoAnswer::Unreachable(reason).into())
    }

    /// A place on this connection, or on the first with room, so that connections that are not needed any more run empty.
    fn place(&self, wanted: Option<&Connection>) -> (Lane, Place) {
        let mut lanes = self.0.lanes.lock();
        lanes.retain(Lane::is_live);
        let wanted = lanes.iter().find(|lane| wanted.is_some_and(|wanted| wanted.is_of(&lane.usage)));
        let wanted = wanted.and_then(|lane| Some((lane.clone(), lane.usage.take(PLACES + SPARE)?)));
        let room = || lanes.iter().find_map(|lane| Some((lane.clone(), lane.usage.take(PLACES)?)));
        let found = wanted.or_else(room);
        found.unwrap_or_else(|| {
            let (usage, place) = Usage::with_place(self.0.allowed.load(Ordering::Relaxed));
            let lane = self.0.open(usage);
            lanes.push(lane.clone());
            (lane, place)
        })
    }
}

impl Inner {
    /// Opens a connection and runs it.
    fn open(self: &Arc<Self>, usage: Arc<Usage>) -> Lane {
        let (tell, opened) = watch::channel(None);
        let lane = Lane { usage: usage.clone(), opened };
        let (connector, pings, window, inner) = (self.connector.clone(), self.pings, self.window, Arc::downgrade(self));
        tokio::spawn(contained(async move {
            let greeted = connector.connect_and(|stream| greet(stream, pings, window)).await;
            let (opened, driver) = match greeted {
                Ok(Greeted::Http2(sender, driver)) => (Opened::Http2(sender), Some(driver)),
                Ok(Greeted::Http1) => (Opened::Http1, None),
                Err(error) => (Opened::Failed(causes(&*error).into()), None),
            };
            if let Some(driver) = &driver {
                allow(&inner, &usage, driver.current_max_send_streams());
            }
            tell.send_replace(Some(opened));
            // It keeps what it told, and a connection ends only when no request can be sent on it any more.
            drop(tell);
            if let Some(driver) = driver {
                drive(driver, usage, inner.clone()).await;
            }
            // No lane may hold what can send on it any more: see `send`.
            if let Some(inner) = inner.upgrade() {
                inner.sweep();
            }
        }));
        lane
    }

    /// Drops connections that are of no use any more; they end when no caller holds them.
    fn sweep(&self) {
        self.lanes.lock().retain(Lane::is_live);
    }
}

fn allow(inner: &Weak<Inner>, usage: &Usage, streams: usize) {
    usage.allow(streams);
    if let Some(inner) = inner.upgrade() {
        inner.allowed.store(streams, Ordering::Relaxed);
    }
}

/// Sends what is asked of a connection for as long as it takes requests, or until no caller wants to send any. Answers
/// that are under way then come to their end without this.
async fn drive(mut driver: Driver, usage: Arc<Usage>, inner: Weak<Inner>) {
    let mut allowed = driver.current_max_send_streams();
    let mut ended = poll_fn(|context| {
        let ended = driver.poll_unpin(context);
        let now = driver.current_max_send_streams();
        if mem::replace(&mut allowed, now) != now {
            allow(&inner, &usage, now);
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

fn no_answer(error: &hyper::Error) -> NoAnswer {
    if is_unprocessed(error) { NoAnswer::NotProcessed(text(error)) } else { NoAnswer::Failed(text(error)) }
}

/// Whether the server did certainly nothing with the request: its stream is above the last that a server names when it goes
/// away (RFC 9113, section 6.8), and only those end by that; or it was refused (section 8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let reset = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    reset.is_some_and(|it| it.is_remote() && (it.is_go_away() || it.reason() == Some(h2::Reason::REFUSED_STREAM)))
}

fn text(error: &hyper::Error) -> BoxError {
    causes(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_which_nothing_more_will_be_heard_is_not_waited_for() {
        let (tell, opened) = watch::channel(None);
        let (usage, _place) = Usage::with_place(1);
        let lane = Lane { usage, opened };
        assert!(lane.is_live());
        drop(tell);
        assert!(!lane.is_live());
    }
}
