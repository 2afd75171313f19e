//! A watch of one lock, from memory.
//!
//! It keeps what it showed last, and shows what has become of that. A reader that is slow misses what was in between, never
//! how the lock stands, and nothing piles up for it. Where it can't go on from what its client knows, or the lock is not
//! answered here any more, it ends with what makes the client list again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    LockName, Locks,
    codec::encode_event,
    lock::{APART, Lock},
    object::Object,
};
use crate::{
    body::{Body, BodyError},
    frames::Frames,
    request::{Query, representation::Encoding},
};

/// What a client is told whose watch can't go on.
const LIST_AGAIN: &str = "ringside-proxy: who answers for this lock, or from when on, has changed: list again";
/// How often API servers send bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// A watch that does not say how long it lasts ends after one to two times this (`--min-request-timeout`).
const LASTS: Duration = Duration::from_mins(30);
/// On the bookmark behind the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How a watch is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchOptions {
    start: Start,
    bookmarks: bool,
    /// Whether a bookmark marks the end of the initial events.
    marks: bool,
    lasts: Duration,
}

/// From where on it shows what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// From nothing: what is there first.
    Nothing,
    /// From now.
    Now,
    /// From a version that the client knows; none that is a version.
    Version(Option<u64>),
}

impl WatchOptions {
    /// As an API server reads it.
    pub(crate) fn of(query: &Query) -> Self {
        let version = query.first("resourceVersion").filter(|version| !["", "0"].contains(version));
        let initial = query.first("sendInitialEvents").filter(|it| !it.is_empty());
        let start = match (initial.map(|_| query.flag("sendInitialEvents")), version) {
            (Some(true), _) | (None, None) => Start::Nothing,
            (Some(false), None) => Start::Now,
            (_, Some(version)) => Start::Version(version.parse().ok()),
        };
        let bookmarks = query.flag("allowWatchBookmarks");
        let lasts = query.first("timeoutSeconds").and_then(|it| it.parse().ok()).filter(|seconds| *seconds > 0);
        let lasts = lasts.map_or_else(|| LASTS.mul_f64(1.0 + rand::random::<f64>()), Duration::from_secs);
        Self { start, bookmarks, marks: bookmarks && initial.is_some() && start == Start::Nothing, lasts }
    }

    /// Whether it goes on from a version that no API server has: the client has it from here.
    pub(crate) fn goes_on_from_here(&self) -> bool {
        matches!(self.start, Start::Version(Some(version)) if version >= APART)
    }
}

/// The answer to a watch, until `end`.
pub(crate) fn follow(
    locks: Arc<Locks>,
    name: LockName,
    wish: WatchOptions,
    headers: &HeaderMap,
    end: impl Future<Output = ()> + Send + 'static,
) -> Response<Body> {
    let encoding = Encoding::negotiated(headers);
    let end = async move {
        tokio::select! {
            () = tokio::time::sleep(wish.lasts) => {}
            () = end => {}
        }
    };
    let events = Follower::begin(locks, name, wish, encoding).events().take_until(end);
    let body = StreamBody::new(events.map(|events| Ok::<_, BodyError>(Frame::data(events))));
    let mut response = Response::new(body.boxed_unsync());
    let media_type = match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// An event that makes a client list again.
pub(crate) fn expired(encoding: Encoding) -> Bytes {
    let frames = match encoding {
        Encoding::Json => Frames::json(),
        Encoding::Protobuf => Frames::protobuf(),
    };
    frames.expired(LIST_AGAIN).unwrap_or_default()
}

/// Who follows.
struct Follower {
    locks: Arc<Locks>,
    name: LockName,
    encoding: Encoding,
    changes: watch::Receiver<()>,
    /// What the client knows. None where that is not known.
    shown: Option<Option<Object>>,
    marks: bool,
    bookmarks: Option<Interval>,
}

impl Follower {
    fn begin(locks: Arc<Locks>, name: LockName, wish: WatchOptions, encoding: Encoding) -> Self {
        // Before the lock is looked at: what is changed after that is noticed.
        let changes = locks.changes();
        let shown = locks.known(&name).and_then(|lock| match wish.start {
            Start::Nothing => Some(None),
            Start::Now => Some(lock.object().cloned()),
            Start::Version(version) => lock.seen_in(version?),
        });
        let bookmarks = wish.bookmarks.then(|| {
            let mut ticks = interval(BOOKMARKS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.reset();
            ticks
        });
        Self { locks, name, encoding, changes, shown, marks: wish.marks, bookmarks }
    }

    fn events(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(Some(self), |follower| async move {
            let mut follower = follower?;
            match follower.next().await {
                Some(events) => Some((events, Some(follower))),
                None => Some((expired(follower.encoding), None)),
            }
        })
        .fuse()
    }

    /// Returns the next events for the client; `None` when the locks can't tell them.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let lock = self.locks.known(&self.name)?;
            let mut events = news(self.shown.as_ref()?.as_ref(), &lock);
            self.shown = Some(lock.object().cloned());
            if std::mem::take(&mut self.marks) {
                events.push(("BOOKMARK", self.bookmark(&lock, true)));
            }
            if !events.is_empty() {
                let events = events.iter().map(|(event, object)| encode_event(event, object, self.encoding));
                return Some(events.collect::<Vec<_>>().concat().into());
            }
            tokio::select! {
                // Its sender lives in the locks.
                _ = self.changes.changed() => {}
                () = tick(self.bookmarks.as_mut()) => {
                    return Some(encode_event("BOOKMARK", &self.bookmark(&lock, false), self.encoding));
                }
            }
        }
    }

    fn bookmark(&self, lock: &Lock, is_end: bool) -> Object {
        let mut bookmark = Object::bare(self.name.kind, lock.version());
        let end = is_end.then(|| [(INITIAL_EVENTS_END.to_owned(), "true".to_owned())].into());
        bookmark.metadata_mut().annotations = end;
        bookmark
    }
}

async fn tick(bookmarks: Option<&mut Interval>) {
    match bookmarks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

/// What has become of what was shown.
fn news(shown: Option<&Object>, lock: &Lock) -> Vec<(&'static str, Object)> {
    let (was, now) = (shown.map(Object::metadata), lock.object().map(Object::metadata));
    let is_same = was.zip(now).is_some_and(|(was, now)| was.uid == now.uid);
    let version = |it: Option<&ObjectMeta>| it.and_then(|it| it.resource_version.clone());
    let added = lock.object().cloned();
    if is_same {
        let changed = version(was) != version(now);
        return added.filter(|_| changed).map(|now| ("MODIFIED", now)).into_iter().collect();
    }
    let gone = shown.cloned().map(|was| ("DELETED", was.of(lock.deleted_in())));
    gone.into_iter().chain(added.map(|now| ("ADDED", now))).collect()
}

#[cfg(test)]
mod tests;
