//! The API server that is none: it answers at once what it made before, and all that a proxy asks of itself.

mod objects;
mod own;
mod pace;

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use futures::{StreamExt as _, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};

use self::{objects::Objects, own::Own, pace::Pace};
use super::{certificates::Certificates, serve::serve};

/// The ring of the pods, and one of something else.
pub(super) const INSIDE: &str = "inside";
pub(super) const OUTSIDE: &str = "outside";
/// The shard that has all objects of both.
pub(super) const SHARD: &str = "shard-0";

/// A pod, and a list of them.
pub(super) const POD: &str = "/api/v1/namespaces/default/pods/web-7d4b9c6f5d-x2x7k";
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
/// A watch that has events all the time, and one that has one at its beginning.
pub(super) const LIVE: &str = "/api/v1/namespaces/live/pods?watch=true&allowWatchBookmarks=true&resourceVersion=1000";
pub(super) const QUIET: &str = "/api/v1/namespaces/quiet/pods?watch=true&allowWatchBookmarks=true&resourceVersion=1000";

const JSON: &str = "application/json";
const JSON_WATCH: &str = "application/json;stream=watch";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Pieces of a list, as Go's server sends them.
const PIECE: usize = 32 << 10;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// How large its answers are, and how fast its events.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a list.
    pub list: usize,
    /// Events a second on each live watch.
    pub rate: u32,
}

impl Shape {
    pub(super) fn arguments(self) -> [String; 2] {
        [format!("--list={}", self.list), format!("--rate={}", self.rate)]
    }
}

/// Answers at `listen` until the process ends.
///
/// # Errors
/// When it can't listen.
pub async fn upstream(listen: SocketAddr, certificates: &Certificates, shape: Shape) -> anyhow::Result<()> {
    let server =
        Arc::new(Server { objects: Objects::new(shape.list)?, own: Own::default(), pace: Pace::of(shape.rate) });
    let answer = move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    };
    serve(listen, certificates.of_server()?, answer).await
}

struct Server {
    objects: Objects,
    own: Own,
    pace: Pace,
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (parts, body) = request.into_parts();
        // A request that breaks off is answered to none.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        if !path.contains("/pods") {
            return self.own.answer(&parts.method, path, query, &body);
        }
        let is_protobuf =
            parts.headers.get(header::ACCEPT).is_some_and(|it| it.as_bytes().starts_with(b"application/vnd"));
        if query.contains("watch=") {
            return self.watch(path, query, is_protobuf);
        }
        if path == POD || parts.method == Method::PATCH {
            return whole(StatusCode::OK, JSON, self.objects.pod.clone());
        }
        match () {
            () if own::asks_for_drained(query) => whole(StatusCode::OK, JSON, Bytes::from_static(objects::EMPTY)),
            // Questions of the proxy about one object.
            () if query.contains("fieldSelector=") || query.contains("limit=1") => {
                whole(StatusCode::OK, JSON, self.objects.one.clone())
            }
            () => pieces(&self.objects.list),
        }
    }

    fn watch(&self, path: &str, query: &str, is_protobuf: bool) -> Answer {
        let (event, form) = match is_protobuf {
            true => (self.objects.protobuf_event.clone(), PROTOBUF_WATCH),
            false => (self.objects.event.clone(), JSON_WATCH),
        };
        if own::asks_for_drained(query) {
            return streamed(form, stream::pending());
        }
        match path.contains("/live/") {
            true => streamed(form, self.pace.events(event)),
            false => streamed(form, stream::once(async { event }).chain(stream::pending())),
        }
    }
}

fn whole(status: StatusCode, form: &'static str, body: Bytes) -> Answer {
    with(status, form, Full::new(body).boxed_unsync())
}

fn pieces(list: &Bytes) -> Answer {
    let pieces: Vec<_> = (0..list.len()).step_by(PIECE).map(|at| list.slice(at..list.len().min(at + PIECE))).collect();
    streamed(JSON, stream::iter(pieces))
}

fn streamed(form: &'static str, pieces: impl stream::Stream<Item = Bytes> + Send + 'static) -> Answer {
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    with(StatusCode::OK, form, StreamBody::new(frames).boxed_unsync())
}

fn with(status: StatusCode, form: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    // What an API server adds to each answer.
    for (name, value) in [
        ("audit-id", "5d0c1b3e-4b0f-4e53-9a3b-0a4a1c6c9b1e"),
        ("cache-control", "no-cache, private"),
        ("x-kubernetes-pf-flowschema-uid", "7f3f6f5e-9f0c-4d6a-8f55-2f7a2d0c1e11"),
        ("x-kubernetes-pf-prioritylevel-uid", "0a9b8c7d-1e2f-4a3b-9c4d-5e6f7a8b9c0d"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
