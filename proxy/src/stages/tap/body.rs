//! The body of a watch, as the client gets it.

use std::{
    pin::Pin,
    task::{self, Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

use super::stream::{HalfAnEvent, Held, Next, Regained, WatchStream};
use crate::body::{Body, BodyError, BoxError, Polled};

/// The body of a watch that the client reads.
pub(super) struct WatchBody {
    /// Gone where nothing of it is the client's any more.
    body: Option<Body>,
    stream: WatchStream,
    ended: bool,
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        loop {
            // Asking for more means that the connection took what it was given.
            self.stream.delivered();
            if self.ended {
                return Poll::Ready(None);
            }
            match self.stream.poll_arrived(context) {
                Poll::Ready(Held::Nothing) => {}
                // Of this piece nothing is the client's.
                Poll::Ready(Held::Piece(piece)) if piece.is_empty() => continue,
                Poll::Ready(Held::Piece(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                // It is asked for again, from what its client has.
                Poll::Ready(Held::Dropped) => {
                    self.body = None;
                    if !self.stream.goes_on() {
                        return Poll::Ready(self.end());
                    }
                }
                Poll::Ready(Held::Half) => return Poll::Ready(self.half()),
                Poll::Pending => {
                    self.read_on(context);
                    return Poll::Pending;
                }
            }
            let first = self.stream.poll_first(context);
            if let Poll::Ready(Some(first)) = first {
                return Poll::Ready(Some(Ok(Frame::data(first))));
            }
            if let Poll::Ready(told) = self.stream.poll_end(context) {
                return Poll::Ready(self.last(told));
            }
            if first.is_pending() {
                return Poll::Pending;
            }
            let frame = match self.poll_next(context) {
                Poll::Ready(Next::Frame(frame)) => frame,
                Poll::Ready(Next::Told(event)) => return Poll::Ready(Some(Ok(Frame::data(event)))),
                Poll::Ready(Next::With(body)) => {
                    self.body = Some(body);
                    continue;
                }
                Poll::Ready(Next::Nothing) => return Poll::Ready(self.end()),
                // What has come was told by now.
                Poll::Pending => match task::ready!(self.stream.poll_regained(context)) {
                    Regained::FindsOut => continue,
                    Regained::Ends => {
                        let told = self.stream.last_word();
                        return Poll::Ready(self.last(told));
                    }
                },
            };
            match self.pass(frame) {
                // Of this piece nothing is the client's.
                Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                frame => return Poll::Ready(frame),
            }
        }
    }
}

impl WatchBody {
    pub(super) fn new(body: Body, stream: WatchStream) -> Self {
        Self { body: Some(body), stream, ended: false }
    }

    /// What comes next: of a watch that is asked for again, or of the API server.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if let Some(next) = task::ready!(self.stream.poll_again(context)) {
            return Poll::Ready(next);
        }
        if self.stream.is_silent() {
            self.body = None;
        }
        if let Some(end) = self.stream.arrivals.as_mut().and_then(|arrivals| arrivals.end.take()) {
            return Poll::Ready(Next::Frame(end.map(Err)));
        }
        let Some(body) = &mut self.body else { return Poll::Pending };
        http_body::Body::poll_frame(Pin::new(body), context).map(Next::Frame)
    }

    /// Takes what comes while something waits, as long as there is room.
    fn read_on(&mut self, context: &mut Context<'_>) {
        while let Some(arrivals) = self.stream.arrivals.as_mut().filter(|arrivals| arrivals.may_read_on()) {
            let Some(body) = &mut self.body else { return };
            let Poll::Ready(frame) = http_body::Body::poll_frame(Pin::new(body), context) else { return };
            match frame.transpose() {
                // It waits as well.
                Ok(Some(frame)) => drop(frame.map_data(|piece| self.stream.take(piece))),
                Ok(None) => arrivals.end = Some(None),
                Err(error) => arrivals.end = Some(Some(error)),
            }
        }
    }

    /// What the client gets for what came.
    fn pass(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) -> Option<Result<Frame<Bytes>, BodyError>> {
        match frame {
            Some(Ok(frame)) => Some(Ok(frame.map_data(|piece| self.stream.take(piece)))),
            _ if self.stream.goes_on() => Some(Ok(Frame::data(Bytes::new()))),
            Some(Err(error)) => {
                self.stream.gone();
                if !self.stream.at_frame_boundary() {
                    self.ended = true;
                    return Some(Err(error));
                }
                tracing::debug!(%error, "the API server is gone: a watch ends");
                self.end()
            }
            None => {
                self.stream.ended();
                if self.stream.is_cut_short() {
                    return self.half();
                }
                self.end()
            }
        }
    }

    /// Nothing comes any more, but for what the client has to be told.
    fn end(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        self.ended = true;
        self.stream.last_word().map(|event| Ok(Frame::data(event)))
    }

    /// It ends here, with what its client is told.
    fn last(&mut self, told: Option<Bytes>) -> Option<Result<Frame<Bytes>, BodyError>> {
        self.ended = true;
        match told {
            Some(event) => Some(Ok(Frame::data(event))),
            None if self.stream.at_frame_boundary() => None,
            None => self.half(),
        }
    }

    /// Its client has half an event, of which the rest does not come.
    fn half(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        self.ended = true;
        Some(Err(BoxError::from(HalfAnEvent).into()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use futures::{FutureExt, future::pending, stream};
    use http_body_util::{BodyExt, StreamBody};
    use proptest::prelude::*;
    use ringside_ring::cluster_ring::GroupResource;

    use super::*;
    use crate::{
        body::boxed,
        frames::Frames,
        views::{Views, fixtures::watch},
    };

    /// Each watch has one of these, beside its stream and its view, for as long as it is open.
    #[test]
    fn a_watch_is_small() {
        assert!(size_of::<WatchBody>() <= 256, "{} bytes", size_of::<WatchBody>());
    }

    /// What comes out of a watch of `pieces`, of the ring or not, and whether it ended in order.
    fn tapped(pieces: &[Vec<u8>], of_the_ring: bool) -> (BytesMut, bool) {
        let frames = pieces.iter().map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(piece))));
        let body = boxed(StreamBody::new(stream::iter(frames.collect::<Vec<_>>())));
        let things = GroupResource { group: "x.io".to_owned(), resource: "things".to_owned() };
        let view = of_the_ring.then(|| watch(&Views::new(), things, None));
        let stream = WatchStream::new(Frames::json(), view, true, pending().boxed());
        let mut body = WatchBody::new(body, stream);
        let mut out = BytesMut::new();
        loop {
            match body.frame().now_or_never() {
                Some(Some(Ok(frame))) => out.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes)),
                Some(end) => return (out, end.is_none()),
                None => return (out, false),
            }
        }
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let event = r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#;
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            Just(format!("{event}\n").into_bytes()),
            (0..event.len()).prop_map(move |at| event.as_bytes()[..at].to_vec()),
            (0..event.len()).prop_map(move |at| format!("{}\n", &event[at..]).into_bytes()),
        ]
    }

    proptest! {
        /// Of a watch that is not understood any more the rest is cut off, with an error, and nothing is ever changed.
        #[test]
        fn bytes_out_are_bytes_in(pieces in prop::collection::vec(piece(), 0..12)) {
            let sent = pieces.concat();
            let (passed, _) = tapped(&pieces, false);
            prop_assert_eq!(&passed[..], &sent[..]);
            let (shown, in_order) = tapped(&pieces, true);
            prop_assert!(sent.starts_with(&shown));
            prop_assert!(!in_order || (shown.len() == sent.len() && (sent.is_empty() || sent.ends_with(b"\n"))));
        }
    }
}
