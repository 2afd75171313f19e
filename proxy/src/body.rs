//! The one body type of the stack: bytes as they come, never collected on the way through.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::time::{Sleep, sleep};

pub use ringside_runtime::client::{Body, BodyError, BoxError};

/// How long a client may send no byte of a body that has not ended.
pub const BODY_SILENCE: Duration = Duration::from_secs(30);

/// A client sent no byte of a request's body for [`BODY_SILENCE`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no byte of the request's body came for {silence:?}", silence = BODY_SILENCE)]
pub struct BodyStalled;

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of no bytes.
pub fn empty() -> Body {
    Body::default()
}

/// Converts a body of another type into a [`Body`].
pub fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(|error| BodyError(error.into())).boxed_unsync()
}

/// Passes a body on until `end` is ready, then ends it with the error that `end` returned.
///
/// An error, not an end: HTTP/1.1 then closes the connection and HTTP/2 resets the stream, so that the
/// client can't take half a list for a whole one.
pub(crate) fn until<F>(body: Body, end: F) -> Body
where
    F: Future<Output = BoxError> + Send + 'static,
{
    Until { body, end: Some(Box::pin(end)) }.boxed_unsync()
}

/// Whether a client has stopped to send its request's body.
pub type Stalled = Arc<AtomicBool>;

/// Ends a request's body with [`BodyStalled`] when the client sends no byte for [`BODY_SILENCE`]; `stalled` says so then.
pub(crate) fn with_deadline(body: Body) -> (Body, Stalled) {
    let stalled = Stalled::default();
    if body.is_end_stream() {
        return (body, stalled);
    }
    let body = Deadline { body, silence: None, stalled: stalled.clone() };
    (body.boxed_unsync(), stalled)
}

/// What a body says when it is asked for more.
pub(crate) type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// Passes a body on and drops `held` when the body has ended or is dropped itself.
pub(crate) fn holding(body: Body, held: impl Send + Unpin + 'static) -> Body {
    observed(body, held, |_, _| {})
}

/// Passes a body on and holds `held`, as [`holding`] does; `observe` sees each poll's result.
pub(crate) fn observed<H: Send + Unpin + 'static>(
    body: Body,
    held: H,
    observe: impl Fn(&H, &Polled) + Send + 'static,
) -> Body {
    let mut whole = Some((body, held));
    let ended = futures::stream::poll_fn(move |context| {
        let Some((body, held)) = &mut whole else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        observe(held, &polled);
        if matches!(polled, Poll::Ready(None)) {
            whole = None;
        }
        polled
    });
    StreamBody::new(ended).boxed_unsync()
}

struct Deadline {
    body: Body,
    /// While nothing comes.
    silence: Option<Pin<Box<Sleep>>>,
    stalled: Stalled,
}

impl http_body::Body for Deadline {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        if self.stalled.load(Ordering::Relaxed) {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.silence = None;
            return frame;
        }
        ready!(self.silence.get_or_insert_with(|| Box::pin(sleep(BODY_SILENCE))).as_mut().poll(context));
        self.stalled.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(BoxError::from(BodyStalled).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Until<F> {
    body: Body,
    /// Gone once the body has ended either way.
    end: Option<Pin<Box<F>>>,
}

impl<F> http_body::Body for Until<F>
where
    F: Future<Output = BoxError> + Send + 'static,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if let Poll::Ready(error) = end.as_mut().poll(context) {
            self.end = None;
            return Poll::Ready(Some(Err(error.into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.end = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{StreamExt, stream};

    use super::*;

    #[tokio::test]
    async fn a_body_that_is_cut_ends_with_an_error_and_not_as_if_it_were_whole() {
        let (cut, until_cut) = tokio::sync::oneshot::channel::<()>();
        let first = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"half")))]);
        let body = boxed(StreamBody::new(first.chain(stream::pending())));
        let mut body = until(body, async move {
            until_cut.await.ok();
            "lost".into()
        });
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        cut.send(()).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "lost");
        assert!(body.frame().await.is_none());
    }
}
