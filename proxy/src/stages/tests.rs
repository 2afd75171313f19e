//! The stack as a whole, over a service that stands in for the API server.
#![allow(clippy::unwrap_used)]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, channel::mpsc};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use ringside_ring::{RingLabels, cluster_ring::GroupResource};
use ringside_runtime::admin::{Health, Probe};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{ServiceExt, service_fn, util::BoxCloneService};

use super::{Shared, stack};
use crate::{
    access::{Handout, Token},
    body::{Body, BodyError, BoxError, boxed, empty, full},
    budget::Budget,
    config::{DeletionTimestamps, ForeignTokens},
    election::{Locks, hold::tests::Server},
    fence::Fence,
    gap::GapDetector,
    membership::{Gate, LeaseTerm},
    metrics::Metrics,
    peering::{Peerings, RingPeer},
    policy::{self, Policy, RingState},
    request::representation::PROTOBUF,
    upstream::UpstreamError,
    views::Views,
};

mod authentication;
mod beginning;
mod buffers;
mod election;
mod entering;
mod fencing;
mod hiding;
mod missing;
mod narrowing;
mod peering;
mod resuming;
mod upgrades;
mod watches;

const SELECTOR: &str = "s=me,!d";

/// A request as it reached the API server.
#[derive(Clone, Debug)]
struct Seen {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

type Respond = Arc<dyn Fn(&Seen) -> Result<Response<Body>, UpstreamError> + Send + Sync>;

/// A proxy that holds its Lease and shards `things.x.io`.
struct Lab {
    shared: Shared,
    seen: Arc<Mutex<Vec<Seen>>>,
    stack: BoxCloneService<Request<Body>, Response<Body>, Infallible>,
    /// The real locks of the controller's elections.
    real: Server,
}

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn sharding(resources: &[GroupResource]) -> RingState {
    let resources: std::collections::BTreeSet<_> = resources.iter().cloned().collect();
    let families = resources.iter().map(|main| (main.clone(), Vec::new())).collect();
    RingState::Known(Arc::new(Policy { families, resources, ..Policy::default() }))
}

fn term() -> LeaseTerm {
    term_by(&Arc::new(AtomicBool::new(true)))
}

/// One that is on as long as this says so.
fn term_by(held: &Arc<AtomicBool>) -> LeaseTerm {
    let held = held.clone();
    LeaseTerm::new("me".parse().unwrap(), SELECTOR.into(), move || held.load(Ordering::Relaxed))
}

impl Lab {
    fn new(respond: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::failing(Arc::new(move |seen| Ok(respond(seen))))
    }

    fn failing(respond: Respond) -> Self {
        Self::over(move |seen| Some(respond(seen)))
    }

    /// With an API server that may never answer.
    fn stuck(respond: impl Fn(&Seen) -> Option<Response<Body>> + Send + Sync + 'static) -> Self {
        Self::over(move |seen| respond(seen).map(Ok))
    }

    /// With the labels of the ring hidden, as is usual.
    fn hiding(respond: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::with(true, move |seen| Some(Ok(respond(seen))))
    }

    fn over(respond: impl Fn(&Seen) -> Option<Result<Response<Body>, UpstreamError>> + Send + Sync + 'static) -> Self {
        Self::with(false, respond)
    }

    fn with(
        hides_labels: bool,
        respond: impl Fn(&Seen) -> Option<Result<Response<Body>, UpstreamError>> + Send + Sync + 'static,
    ) -> Self {
        let (respond, real) = (Arc::new(respond), Server::default());
        let peerings = Arc::new(Peerings::new(&"example".parse().unwrap()));
        let shared = Shared {
            token: Arc::new(Token::of("secret")),
            foreign_tokens: ForeignTokens::Pass,
            gaps: GapDetector::new(Handout::to("/dev/null".into()), 1, Health::new().check("gap", Probe::Controller)),
            gate: Gate::new(),
            knowledge: policy::ring_state(),
            newest: tokio::sync::watch::Sender::default(),
            locks: Arc::new(Locks::new("ns".into())),
            hold: Arc::new(real.hold()),
            presence: Arc::new(RingPeer::new(real.client(), peerings.ring().to_owned())),
            peerings,
            views: Views::new(),
            fence: Fence::new(false),
            labels: Arc::new(RingLabels { shard: "s".into(), drain: "d".into() }),
            hides_labels,
            marks: DeletionTimestamps::Kopf,
            metrics: Metrics::default(),
            budget: Budget::default(),
            upgraded: TaskTracker::new(),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        shared.gate.open(term());
        shared.knowledge.send_replace(sharding(&[things()]));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let upstream = service_fn({
            let seen = seen.clone();
            move |request: Request<Body>| {
                let (parts, body) = request.into_parts();
                let mut collected = Box::pin(body.collect());
                let body = collected.as_mut().now_or_never();
                let rest = body.is_none().then_some(collected);
                let body = body.and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let this = Seen { method: parts.method, uri: parts.uri, headers: parts.headers, body };
                let answer = respond(&this);
                seen.lock().push(this);
                async move {
                    if let Some(rest) = rest {
                        rest.await.map_err(|error| UpstreamError::Failed(error.into()))?;
                    }
                    let late = answer.as_ref().and_then(|answer| answer.as_ref().ok()?.extensions().get().copied());
                    if let Some(Late(time)) = late {
                        tokio::time::sleep(time).await;
                    }
                    match answer {
                        Some(answer) => answer,
                        None => std::future::pending().await,
                    }
                }
            }
        });
        let stack = BoxCloneService::new(stack(&shared, upstream));
        Self { shared, seen, stack, real }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.stack.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, uri: &str) -> Response<Body> {
        self.send(ask("GET", uri)).await
    }

    /// The same by kopf.
    async fn get_by_kopf(&self, uri: &str) -> Response<Body> {
        let mut request = ask("GET", uri);
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("kopf/1.45.2"));
        self.send(request).await
    }

    fn last(&self) -> Seen {
        self.seen.lock().last().unwrap().clone()
    }
}

/// On an answer: it comes so much later.
#[derive(Clone, Copy)]
struct Late(Duration);

fn ask(method: &str, uri: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri).header(header::AUTHORIZATION, "Bearer secret.1");
    request.body(empty()).unwrap()
}

fn ok() -> Response<Body> {
    json(full("{}"))
}

fn with(status: StatusCode) -> Response<Body> {
    let mut response = ok();
    *response.status_mut() = status;
    response
}

fn json(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn protobuf(body: Body) -> Response<Body> {
    let mut response = json(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    response
}

/// A watch that stays open, and says nothing.
fn silent() -> Response<Body> {
    json(boxed(StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BoxError>>())))
}

/// Written by a test where the connection to the API server ends.
const GONE: &str = "the connection is gone";

/// A response whose body a test writes as it goes.
fn streaming() -> (mpsc::UnboundedSender<&'static str>, impl Fn(&Seen) -> Response<Body>) {
    let (sender, receiver) = mpsc::unbounded::<&'static str>();
    let receiver = Mutex::new(Some(receiver));
    let respond = move |_: &Seen| {
        let chunks = receiver.lock().take().unwrap();
        let frames = chunks.map(|text| match text {
            GONE => Err(BodyError::from(BoxError::from(GONE))),
            text => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
        });
        json(boxed(StreamBody::new(frames)))
    };
    (sender, respond)
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_or_the_ring_only_requests_for_no_resource_pass() {
    let lab = Lab::new(|_| ok());
    lab.shared.gate.close();
    let refused = lab.get("/api/v1/pods").await;
    assert_eq!(
        (refused.status(), &refused.headers()[header::RETRY_AFTER]),
        (StatusCode::SERVICE_UNAVAILABLE, &HeaderValue::from(1))
    );
    for free in ["/version", "/apis", "/apis/x.io/v1", "/openapi/v3", "/readyz"] {
        assert_eq!(lab.get(free).await.status(), StatusCode::OK, "{free}");
    }
    lab.shared.gate.open(term());
    lab.shared.knowledge.send_replace(RingState::Unknown("there is no ClusterRing 'example'".into()));
    let refused = lab.get("/apis/x.io/v1/things").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(refused).await.contains("there is no ClusterRing 'example'"));
    assert!(lab.seen.lock().iter().all(|seen| seen.uri.path() != "/apis/x.io/v1/things"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_early_waits_for_the_lease() {
    let lab = Lab::new(|_| ok());
    lab.shared.gate.close();
    let (response, ()) = tokio::join!(lab.get("/api/v1/pods"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        lab.shared.gate.open(term());
    });
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn losing_the_lease_cuts_every_stream_that_is_no_watch_with_an_error() {
    for uri in ["/api/v1/pods", "/api/v1/namespaces/a/pods/b/log?follow=true", "/apis/x.io/v1/things"] {
        let (_open, respond) = streaming();
        let lab = Lab::new(respond);
        let mut body = lab.get(uri).await.into_body();
        assert!(body.frame().now_or_never().is_none(), "{uri}");
        lab.shared.gate.close();
        assert!(body.frame().await.unwrap().is_err(), "{uri}");
    }
}

#[tokio::test]
async fn a_request_that_the_api_server_does_not_answer_is_a_status() {
    let unreachable: Respond = Arc::new(|_| Err(UpstreamError::Unreachable("connection refused".into())));
    let response = Lab::failing(unreachable).get("/api/v1/pods").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    assert!(text(response).await.contains("connection refused"));
    let broken: Respond = Arc::new(|_| Err(UpstreamError::Failed("reset".into())));
    let response = Lab::failing(broken).get("/api/v1/pods").await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(
        !response.headers().contains_key(header::RETRY_AFTER),
        "it may have been done: no client should repeat it blindly"
    );
}

#[tokio::test]
async fn headers_of_the_connection_stay_and_all_others_pass() {
    let lab = Lab::new(|_| {
        let mut response = ok();
        for (name, value) in [("warning", "299 - x"), ("connection", "close"), ("audit-id", "1"), ("retry-after", "3")]
        {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response
    });
    let mut request = ask("GET", "/api/v1/pods");
    for (name, value) in
        [("connection", "keep-alive, x-hop"), ("x-hop", "1"), ("impersonate-user", "jane"), ("host", "localhost")]
    {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let response = lab.send(request).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "3");
    assert!(response.headers().contains_key("warning") && response.headers().contains_key("audit-id"));
    assert!(!response.headers().contains_key("connection"));
    let headers = lab.last().headers;
    assert_eq!(headers["impersonate-user"], "jane");
    assert!(["connection", "x-hop", "host"].iter().all(|name| !headers.contains_key(*name)));
}
