//! The bytes of a review, within bounds: for one of them, for all at once, and in time.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, header};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout, timeout_at},
};

/// A review carries an object twice, of 1.5 MB at most each (etcd's limit), and some of it twice again as escapes.
const LARGEST: usize = 8 << 20;
/// Up to here a review needs no room of its own: so small are nearly all, and as many as an API server sends at once (600 by
/// default, `--max-mutating-requests-inflight` among them) need little.
const SMALL: usize = 32 << 10;
/// What all others may need together: some of the largest, whatever is asked for at once.
const ROOM: usize = 24 << 20;
/// How long a review waits for room. Then its object is the controller's to assign.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a review may take to arrive: after this the API server no longer waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Room for the reviews of all connections; clones share it.
#[derive(Clone)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

/// A review as it arrived.
pub(super) enum Arrived<'a> {
    /// All of it, and the room that it takes.
    Whole(Bytes, Option<SemaphorePermit<'a>>),
    /// Only its beginning was kept.
    Part(Bytes, &'static str),
}

impl Room {
    /// Takes in a body. What is too much is read and dropped: a client whose body is not read may miss the answer.
    pub(super) async fn collect(&self, headers: &HeaderMap, body: Body) -> Arrived<'_> {
        let deadline = Instant::now() + TIMEOUT;
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (limit, permit, why) = self.admit(length.unwrap_or(LARGEST)).await;
        let mut stream = body.into_data_stream();
        let mut collected = BytesMut::with_capacity(length.unwrap_or_default().min(limit));
        let mut whole = true;
        loop {
            match timeout_at(deadline, stream.next()).await {
                Ok(Some(Ok(chunk))) => {
                    let fits = chunk.len().min(limit - collected.len());
                    collected.extend_from_slice(&chunk[..fits]);
                    whole &= fits == chunk.len();
                }
                Ok(None) if whole => return Arrived::Whole(collected.freeze(), permit),
                Ok(None) => return Arrived::Part(collected.freeze(), why),
                Ok(Some(Err(_))) => return Arrived::Part(collected.freeze(), "it broke off on its way"),
                Err(_) => return Arrived::Part(collected.freeze(), "it took too long to arrive"),
            }
        }
    }

    /// How much of a body may be kept, the room for it, and why there is no more.
    async fn admit(&self, length: usize) -> (usize, Option<SemaphorePermit<'_>>, &'static str) {
        let too_large = "it is larger than objects can be";
        if length <= SMALL {
            // Chunked bodies say no length, and none can be longer than it says.
            return (SMALL, None, too_large);
        }
        if length > LARGEST {
            return (SMALL, None, too_large);
        }
        let needed = u32::try_from(length).unwrap_or(u32::MAX);
        match timeout(ROOM_TIMEOUT, self.0.acquire_many(needed)).await {
            Ok(Ok(permit)) => (length, Some(permit), too_large),
            // The semaphore is never closed.
            _ => (SMALL, None, "there are too many large ones at once"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::stream;

    use super::*;

    fn declared(length: usize) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_LENGTH, length.into())])
    }

    fn chunks(size: usize, count: usize) -> Body {
        Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, std::io::Error>(vec![b'x'; size]))))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_large_is_read_to_its_end_and_only_its_beginning_kept() {
        let room = Room::default();
        for headers in [HeaderMap::new(), declared(LARGEST + 1)] {
            let Arrived::Part(kept, why) = room.collect(&headers, chunks(LARGEST / 4, 9)).await else { panic!("part") };
            assert!(kept.len() <= LARGEST && why.contains("larger"));
        }
        let Arrived::Whole(all, _) = room.collect(&HeaderMap::new(), chunks(LARGEST / 4, 4)).await else {
            panic!("all")
        };
        assert_eq!(all.len(), LARGEST);
        assert_eq!(room.0.available_permits(), ROOM);
    }

    #[tokio::test(start_paused = true)]
    async fn many_large_ones_at_once_are_bounded_and_small_ones_never_wait() {
        let room = Room::default();
        let mut held = Vec::new();
        for _ in 0..ROOM / LARGEST {
            held.push(room.collect(&declared(LARGEST), chunks(LARGEST, 1)).await);
        }
        assert!(held.iter().all(|one| matches!(one, Arrived::Whole(_, Some(_)))));
        let Arrived::Part(kept, why) = room.collect(&declared(LARGEST), chunks(LARGEST, 1)).await else {
            panic!("part")
        };
        assert!(kept.len() == SMALL && why.contains("too many"));
        let begun = Instant::now();
        assert!(matches!(room.collect(&declared(SMALL), chunks(SMALL, 1)).await, Arrived::Whole(_, None)));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        held.clear();
        assert!(matches!(room.collect(&declared(LARGEST), chunks(LARGEST, 1)).await, Arrived::Whole(..)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_arrive_is_not_waited_for() {
        let begun = Instant::now();
        let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let Arrived::Part(kept, _) = Room::default().collect(&HeaderMap::new(), never).await else { panic!("part") };
        assert_eq!((kept.len(), begun.elapsed()), (0, TIMEOUT));
        let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("gone"))]);
        let Arrived::Part(kept, _) = Room::default().collect(&HeaderMap::new(), Body::from_stream(broken)).await else {
            panic!("part")
        };
        assert_eq!(&*kept, b"{");
    }
}
