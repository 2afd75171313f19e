//! An API server that knows as much as one proxy needs: who asks, its Lease, a ring, and things to watch.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

/// What it knows, and what was asked of it.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) ring: watch::Sender<Option<Value>>,
    pub(crate) may_read_ring: bool,
    pub(crate) lease: Option<Value>,
    pub(crate) requests: Vec<String>,
    /// Whether those who have a [`client`] don't reach it.
    pub(crate) away: watch::Sender<bool>,
    version: u64,
}

pub(crate) type Shared = Arc<Mutex<Known>>;

/// Starts it, and writes a kubeconfig for it.
pub(crate) async fn start(kubeconfig: &Path) -> Shared {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    write_kubeconfig(kubeconfig, listener.local_addr().unwrap());
    let known = Shared::new(Mutex::new(Known { may_read_ring: true, ..Known::default() }));
    let app = Router::new().fallback(answer).with_state(known.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    known
}

/// A client without a connection, for a clock that is paused.
pub(crate) fn client(known: &Shared) -> Client {
    let known = known.clone();
    let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let known = known.clone();
        async move {
            if *known.lock().away.borrow() {
                return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            }
            request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer upstream-token"));
            Ok(answer(State(known), request.map(Body::new)).await)
        }
    });
    Client::new(service, "ns")
}

pub(crate) fn write_kubeconfig(path: &Path, server: SocketAddr) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{server}")}}],
        "users": [{"name": "u", "user": {"token": "upstream-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
    });
    std::fs::write(path, config.to_string()).unwrap();
}

pub(crate) fn ring(resource: &str) -> Value {
    json!({
        "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
        "metadata": {"name": "example", "uid": "r", "resourceVersion": "2"},
        "spec": {"resources": [{"group": "x.io", "resource": resource}]},
    })
}

async fn answer(State(known): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let token = parts.headers.get("authorization").and_then(|it| it.to_str().ok()).unwrap_or_default();
    if token != "Bearer upstream-token" {
        return failure(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    let mut known = known.lock();
    known.requests.push(format!("{} {}", parts.method, parts.uri));
    let query = parts.uri.query().unwrap_or_default();
    let watches = query.split('&').any(|pair| pair.starts_with("watch="));
    let path = parts.uri.path();
    match path.rsplit('/').next().unwrap_or_default() {
        "selfsubjectreviews" => created(json!({"metadata": {}, "status": {"userInfo": {"extra": {
            "authentication.kubernetes.io/pod-name": ["shard-0"],
            "authentication.kubernetes.io/pod-uid": ["u1"],
        }}}})),
        "clusterrings" if !known.may_read_ring => failure(StatusCode::FORBIDDEN, "Forbidden"),
        "clusterrings" if watches => events(rings_as_they_come(known.ring.subscribe()), &known.away),
        "clusterrings" => {
            let items: Vec<_> = known.ring.borrow().iter().cloned().collect();
            list(&json!(items))
        }
        "things" if watches => events(stream::pending(), &known.away),
        "things" => list(&json!([])),
        "apis" => {
            let version = json!({"groupVersion": "x.io/v1", "version": "v1"});
            Json(json!({"groups": [{"name": "x.io", "versions": [version]}]})).into_response()
        }
        "v1" => {
            let thing = json!({"name": "things", "singularName": "", "kind": "Thing", "namespaced": true, "verbs": []});
            Json(json!({"groupVersion": "x.io/v1", "resources": [thing]})).into_response()
        }
        "version" => Json(json!({"major": "1"})).into_response(),
        _ if path.contains("/leases") => known.lease(&parts.method, &body),
        _ => failure(StatusCode::NOT_FOUND, "NotFound"),
    }
}

impl Known {
    fn lease(&mut self, method: &Method, body: &Bytes) -> Response {
        if *method == Method::GET {
            return self
                .lease
                .clone()
                .map_or_else(|| failure(StatusCode::NOT_FOUND, "NotFound"), |it| Json(it).into_response());
        }
        self.version += 1;
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        created(lease)
    }
}

/// Streams events until the server is out of reach.
fn events(events: impl Stream<Item = Bytes> + Send + 'static, away: &watch::Sender<bool>) -> Response {
    let mut away = away.subscribe();
    let gone = async move { away.wait_for(|away| *away).await.is_ok() };
    Body::from_stream(events.map(io::Result::Ok).take_until(Box::pin(gone))).into_response()
}

fn rings_as_they_come(mut rings: watch::Receiver<Option<Value>>) -> impl Stream<Item = Bytes> {
    rings.mark_unchanged();
    stream::unfold(rings, |mut rings| async move {
        rings.changed().await.ok()?;
        let event = json!({"type": "ADDED", "object": rings.borrow_and_update().clone()});
        Some((Bytes::from(format!("{event}\n")), rings))
    })
}

fn list(items: &Value) -> Response {
    Json(json!({"metadata": {"resourceVersion": "1"}, "items": items})).into_response()
}

fn created(object: Value) -> Response {
    (StatusCode::CREATED, Json(object)).into_response()
}

fn failure(code: StatusCode, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16()});
    (code, Json(status)).into_response()
}
