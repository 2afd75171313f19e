//! Tells a client what it has missed: objects that moved away between the end of one watch and the beginning of the next.
//!
//! A client that lists in between, and does not notice what is gone from its list (kopf), would work on them for ever.
//! Whoever does notice loses nothing by a `DELETED` of what it does not know. The API server is asked first whether the
//! object is this shard's again where the watch begins, or another one of its name is: then the list had that, and most clients
//! know objects by their names (client-go's stores), so they would forget it.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use ringside_ring::ResourceVersion;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    body::{Body, empty},
    frames::Deleted,
    request::{Query, RequestInfo, Verb},
    stages::{
        Next,
        admit::Admitted,
        narrow::with_query,
        resume::{collection, of_question},
    },
    views::{Leaving, Missed, Scope},
};

/// How many questions are under way at a time.
const AT_A_TIME: usize = 8;
/// The longest answer that is read: metadata of one object, or the object where that is not known.
const MAX_ANSWER: usize = 8 << 20;

/// How to ask about single objects, as whoever watches.
pub(super) struct Asks {
    request: Request<()>,
    scope: Scope,
    selector: String,
}

impl Asks {
    /// As the client that sends this watch.
    pub(super) fn of(request: &Request<Body>, scope: &Scope) -> Option<Self> {
        let selector = request.extensions().get::<Admitted>()?.term.selector.clone();
        let info = request.extensions().get::<RequestInfo>()?.clone();
        let mut asks = Request::new(());
        *asks.headers_mut() = of_question(request.headers());
        asks.extensions_mut().insert(RequestInfo { verb: Verb::List, upgrade: false, ..info });
        Some(Self { request: asks, scope: scope.clone(), selector: selector.to_string() })
    }

    /// The events that the client has to be sent first; `None` where the API server does not say.
    pub(super) async fn deleted<S: Next>(&self, next: S, missed: &Missed) -> Option<Vec<Deleted>> {
        let questions = self.questions(&next, missed);
        drop(next);
        let answers: Vec<_> = stream::iter(questions).buffered(AT_A_TIME).collect().await;
        let events: Option<Vec<_>> = answers.into_iter().collect();
        Some(events?.into_iter().flatten().collect())
    }

    /// Each with the event, unless what has the name is this shard's; `None` where the API server does not say.
    fn questions<'a, S: Next>(&'a self, next: &S, missed: &'a Missed) -> Vec<BoxFuture<'a, Option<Option<Deleted>>>> {
        let from = missed.from.as_ref();
        let ask = |object: &'a Arc<Leaving>| {
            let next = next.clone();
            async move {
                let ours = self.is_ours(next, object, from).await?;
                Some((!ours).then(|| self.event(object, from)))
            }
            .boxed()
        };
        missed.objects.iter().map(ask).collect()
    }

    async fn is_ours<S: Next>(&self, next: S, object: &Leaving, from: Option<&ResourceVersion>) -> Option<bool> {
        let mut query = Query::default();
        query.set("labelSelector", &self.selector);
        query.set("fieldSelector", &format!("metadata.name={}", object.name));
        if let Some(from) = from {
            query.set("resourceVersion", &from.to_string());
            query.set("resourceVersionMatch", "Exact");
        }
        let mut request = Request::new(empty());
        let path = collection(&self.scope.resource, &self.scope.version, object.namespace.as_deref());
        *request.uri_mut() = with_query(&path.parse().ok()?, &query.to_string()).ok()?;
        request.headers_mut().clone_from(self.request.headers());
        request.extensions_mut().clone_from(self.request.extensions());
        let answer = next.oneshot(request).await.ok().filter(|answer| answer.status() == StatusCode::OK)?;
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.ok()?.to_bytes();
        let list: Value = serde_json::from_slice(&body).ok()?;
        list["kind"].as_str().filter(|kind| kind.ends_with("List"))?;
        // API servers write an empty list as none.
        Some(list["items"].as_array().is_some_and(|items| !items.is_empty()))
    }

    fn event(&self, object: &Leaving, from: Option<&ResourceVersion>) -> Deleted {
        let Scope { resource, version, .. } = &self.scope;
        let group = if resource.group.is_empty() { String::new() } else { format!("{}/", resource.group) };
        Deleted {
            api_version: format!("{group}{version}"),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
            labels: object.labels.clone(),
            resource_version: from.unwrap_or(&object.version).to_string(),
            whole: None,
        }
    }
}
