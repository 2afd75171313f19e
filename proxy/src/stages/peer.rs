//! Shows the controller kopf's peering objects without the other shards of its ring, and keeps what it says of itself on them
//! here.
//!
//! Only in JSON, as kopf asks for them, and only what kopf asks: reads, watches, and merge patches of nothing but the
//! `status`. All else passes: a client that asks for a table of them sees the real ones. What can't be read is not
//! changed, and then the controller sees a peer too many and pauses.

use std::{collections::HashMap, io, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::{
    codec::{FramedRead, LinesCodec},
    io::StreamReader,
};

use super::{Answered, Handler, context::AdmittedRequest, whole};
use crate::{
    access::credentials::is_foreign,
    body::{Body, BodyError, BoxError, empty, full},
    budget::{Budget, NoRoom},
    frames::MAX_KEPT,
    metadata::MAX_OBJECT,
    peering::{Collection, PeeringObject, Peerings, RingPeer},
    request::{
        RequestInfo, Verb,
        representation::{Encoding, Form, JSON, essence, is_compressed},
    },
    status::Refusal,
};

/// Hides the ring's other shards in kopf's peering objects, and keeps the controller's own status.
#[derive(Clone, Debug)]
pub struct Peers<S> {
    next: S,
    peerings: Arc<Peerings>,
    presence: Arc<RingPeer>,
}

impl<S> Peers<S> {
    /// Around the stages for everything else.
    pub fn new(next: S, peerings: Arc<Peerings>, presence: Arc<RingPeer>) -> Self {
        Self { next, peerings, presence }
    }
}

/// What is asked about peering objects.
enum PeeringRequest {
    Read,
    Watch,
    /// Of one that is named.
    Patch(PeeringObject),
}

fn asked(info: &RequestInfo, headers: &HeaderMap) -> Option<(Collection, PeeringRequest)> {
    let resource = &info.resource;
    let of = Collection::of(resource)?;
    let in_json = Encoding::negotiated(headers) == Encoding::Json && Form::negotiated(headers) == Form::Object;
    let content = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).map(essence);
    let merges = content.as_deref() == Some("application/merge-patch+json") && !is_compressed(headers);
    let asked = match info.verb {
        _ if !in_json || info.upgrade => return None,
        Verb::Get | Verb::List => PeeringRequest::Read,
        Verb::Watch => PeeringRequest::Watch,
        Verb::Patch if merges => PeeringRequest::Patch(of.place(resource.namespace.clone(), resource.name.clone()?)),
        _ => return None,
    };
    Some((of, asked))
}

impl<S: Handler> Handler for Peers<S> {
    fn call(&self, request: AdmittedRequest) -> Answered {
        let headers = request.request.headers();
        let asked = if is_foreign(headers) { None } else { asked(&request.context.info, headers) };
        let Some((of, asked)) = asked else { return self.next.call(request) };
        let this = self.clone();
        match asked {
            PeeringRequest::Read => async move { this.read(&of, request).await }.boxed(),
            PeeringRequest::Watch => async move { this.watch(of, request).await }.boxed(),
            PeeringRequest::Patch(place) => async move { this.patch(&of, &place, request).await }.boxed(),
        }
    }
}

impl<S: Handler> Peers<S> {
    async fn read(self, of: &Collection, mut request: AdmittedRequest) -> Result<Response<Body>, Refusal> {
        readable(request.request.headers_mut());
        let budget = request.context.origin.budget.clone();
        let response = self.next.call(request).await?;
        shown((&self.peerings, &budget), of, response).await
    }

    async fn watch(self, of: Collection, mut request: AdmittedRequest) -> Result<Response<Body>, Refusal> {
        readable(request.request.headers_mut());
        let response = self.next.call(request).await?;
        if !is_json(&response) {
            return Ok(response);
        }
        Ok(response.map(|body| {
            let events = Events { peerings: self.peerings.clone(), of, last: HashMap::new() };
            StreamBody::new(events.follow(body).map_ok(Frame::data)).boxed_unsync()
        }))
    }

    /// Takes up what the controller says of itself; leaves the rest to the API server.
    async fn patch(
        self,
        of: &Collection,
        place: &PeeringObject,
        AdmittedRequest { request, context }: AdmittedRequest,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = request.into_parts();
        let budget = context.origin.budget.clone();
        let bytes = whole(&budget, body).await?;
        let send = |parts, body| {
            let request = Request::from_parts(parts, body);
            self.next.call(AdmittedRequest { request, context })
        };
        let Some(status) = of_status(&bytes) else { return send(parts, full(bytes)).await };
        let as_sent = parts.headers.clone();
        readable(&mut parts.headers);
        // First of all the ring is there.
        let mut written = None;
        if let Some(peer) = Peerings::said(&status) {
            match self.presence.say(place, &peer).await {
                // The API server says so itself: kopf does without, unless it was told to wait.
                Err(error) if error.is_absent() => {
                    read_instead(&mut parts, place);
                    let response = send(parts, empty()).await?;
                    return shown((&self.peerings, &budget), of, response).await;
                }
                said => written = Some(said?),
            }
        }
        let Ok(left) = self.peerings.say(place, status) else {
            parts.headers = as_sent;
            return send(parts, full(bytes)).await;
        };
        let written = written.and_then(|written| serde_json::to_value(written).ok());
        if let (Some(mut object), true) = (written, left.is_empty()) {
            // What the ring's own write was answered with, as nothing else is to be asked.
            self.peerings.show(place, &mut object);
            return Ok(json_response(&object));
        }
        let body = if left.is_empty() {
            read_instead(&mut parts, place);
            empty()
        } else {
            parts.headers.remove(header::CONTENT_LENGTH);
            full(json!({"status": left}).to_string())
        };
        let response = send(parts, body).await?;
        shown((&self.peerings, &budget), of, response).await
    }
}

/// In a form that can be read here, and not compressed.
fn readable(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT, HeaderValue::from_static(JSON));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

fn json_response(object: &Value) -> Response<Body> {
    let mut response = Response::new(full(object.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// A write of which nothing is left, and for which the ring wrote nothing, as a read of what it would have answered with: the
/// whole object, for which everybody who follows peers has the permission.
fn read_instead(parts: &mut Parts, place: &PeeringObject) {
    parts.method = Method::GET;
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    if let Ok(uri) = place.path().parse() {
        parts.uri = uri;
    }
}

/// The `status` in a patch of nothing else.
fn of_status(patch: &Bytes) -> Option<Map<String, Value>> {
    let mut patch: Map<String, Value> = serde_json::from_slice(patch).ok()?;
    match patch.remove("status") {
        Some(Value::Object(status)) if patch.is_empty() => Some(status),
        _ => None,
    }
}

fn is_json(response: &Response<Body>) -> bool {
    let content = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).map(essence);
    response.status().is_success() && content.as_deref() == Some(JSON) && !is_compressed(response.headers())
}

/// An answer as the controller sees it.
async fn shown(
    (peerings, budget): (&Peerings, &Budget),
    of: &Collection,
    response: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    if !is_json(&response) {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let (read, body) = budget.peek(body, MAX_OBJECT).await;
    // As it came it would show other operators, and the controller would pause.
    let read = read.map_err(|NoRoom| Refusal::NoRoom)?;
    let Some(mut answer) = read.and_then(|read| serde_json::from_slice::<Value>(&read).ok()) else {
        return Ok(Response::from_parts(head, body));
    };
    peerings.show_all(of, &mut answer);
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, full(answer.to_string())))
}

/// The events of a watch as the controller sees them, and those that come of what it says of itself: kopf looks again at its
/// peers when its own entry changes.
struct Events {
    peerings: Arc<Peerings>,
    of: Collection,
    /// The real objects, and each as it was shown the last time.
    last: HashMap<PeeringObject, (Value, Value)>,
}

impl Events {
    fn follow(self, body: Body) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
        let reader = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
        let lines = FramedRead::new(reader, LinesCodec::new_with_max_length(MAX_KEPT));
        let changes = self.peerings.changes();
        stream::unfold(Some((self, lines, changes)), |state| async move {
            let (mut events, mut lines, mut changes) = state?;
            let (said, goes_on) = tokio::select! {
                line = lines.next() => match line? {
                    Ok(line) => (Ok(events.event(line)), true),
                    Err(error) => (Err(BodyError::from(BoxError::from(error))), false),
                },
                said = events.said(&mut changes) => (Ok(said), true),
            };
            Some((said, goes_on.then_some((events, lines, changes))))
        })
    }

    /// An event of the API server.
    fn event(&mut self, line: String) -> Bytes {
        let Ok(mut event) = serde_json::from_str::<Value>(&line) else { return (line + "\n").into() };
        let Some(place) = self.of.place_of(&event["object"]) else { return (line + "\n").into() };
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                let real = event["object"].clone();
                self.peerings.show(&place, &mut event["object"]);
                self.last.insert(place, (real, event["object"].clone()));
            }
            Some("DELETED") => drop(self.last.remove(&place)),
            _ => return (line + "\n").into(),
        }
        format!("{event}\n").into()
    }

    /// Events of what the controller says of itself, when it has.
    async fn said(&mut self, changes: &mut watch::Receiver<()>) -> Bytes {
        loop {
            // Its sender lives in what all watches share.
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            let mut events = String::new();
            for (place, (real, before)) in &mut self.last {
                let mut now = real.clone();
                self.peerings.show(place, &mut now);
                if now != *before {
                    events += &format!("{}\n", json!({"type": "MODIFIED", "object": now}));
                    *before = now;
                }
            }
            if !events.is_empty() {
                return events.into();
            }
        }
    }
}
