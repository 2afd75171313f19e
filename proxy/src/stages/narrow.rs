//! Narrows what a controller sees of the ring's resources to its shard, by the API server's own selectors.
//!
//! May change the query (the selector is joined with the client's) and `Accept` of requests for the ring's resources.
//! Of watches it also takes away the wish for compression, which would make their bytes unreadable, and asks for
//! bookmarks, which say how far a watch has come that nothing else happens on. Refuses what it can't narrow without doubt,
//! and what did not pass the stages before. Touches nothing else. Tells the tap about each narrowed list and watch.

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use tower::Service;

use super::{Next, admit::Admitted};
use crate::{
    body::Body,
    metrics::Metrics,
    request::{
        BadPath, BadRequest, Query, RequestInfo, Verb,
        representation::{opaque_body, refuse_cbor},
        selector::Selector,
    },
    status::Refusal,
};

/// On a request: what of the ring its answer will show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shows {
    /// Which resource.
    pub resource: GroupResource,
    /// In which namespace; `None`: in all.
    pub namespace: Option<String>,
    /// From where on, for a watch that goes on from a known state.
    pub from: Option<ResourceVersion>,
    /// Whether its client knows bookmarks.
    pub bookmarks: bool,
}

/// Parameters on whose first value it is decided here what an answer shows.
const DECIDES: [&str; 4] = ["watch", "resourceVersion", "sendInitialEvents", BOOKMARKS];

/// The parameter by which a client asks for bookmarks.
const BOOKMARKS: &str = "allowWatchBookmarks";

/// See the module.
#[derive(Clone, Debug)]
pub struct Narrow<S> {
    next: S,
    metrics: Metrics,
}

impl<S> Narrow<S> {
    /// Around the stages that send the request.
    pub fn new(next: S, metrics: Metrics) -> Self {
        Self { next, metrics }
    }

    fn narrow(&self, request: &mut Request<Body>) -> Result<(), Refusal> {
        let Some(mut info) = request.extensions().get::<RequestInfo>().cloned() else {
            return Err(Refusal::NotAShard);
        };
        let Some(resource) = info.resource else { return Ok(()) };
        let Some(admitted) = request.extensions().get::<Admitted>().cloned() else {
            return Err(Refusal::NotAShard);
        };
        if !admitted.policy.resources.contains(&resource.kind) {
            return Ok(());
        }
        if let Some(what) = opaque_body(request.headers()) {
            return Err(Refusal::OpaqueBody(what));
        }
        refuse_cbor(request.headers_mut());
        if !info.verb.selects() {
            return Ok(());
        }
        info.query.keep_first(&DECIDES);
        let bookmarks = info.query.flag(BOOKMARKS);
        if info.verb == Verb::Watch && !bookmarks {
            info.query.set(BOOKMARKS, "true");
        }
        let query = narrowed(&info.query, &admitted.term.selector)?;
        *request.uri_mut() = with_query(request.uri(), &query)?;
        self.metrics.narrowed();
        if info.verb == Verb::Watch {
            // Since v1.37 API servers compress a watch with initial events for whoever accepts that.
            request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            request.headers_mut().remove(header::SEC_WEBSOCKET_EXTENSIONS);
        }
        if info.verb != Verb::DeleteCollection {
            let from = (info.verb == Verb::Watch).then(|| start_of_watch(&info.query)).flatten();
            let (resource, namespace) = (resource.kind, resource.namespace);
            request.extensions_mut().insert(Shows { resource, namespace, from, bookmarks });
        }
        Ok(())
    }
}

/// The query with the client's selector and the shard's. Ours comes first: whatever a server might take for
/// the end of a selector, it has read ours by then.
fn narrowed(query: &Query, ours: &str) -> Result<String, Refusal> {
    let theirs = Selector::parse(query.first("labelSelector").unwrap_or_default())?;
    let joined = if theirs.is_empty() { ours.to_owned() } else { format!("{ours},{theirs}") };
    Ok(query.with("labelSelector", &joined))
}

/// A watch from a resourceVersion of its own goes on from there; one from none or 0, or with initial events,
/// first shows a state of any age.
pub(super) fn start_of_watch(query: &Query) -> Option<ResourceVersion> {
    let from: ResourceVersion = query.first("resourceVersion")?.parse().ok()?;
    (!from.is_zero() && !query.flag("sendInitialEvents")).then_some(from)
}

pub(super) fn with_query(uri: &Uri, query: &str) -> Result<Uri, Refusal> {
    let bad = || BadRequest::from(BadPath::Encoding(uri.to_string()));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path())).map_err(|_| bad())?);
    Uri::from_parts(parts).map_err(|_| bad().into())
}

impl<S: Next> Service<Request<Body>> for Narrow<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Refusal>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        match self.narrow(&mut request) {
            Ok(()) => Either::Left(self.next.call(request)),
            Err(refusal) => Either::Right(ready(Err(refusal))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    #[test]
    fn selectors_are_joined_with_ours_first() {
        let join = |text: &str| narrowed(&query(text), "s=me,!d");
        assert_eq!(join("limit=5").unwrap(), "limit=5&labelSelector=s%3Dme%2C%21d");
        assert_eq!(join("labelSelector=").unwrap(), "labelSelector=s%3Dme%2C%21d");
        assert_eq!(join("labelSelector=a+in+(b)").unwrap(), "labelSelector=s%3Dme%2C%21d%2Ca%20in%20%28b%29");
        assert_eq!(join("labelSelector=a%00%00!d").unwrap(), "labelSelector=s%3Dme%2C%21d%2Ca");
        assert_eq!(join("labelSelector=a&labelSelector=b").unwrap(), "labelSelector=s%3Dme%2C%21d%2Ca");
        assert!(matches!(join("labelSelector=a,"), Err(Refusal::Selector(_))));
    }

    #[test]
    fn only_a_watch_that_goes_on_from_a_state_starts_past_it() {
        let start = |text: &str| start_of_watch(&query(text)).map(|it| it.to_string());
        assert_eq!(start("resourceVersion=12"), Some("12".to_owned()));
        assert_eq!(start("resourceVersion=12&sendInitialEvents=false"), Some("12".to_owned()));
        for none in [
            "",
            "resourceVersion=",
            "resourceVersion=0",
            "resourceVersion=x",
            "resourceVersion=12&sendInitialEvents=true",
        ] {
            assert_eq!(start(none), None, "{none}");
        }
    }
}
