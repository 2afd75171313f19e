//! Lists of the proxy's own that are asked for as the client of a request: it has its rights, and sees no more than it may.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ringside_ring::cluster_ring::GroupResource;

use super::{OwnRequests, context::AdmittedRequest, narrow::with_query};
use crate::{
    body::{Body, empty},
    budget::Budget,
    request::{Query, RequestInfo, Resource},
    status::Refusal,
    views::Scope,
};

/// Accepts a list of metadata, or of whole objects from API servers that know no such list.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// How lists are asked for as the client of a watch.
#[derive(Clone)]
pub(super) struct AsClient {
    own: OwnRequests,
    /// What answers draw from.
    pub(super) budget: Budget,
    /// What is asked with, up to the URI.
    pub(super) request: Request<()>,
    /// What the watch shows.
    pub(super) scope: Arc<Scope>,
}

impl AsClient {
    /// As the client that sends this watch.
    pub(super) fn of(
        AdmittedRequest { request, context }: &AdmittedRequest,
        scope: &Arc<Scope>,
        own: OwnRequests,
    ) -> Self {
        Self::with(request.headers(), scope, (own, context.origin.budget.clone()))
    }

    /// As the client that sends these headers.
    pub(super) fn with(headers: &HeaderMap, scope: &Arc<Scope>, (own, budget): (OwnRequests, Budget)) -> Self {
        Self { own, budget, request: list_as_client(headers), scope: Arc::clone(scope) }
    }

    /// Asks for what a query selects of the watch's resource; of metadata, unless it `accepts` something else. None where that makes
    /// no URI.
    pub(super) async fn list(
        &self,
        namespace: Option<&str>,
        query: &Query,
        accepts: Option<&HeaderValue>,
    ) -> Option<Result<Response<Body>, Refusal>> {
        let path = collection(&self.scope.resource, &self.scope.version, namespace).parse().ok()?;
        let mut request = self.request.clone().map(|()| empty());
        *request.uri_mut() = with_query(&path, &query.to_string()).ok()?;
        if let Some(accepts) = accepts {
            request.headers_mut().insert(header::ACCEPT, accepts.clone());
        }
        Some((self.own)(request).await)
    }
}

/// A list of metadata, up to what is listed, which is asked for as the client that sends these headers.
pub(super) fn list_as_client(headers: &HeaderMap) -> Request<()> {
    let mut list = Request::new(());
    *list.headers_mut() = of_question(headers);
    list
}

/// The headers of such a list: without those that say something of a body, since it has none.
pub(super) fn of_question(of_client: &HeaderMap) -> HeaderMap {
    let mut headers = of_client.clone();
    for about_body in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::EXPECT] {
        headers.remove(about_body);
    }
    headers.insert(header::ACCEPT, HeaderValue::from_static(METADATA));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

/// What a list selects that shows what a watch does, which is narrowed to the shard.
pub(super) fn selected(info: &RequestInfo, narrowed: &Query) -> Option<Query> {
    let mut query = Query::default();
    query.set("labelSelector", narrowed.first("labelSelector")?);
    if let Some(fields) = fields_of(&info.resource, narrowed) {
        query.set("fieldSelector", &fields);
    }
    Some(query)
}

/// The fields that a list or watch selects by: the name in its path, or else what its query says.
pub(super) fn fields_of(resource: &Resource, query: &Query) -> Option<String> {
    let named = resource.name.as_ref().map(|name| format!("metadata.name={name}"));
    named.or_else(|| query.first("fieldSelector").map(str::to_owned))
}

/// What a watch is asked for by that goes on from there.
pub(super) fn going_on(uri: &Uri, from: &str) -> Option<Uri> {
    let mut query = Query::parse(uri.query().unwrap_or_default()).ok()?;
    query.remove(&["sendInitialEvents", "resourceVersionMatch"]);
    query.set("resourceVersion", from);
    with_query(uri, &query.to_string()).ok()
}

/// The path of a resource's objects.
pub(super) fn collection(resource: &GroupResource, version: &str, namespace: Option<&str>) -> String {
    let encode = |part: &str| utf8_percent_encode(part, NON_ALPHANUMERIC).to_string();
    let (group, version) = (&resource.group, encode(version));
    let api = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{}/{version}", encode(group)) };
    let namespace = namespace.map(|name| format!("/namespaces/{}", encode(name)));
    format!("{api}{}/{}", namespace.unwrap_or_default(), encode(&resource.resource))
}
