//! Answers lists and watches of synthetic objects in the API server's place, and counts what else is asked about them.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt as _, stream};
use http::{Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use parking_lot::Mutex;
use ringside_e2e::relay::Passing;

use super::{
    asked::{Asked, concerned, parameter},
    synthetic::{Kind, Synthetic},
};

/// Events that are sent together: some 40 kB.
const TOGETHER: usize = 64;
/// How often a watch is told how far it is.
const BOOKMARK: Duration = Duration::from_secs(60);
/// A watch that says nothing else ends after this time.
const WATCH: Duration = Duration::from_secs(1_800);

/// Stands in for the API server. Clones count together.
#[derive(Clone)]
pub(super) struct StandIn {
    objects: Arc<Synthetic>,
    tally: Arc<Tally>,
}

struct Tally {
    /// Objects that were sent, and when the last of them were.
    sent: AtomicUsize,
    last: Mutex<Instant>,
    /// What was refused: how often, and the first.
    refused: Mutex<(usize, String)>,
}

impl Tally {
    fn sent(&self, objects: usize) {
        self.sent.fetch_add(objects, Ordering::Relaxed);
        *self.last.lock() = Instant::now();
    }
}

impl StandIn {
    pub(super) fn new(objects: Synthetic) -> Self {
        let tally = Tally { sent: AtomicUsize::new(0), last: Mutex::new(Instant::now()), refused: Mutex::default() };
        Self { objects: Arc::new(objects), tally: Arc::new(tally) }
    }

    /// How many objects were sent, each as often as it was.
    pub(super) fn sent(&self) -> usize {
        self.tally.sent.load(Ordering::Relaxed)
    }

    /// For how long none was.
    pub(super) fn silent(&self) -> Duration {
        self.tally.last.lock().elapsed()
    }

    /// How many requests were refused, and the first of them.
    pub(super) fn refused(&self) -> (usize, String) {
        self.tally.refused.lock().clone()
    }

    /// None where the API server is to answer, as it is about other objects.
    pub(super) fn answer(&self, request: &Parts) -> Option<Response<Passing>> {
        let (kind, is_collection) = concerned(request.uri.path())?;
        let answer = match Asked::of(request, is_collection, self.objects.label()) {
            Asked::Stream => self.live(request, self.events(kind).chain(self.bookmark(true))),
            Asked::Watch => self.live(request, stream::empty()),
            Asked::Page { from, most } => self.page(kind, from, most),
            Asked::Nothing => self.page(kind, 0, 0),
            Asked::Other => {
                let mut refused = self.tally.refused.lock();
                if refused.0 == 0 {
                    refused.1 = format!("{} {}", request.method, request.uri);
                }
                refused.0 += 1;
                let mut answer = body(stream::empty());
                *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                answer
            }
        };
        Some(answer)
    }

    /// A watch that begins so.
    fn live(&self, request: &Parts, first: impl Stream<Item = Bytes> + Send + 'static) -> Response<Passing> {
        let time = parameter(request, "timeoutSeconds").and_then(|time| time.parse().ok());
        let ends = tokio::time::sleep(time.map_or(WATCH, Duration::from_secs));
        let tick = tokio::time::interval_at(tokio::time::Instant::now() + BOOKMARK, BOOKMARK);
        let ticks = stream::unfold(tick, |mut tick| async move { Some((tick.tick().await, tick)) });
        let this = self.clone();
        let bookmarks = ticks.flat_map(move |_| this.bookmark(false));
        body(first.chain(bookmarks).take_until(Box::pin(ends)))
    }

    /// All objects of a kind, made as they are asked for.
    fn events(&self, kind: Kind) -> impl Stream<Item = Bytes> + Send + use<> {
        let Self { objects, tally } = self.clone();
        let count = objects.count(kind);
        stream::iter((0..count).step_by(TOGETHER)).map(move |from| {
            let (some, mut events) = (from..count.min(from + TOGETHER), String::new());
            tally.sent(some.len());
            for number in some {
                // Text takes all that is written to it.
                let _ = writeln!(events, r#"{{"type":"ADDED","object":{}}}"#, objects.object(kind, number));
            }
            events.into()
        })
    }

    /// All is shown up to now; whether it is the first time.
    fn bookmark(&self, is_first: bool) -> impl Stream<Item = Bytes> + Send + use<> {
        let (version, first) = (self.objects.version(), if is_first { FIRST } else { "" });
        let object = r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"#;
        let bookmark = format!("{{\"type\":\"BOOKMARK\",\"object\":{{{object}\"{version}\"{first}}}}}}}\n");
        stream::iter([bookmark.into()])
    }

    fn page(&self, kind: Kind, from: usize, most: usize) -> Response<Passing> {
        let (objects, version) = (&self.objects, self.objects.version());
        let count = if most == 0 { 0 } else { objects.count(kind) };
        let end = count.min(from.saturating_add(most));
        self.tally.sent(end.saturating_sub(from));
        let items: Vec<_> = (from..end).map(|number| objects.object(kind, number).to_string()).collect();
        let next = if end < count { end.to_string() } else { String::new() };
        let list =
            r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"#;
        let list = format!(r#"{list}"{version}","continue":"{next}"}},"items":[{}]}}"#, items.join(","));
        body(stream::iter([list.into()]))
    }
}

/// On the bookmark behind the last object of a streaming list.
const FIRST: &str = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;

fn body(parts: impl Stream<Item = Bytes> + Send + 'static) -> Response<Passing> {
    let body = StreamBody::new(parts.map(|part| Ok(Frame::data(part)))).boxed_unsync();
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::Method;
    use kube::{
        api::{DynamicObject, ObjectList, WatchEvent},
        core::PartialObjectMeta,
    };

    use super::{super::synthetic::tests::synthetic, *};

    type Meta = PartialObjectMeta<DynamicObject>;

    fn request(method: Method, target: &str) -> Parts {
        let request = http::Request::builder().method(method).uri(target);
        let request = request.header(header::ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        request.body(()).unwrap().into_parts().0
    }

    async fn text(answer: Response<Passing>) -> String {
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn all_objects_are_in_a_stream_and_in_pages() {
        let stand_in = StandIn::new(synthetic(100));
        let streamed = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=290&sendInitialEvents=true";
        let streamed = text(stand_in.answer(&request(Method::GET, streamed)).unwrap()).await;
        let events: Vec<WatchEvent<Meta>> = streamed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(events[..200].iter().all(|event| matches!(event, WatchEvent::Added(_))));
        let marks = events[200..].iter().map(|event| match event {
            WatchEvent::Bookmark(mark) => mark.metadata.annotations.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(marks.collect::<Vec<_>>(), [1, 0, 0, 0, 0], "one behind the list, and one a minute");

        let (mut next, mut seen) = (String::new(), 0);
        loop {
            let label = stand_in.objects.label().replace('/', "%2F");
            let target = format!("/api/v1/secrets?labelSelector={label}&limit=30&continue={next}");
            let page = text(stand_in.answer(&request(Method::GET, &target)).unwrap()).await;
            let page: ObjectList<Meta> = serde_json::from_str(&page).unwrap();
            seen += page.items.len();
            next = page.metadata.continue_.unwrap();
            if next.is_empty() {
                break;
            }
        }
        assert_eq!((seen, stand_in.sent(), stand_in.refused().0), (100, 300, 0));
    }

    #[tokio::test]
    async fn writes_and_gets_are_refused_and_counted_and_what_else_there_is_passes() {
        let stand_in = StandIn::new(synthetic(100));
        let one = "/api/v1/namespaces/default/secrets/root-000001";
        for method in [Method::GET, Method::PATCH] {
            assert_eq!(stand_in.answer(&request(method, one)).unwrap().status(), 500);
        }
        assert_eq!(stand_in.refused(), (2, format!("GET {one}")));
        for passes in
            ["/api/v1/namespaces/ringside-system/secrets/x", "/api/v1/namespaces", "/apis/apps/v1/deployments"]
        {
            assert!(stand_in.answer(&request(Method::GET, passes)).is_none(), "{passes}");
        }
    }
}
