//! A request's place on a connection, free again when its answer has passed.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::silence::Silence;

/// The requests under way on one connection.
#[derive(Debug)]
pub(super) struct Usage {
    under_way: Mutex<UnderWay>,
    /// How many the server allows at once, as far as it has said so.
    allowed: AtomicUsize,
}

#[derive(Debug)]
struct UnderWay {
    count: usize,
    /// When the last of them ended.
    last: Instant,
}

impl Usage {
    /// Of a new connection, with the place of the request that it is made for; `allowed` is what the server allowed on
    /// others.
    pub(super) fn with_place(allowed: usize) -> (Arc<Self>, Place) {
        let under_way = Mutex::new(UnderWay { count: 1, last: Instant::now() });
        let usage = Arc::new(Self { under_way, allowed: AtomicUsize::new(allowed) });
        (usage.clone(), Place(usage))
    }

    /// The server says how many it allows at once.
    pub(super) fn allow(&self, streams: usize) {
        self.allowed.store(streams, Ordering::Relaxed);
    }

    /// A place, if fewer than `most` and what the server allows are under way.
    pub(super) fn take(self: &Arc<Self>, most: usize) -> Option<Place> {
        let mut under_way = self.under_way.lock();
        let room = under_way.count < most.min(self.allowed.load(Ordering::Relaxed));
        room.then(|| {
            under_way.count += 1;
            Place(self.clone())
        })
    }

    /// Since when nothing is under way.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let under_way = self.under_way.lock();
        (under_way.count == 0).then_some(under_way.last)
    }
}

/// On an answer by HTTP/2: the connection that it came by. On a request: the connection to send it by, as long as there is that.
/// So what one API server answered can be compared with what it says next.
#[derive(Clone, Debug)]
pub struct Connection(Weak<Usage>);

impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for Connection {}

impl Connection {
    pub(super) fn is_of(&self, usage: &Arc<Usage>) -> bool {
        self.0.as_ptr() == Arc::as_ptr(usage)
    }
}

/// One request's place.
#[derive(Debug)]
pub(super) struct Place(Arc<Usage>);

impl Place {
    /// The connection that it is on.
    pub(super) fn connection(&self) -> Connection {
        Connection(Arc::downgrade(&self.0))
    }

    /// Gives the place up if the server allows fewer than there are.
    pub(super) fn confirm(self) -> Option<Self> {
        let fits = self.0.under_way.lock().count <= self.0.allowed.load(Ordering::Relaxed);
        fits.then_some(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way.lock();
        under_way.count -= 1;
        under_way.last = Instant::now();
    }
}

/// Why an answer has no more of its body.
#[derive(Debug, thiserror::Error)]
pub enum CutOff {
    /// The connection or the stream failed.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// A stream was reset in the middle, as if by intention.
    #[error("the API server stopped before the end of its answer")]
    Reset,
    /// Nothing came any more, and the server does not answer to others either.
    #[error("the API server was silent, and does not answer on a new connection")]
    Silent,
}

/// The body of an answer, and what goes with it on its connection until it is dropped.
#[derive(Debug)]
pub struct Held {
    body: Incoming,
    /// None on HTTP/1.1: there a connection is for one request at a time anyway.
    place: Option<Place>,
    /// None on HTTP/2: there a connection has pings.
    silence: Option<Silence>,
}

impl Held {
    pub(super) fn by_http2(body: Incoming, place: Place) -> Self {
        Self { body, place: Some(place), silence: None }
    }

    pub(super) fn by_http1(body: Incoming, silence: Option<Silence>) -> Self {
        Self { body, place: None, silence }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let this = &mut *self;
        let frame = match (Pin::new(&mut this.body).poll_frame(context), &mut this.silence) {
            (Poll::Pending, Some(silence)) => {
                ready!(silence.poll_gone(context));
                return Poll::Ready(Some(Err(CutOff::Silent)));
            }
            (frame, silence) => {
                let frame = ready!(frame);
                silence.iter_mut().for_each(Silence::heard);
                frame
            }
        };
        match frame {
            // hyper takes RST_STREAM with NO_ERROR for an end: it means that no more of the request is wanted, and comes
            // after a whole answer (RFC 9113, section 8.1). A server that is cut off in the middle sends the same.
            None if this.place.is_some() && !this.body.is_end_stream() => Poll::Ready(Some(Err(CutOff::Reset))),
            frame => Poll::Ready(frame.map(|frame| Ok(frame?))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn there_are_as_many_places_as_we_want_and_the_server_allows() {
        let (usage, first) = Usage::with_place(usize::MAX);
        let two = [first, usage.take(2).unwrap()];
        assert!(usage.take(2).is_none());
        assert!(usage.unused_since().is_none());
        drop(two);
        assert!(usage.unused_since().is_some());
        usage.allow(1);
        let _one = usage.take(2).unwrap();
        assert!(usage.take(2).is_none());
    }
}
