//! Watches of one name that pass, because it is that of no lock, or of one that another holder has.
//!
//! Each event passes as it is, up to one that shows that the ring holds the lock: that holder is never the controller, which
//! would wait for it for ever. There, and where the lock becomes the controller's, the watch ends with what makes the client
//! list again: then it is answered from memory.

use std::{io, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;
use tokio_util::{
    codec::{FramedRead, LengthDelimitedCodec, LinesCodec},
    io::StreamReader,
};

use crate::{
    body::{Body, BodyError, BoxError},
    election::{LockName, Locks, follow::expired},
    frames::{MAX_KEPT, behind_length, line},
    request::representation::{Encoding, is_compressed},
};

/// The answer to such a watch, for a ring of this name.
pub(super) fn passing(response: Response<Body>, locks: Arc<Locks>, name: LockName, ring: String) -> Response<Body> {
    let encoding = Encoding::of_body(response.headers()).filter(|_| !is_compressed(response.headers()));
    let (true, Some(encoding)) = (response.status().is_success(), encoding) else { return response };
    response.map(|body| {
        let changes = locks.changes();
        let passing = Passing { events: events(body, encoding), encoding, locks, name, ring, changes };
        StreamBody::new(passing.pass().map_ok(Frame::data)).boxed_unsync()
    })
}

type EventStream = BoxStream<'static, Result<Bytes, BoxError>>;

/// The events in a body, without what stands between them.
fn events(body: Body, encoding: Encoding) -> EventStream {
    let reader = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    match encoding {
        Encoding::Json => {
            let lines = FramedRead::new(reader, LinesCodec::new_with_max_length(MAX_KEPT));
            lines.map_ok(Bytes::from).map_err(BoxError::from).boxed()
        }
        Encoding::Protobuf => {
            let lengths = LengthDelimitedCodec::builder().max_frame_length(MAX_KEPT).new_codec();
            FramedRead::new(reader, lengths).map_ok(BytesMut::freeze).map_err(BoxError::from).boxed()
        }
    }
}

struct Passing {
    events: EventStream,
    encoding: Encoding,
    locks: Arc<Locks>,
    name: LockName,
    ring: String,
    changes: watch::Receiver<()>,
}

impl Passing {
    fn pass(self) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
        stream::unfold(Some(self), |passing| async move {
            let mut passing = passing?;
            let (said, goes_on) = passing.next().await?;
            Some((said, goes_on.then_some(passing)))
        })
        .fuse()
    }

    /// What comes next, and whether the watch goes on then.
    async fn next(&mut self) -> Option<(Result<Bytes, BodyError>, bool)> {
        loop {
            if self.locks.knows(&self.name) {
                return Some((Ok(expired(self.encoding)), false));
            }
            let event = tokio::select! {
                // Its sender lives in the locks.
                _ = self.changes.changed() => continue,
                event = self.events.next() => event?,
            };
            let event = match event {
                Ok(event) => event,
                Err(error) => return Some((Err(error.into()), false)),
            };
            match self.locks.read_event(&self.name, self.encoding, &event, &self.ring) {
                // By this event, or by a write meanwhile.
                _ if self.locks.knows(&self.name) => {}
                Ok(()) => return Some((Ok(self.framed(&event)), true)),
                Err(refusal) => return Some((Err(BoxError::from(refusal).into()), false)),
            }
        }
    }

    fn framed(&self, event: &[u8]) -> Bytes {
        match self.encoding {
            Encoding::Json => line(event),
            Encoding::Protobuf => behind_length(event),
        }
    }
}
