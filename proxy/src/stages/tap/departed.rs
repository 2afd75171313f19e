//! Finds out what has left while an API server could not say it: of what was this shard's when the client's watch had come so
//! far, all that is not its own any more.
//!
//! An API server that was restarted sends no events of before. But etcd has what was there then, for as long as it is not
//! compacted (five minutes by default), so two lists in pages tell: of then, and of now. Names are kept meanwhile, and what
//! left.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use ringside_ring::ResourceVersion;
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    body::empty,
    frames::Deleted,
    request::{
        Query, RequestInfo, Verb,
        representation::{Form, JSON},
    },
    stages::{
        Next,
        narrow::with_query,
        resume::{collection, of_question},
    },
    views::Scope,
};

/// Objects in one page.
const PAGE: usize = 100;
/// The longest page that is read: 320 KiB an object. Some may be larger; where so many are, nothing is found out.
const MAX_PAGE: usize = 32 << 20;

/// What left, and up to when that is known.
pub(super) struct Departed {
    pub(super) events: Vec<Deleted>,
    pub(super) until: ResourceVersion,
}

/// Why it is not known.
#[derive(Debug)]
pub(super) enum Unknown {
    /// The API server may say it later.
    NoAnswer,
    /// It has forgotten that state.
    Forgotten,
    /// The client may not ask, or what it gets is no list that can be read.
    Refused,
}

/// How to ask for lists, as whoever watches.
pub(super) struct Looks {
    request: Request<()>,
    scope: Arc<Scope>,
    /// What the watch selects.
    query: Query,
    /// In what form its client wants what left: of whole objects in JSON all is asked for.
    accept: HeaderValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    kind: String,
    api_version: String,
    metadata: ListMeta,
    /// API servers write an empty list as none.
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: Option<String>,
    name: String,
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Metadata {
    fn of(object: &Value) -> Result<Self, Unknown> {
        Self::deserialize(&object["metadata"]).map_err(|_| Unknown::Refused)
    }

    /// Another object of a name is none that has left: most clients know objects by their names (`missed`).
    fn key(self) -> (Option<String>, String) {
        (self.namespace, self.name)
    }
}

impl Looks {
    /// As the client that sends this watch, which is narrowed to the shard.
    pub(super) fn of(request: &Request<()>, scope: &Arc<Scope>, in_json: bool) -> Option<Self> {
        let info = request.extensions().get::<RequestInfo>()?.clone();
        let narrowed = Query::parse(request.uri().query().unwrap_or_default()).ok()?;
        let named = info.resource.as_ref()?.name.as_ref().map(|name| format!("metadata.name={name}"));
        let mut query = Query::default();
        query.set("labelSelector", narrowed.first("labelSelector")?);
        if let Some(fields) = named.as_deref().or_else(|| narrowed.first("fieldSelector")) {
            query.set("fieldSelector", fields);
        }
        let mut asks = Request::new(());
        *asks.headers_mut() = of_question(request.headers());
        asks.extensions_mut().insert(RequestInfo { verb: Verb::List, upgrade: false, ..info });
        let is_whole = in_json && Form::negotiated(request.headers()) == Form::Object;
        let accept = if is_whole { HeaderValue::from_static(JSON) } else { asks.headers()[header::ACCEPT].clone() };
        Some(Self { request: asks, scope: Arc::clone(scope), query, accept })
    }

    /// What has left since then. Where nobody has the state of then any more that is not known, and nothing is told.
    pub(super) async fn since<S: Next>(&self, next: &mut S, then: &ResourceVersion) -> Result<Departed, Unknown> {
        // What is asked for as metadata has lost its kind.
        let first = self.page(next, &[("limit", "1")], &HeaderValue::from_static(JSON)).await?;
        let until: ResourceVersion = first.metadata.resource_version.parse().map_err(|_| Unknown::Refused)?;
        if until < *then {
            // Another etcd, or one that was restored.
            return Err(Unknown::Refused);
        }
        let mut here = HashSet::new();
        let of_here = |object: Value| {
            here.insert(Metadata::of(&object)?.key());
            Ok(())
        };
        match self.all(next, &until, &self.request.headers()[header::ACCEPT], of_here).await {
            // So slow that it is to be begun again.
            Err(Unknown::Forgotten) => return Err(Unknown::NoAnswer),
            answer => answer?,
        }
        let kind = first.kind.strip_suffix("List").unwrap_or(&first.kind);
        let mut events = Vec::new();
        let is_whole = self.accept == JSON;
        let left = |object: Value| {
            let Metadata { namespace, name, uid, labels } = Metadata::of(&object)?;
            let key = (namespace, name);
            if !here.contains(&key) {
                let ((namespace, name), whole) = (key, is_whole.then_some(object));
                let (api_version, kind, resource_version) =
                    (first.api_version.clone(), kind.to_owned(), until.to_string());
                events.push(Deleted { api_version, kind, namespace, name, uid, labels, resource_version, whole });
            }
            Ok(())
        };
        match self.all(next, then, &self.accept, left).await {
            Err(Unknown::Forgotten) => {
                tracing::info!(resource = %self.scope.resource, "nobody knows what left meanwhile: the API server has forgotten what was there");
            }
            answer => answer?,
        }
        Ok(Departed { events, until })
    }

    /// Each object of that state.
    async fn all<S: Next>(
        &self,
        next: &mut S,
        at: &ResourceVersion,
        accept: &HeaderValue,
        mut each: impl FnMut(Value) -> Result<(), Unknown>,
    ) -> Result<(), Unknown> {
        let (at, limit) = (at.to_string(), PAGE.to_string());
        let mut rest: Option<String> = None;
        loop {
            let from = match &rest {
                None => vec![("resourceVersion", &*at), ("resourceVersionMatch", "Exact")],
                Some(rest) => vec![("continue", &**rest)],
            };
            let query = [vec![("limit", &*limit)], from].concat();
            let page = self.page(next, &query, accept).await?;
            page.items.into_iter().flatten().try_for_each(&mut each)?;
            rest = page.metadata.r#continue.filter(|rest| !rest.is_empty());
            if rest.is_none() {
                return Ok(());
            }
        }
    }

    async fn page<S: Next>(&self, next: &mut S, query: &[(&str, &str)], accept: &HeaderValue) -> Result<List, Unknown> {
        let Scope { resource, version, namespace, .. } = &*self.scope;
        let mut whole = self.query.clone();
        query.iter().for_each(|(key, value)| whole.set(key, value));
        let path = collection(resource, version, namespace.as_deref());
        let mut request = self.request.clone().map(|()| empty());
        let uri = path.parse().ok().and_then(|path| with_query(&path, &whole.to_string()).ok());
        *request.uri_mut() = uri.ok_or(Unknown::Refused)?;
        request.headers_mut().insert(header::ACCEPT, accept.clone());
        let answer = next.clone().oneshot(request).await.map_err(|_| Unknown::NoAnswer)?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::GONE => return Err(Unknown::Forgotten),
            StatusCode::TOO_MANY_REQUESTS => return Err(Unknown::NoAnswer),
            status if status.is_client_error() => return Err(Unknown::Refused),
            _ => return Err(Unknown::NoAnswer),
        }
        let body = Limited::new(answer.into_body(), MAX_PAGE)
            .collect()
            .await
            .map_err(|error| if error.is::<LengthLimitError>() { Unknown::Refused } else { Unknown::NoAnswer })?;
        serde_json::from_slice(&body.to_bytes()).map_err(|_| Unknown::Refused)
    }
}
