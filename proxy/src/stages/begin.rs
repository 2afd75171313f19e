//! Begins a watch from nothing by a list, where the API server has no streaming lists.
//!
//! `raise` asks for a watch from nothing as a streaming list, as only that says how old its state may be.
//! Kubernetes before 1.32, and 1.33 as it is installed, refuses that with 422. Such a watch is put together here: the objects of
//! a list of the present, page by page, then the bookmark that ends a streaming list, then a watch from there. Outside of this
//! stage it looks like a streaming list. Clients that ask for one themselves get the refusal: they know what to do then.
//!
//! In JSON alone, also where protobuf is preferred to it: for other forms, and for a watch by WebSocket, the refusal stays.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use serde_json::{Value, json};

use ringside_runtime::client;

use super::{
    Answered, Handler, OwnRequests,
    as_client::{collection, going_on, of_question, selected},
    context::{AdmittedRequest, RequestContext},
    list::List,
    narrow::with_query,
};
use crate::{
    body::{Body, BodyError, BoxError, empty},
    budget::Budget,
    frames::Frames,
    request::{
        Query, Resource,
        representation::{Form, JSON, prefer_json},
    },
    status::Refusal,
    upstream::UpstreamError,
};

/// Objects in a page: as many as most clients ask for.
const PAGE: &str = "500";

/// The longest page that is read.
const MAX_PAGE: usize = 64 << 20;

/// What its client is told who has half a list.
const LIST_BROKE_OFF: &str = "ringside-proxy: the list that this watch began with broke off: list again";

const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Begins a watch by a list, where the API server has no streaming lists.
#[derive(Clone)]
pub struct Begin<S> {
    next: S,
    own: OwnRequests,
}

impl<S> Begin<S> {
    /// Around the stage that sends the request.
    pub fn new(next: S, own: OwnRequests) -> Self {
        Self { next, own }
    }
}

impl<S: Handler> Handler for Begin<S> {
    fn call(&self, asked: AdmittedRequest) -> Answered {
        let Some(watch) = Watch::of(&asked, self.own.clone()) else { return self.next.call(asked) };
        let answered = self.next.call(asked);
        async move {
            let answer = answered.await?;
            if answer.status() == StatusCode::UNPROCESSABLE_ENTITY { watch.begin().await } else { Ok(answer) }
        }
        .boxed()
    }
}

/// A watch that can be put together.
struct Watch {
    own: OwnRequests,
    uri: Uri,
    headers: HeaderMap,
    budget: Budget,
    resource: Resource,
    /// What it selects.
    selects: Query,
    /// In what form its list is asked for.
    accept: &'static str,
}

/// What comes next.
enum Then {
    Page { token: String },
    Rest { version: String },
}

impl Watch {
    fn of(AdmittedRequest { request, context }: &AdmittedRequest, own: OwnRequests) -> Option<Self> {
        let RequestContext { info, origin, is_from_nothing, .. } = context;
        if !is_from_nothing || info.upgrade {
            return None;
        }
        let (uri, mut headers) = (request.uri().clone(), request.headers().clone());
        if !prefer_json(&mut headers, "protobuf") {
            return None;
        }
        let accept = match Form::negotiated(&headers) {
            Form::Object => JSON,
            Form::Metadata => METADATA_LIST,
            Form::Table => return None,
        };
        let query = Query::parse(uri.query().unwrap_or_default()).ok()?;
        let selects = selected(info, &query)?;
        let (budget, resource) = (origin.budget.clone(), info.resource.clone());
        Some(Self { own, uri, headers, budget, resource, selects, accept })
    }

    /// Answers once the API server has listed the first objects: what it says to that is said to the client.
    async fn begin(self) -> Result<Response<Body>, Refusal> {
        let answer = self.list(None)?.await?;
        if answer.status() != StatusCode::OK {
            return Ok(answer);
        }
        let first =
            page(&self.budget, answer).await.map_err(|reason| Refusal::Upstream(UpstreamError::Failed(reason)))?;
        let ListPage { frames, then } = first;
        let rest = stream::unfold((self, Some(then)), |(watch, then)| async move {
            let (frames, then) = match then {
                None => return None,
                Some(Then::Page { token }) => match watch.later_page(&token).await {
                    Ok(ListPage { frames, then }) => (only(frames), Some(then)),
                    Err(reason) => {
                        tracing::info!(resource = %watch.resource.kind, %reason, "a watch from nothing ends within its list");
                        (only(Frames::json().expired(LIST_BROKE_OFF).unwrap_or_default()), None)
                    }
                },
                Some(Then::Rest { version }) => (watch.rest(&version).await, None),
            };
            Some((frames, (watch, then)))
        });
        let body = StreamBody::new(only(frames).chain(rest.flatten())).boxed_unsync();
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        Ok(response)
    }

    /// Asks for a page of the list.
    fn list(&self, token: Option<&str>) -> Result<Answered, Refusal> {
        let (resource, mut query) = (&self.resource, self.selects.clone());
        query.set("limit", PAGE);
        if let Some(token) = token {
            query.set("continue", token);
        }
        let path = collection(&resource.kind, &resource.version, resource.namespace.as_deref());
        let path = path.parse().map_err(|_| Refusal::NotAShard)?;
        let mut request = Request::new(empty());
        *request.uri_mut() = with_query(&path, &query.to_string())?;
        *request.headers_mut() = of_question(&self.headers);
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(self.accept));
        Ok((self.own)(request))
    }

    /// A page behind the first one.
    async fn later_page(&self, token: &str) -> Result<ListPage, BoxError> {
        let answer = self.list(Some(token))?.await?;
        match answer.status() {
            StatusCode::OK => page(&self.budget, answer).await,
            status => Err(format!("the API server answered a page with {status}").into()),
        }
    }

    /// Asks for what happens from there on.
    fn going_on(&self, version: &str) -> Result<Answered, Refusal> {
        let mut request = Request::new(empty());
        *request.uri_mut() = going_on(&self.uri, version).ok_or(Refusal::NotAShard)?;
        *request.headers_mut() = self.headers.clone();
        request.extensions_mut().insert(client::Watch);
        Ok((self.own)(request))
    }

    /// What the watch says from there on. Where the API server does not begin it, the watch ends between two events, and its
    /// client opens the next.
    async fn rest(&self, version: &str) -> Pieces {
        let answer = match self.going_on(version) {
            Ok(asked) => asked.await,
            Err(refusal) => Err(refusal),
        };
        let reason = match answer {
            Ok(answer) if answer.status() == StatusCode::OK => {
                return StreamExt::boxed(BodyStream::new(answer.into_body()));
            }
            Ok(answer) => answer.status().to_string(),
            Err(refusal) => refusal.to_string(),
        };
        let resource = &self.resource.kind;
        tracing::info!(%resource, %reason, "a watch from nothing ends behind its list: the API server does not go on");
        StreamExt::boxed(stream::empty())
    }
}

/// The events of a page, and what comes behind it.
struct ListPage {
    frames: Bytes,
    then: Then,
}

async fn page(budget: &Budget, answer: Response<Body>) -> Result<ListPage, BoxError> {
    let bytes = budget.collect(answer.into_body(), MAX_PAGE).await?;
    let list: List<Value> = serde_json::from_slice(&bytes)?;
    let kind = list.kind.strip_suffix("List").unwrap_or(&list.kind);
    let mut frames = Vec::with_capacity(bytes.len());
    for mut object in list.items.into_iter().flatten() {
        // The items of a list may have neither.
        if let Value::Object(fields) = &mut object {
            fields.entry("apiVersion").or_insert_with(|| json!(list.api_version));
            fields.entry("kind").or_insert_with(|| json!(kind));
        }
        event(&mut frames, "ADDED", &object);
    }
    let then = match list.metadata.r#continue.filter(|token| !token.is_empty()) {
        Some(token) => Then::Page { token },
        None => {
            let version = list.metadata.resource_version;
            let end = json!({
                "kind": kind, "apiVersion": list.api_version,
                "metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}},
            });
            event(&mut frames, "BOOKMARK", &end);
            Then::Rest { version }
        }
    };
    drop(bytes);
    let frames = budget.hold(frames).ok_or("there is no room for a page of its list")?;
    Ok(ListPage { frames, then })
}

fn only(frames: Bytes) -> Pieces {
    StreamExt::boxed(stream::iter([Ok(Frame::data(frames))]))
}

type Pieces = stream::BoxStream<'static, Result<Frame<Bytes>, BodyError>>;

fn event(frames: &mut Vec<u8>, kind: &str, object: &Value) {
    frames.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").as_bytes());
}
