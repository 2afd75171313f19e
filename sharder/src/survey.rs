//! All objects of a resource, one after the other, reduced to what matters here.
//!
//! By a streaming list of metadata (CONTROL-PLANE, 3): one request, however many objects there are, and an object is gone
//! before the next is read. Not older than the request, as a list without resourceVersion. API servers without streaming
//! lists are asked for pages. So is one that ends a stream before its last object, which it does when its events wait for
//! too long: whoever takes them is slow, and pages wait as long as they must.

use std::io;

use futures::{
    StreamExt, TryStreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use ringside_ring::RingLabels;
use ringside_runtime::explain::code;

use crate::{
    assign::{BATCH, children::pages_of},
    resources::Object,
    target::Target,
};

/// On the bookmark behind the last object of a streaming list (Kubernetes, "Streaming lists").
const END: &str = "k8s.io/initial-events-end";

/// How objects are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// All at once, where the API server can.
    Stream,
    /// Page by page.
    Pages,
}

type Targets = BoxStream<'static, Result<Target, kube::Error>>;

/// All objects that `api` shows. The answer has begun when this returns: what changes from then on is not shown.
pub(crate) async fn survey(api: Api<Object>, labels: RingLabels, way: Way) -> Result<Targets, kube::Error> {
    if way == Way::Stream {
        match api.watch(&WatchParams::default().initial_events(), "").await {
            Ok(events) => {
                let seen = events.map(Some).chain(stream::iter([None])).map(read);
                let until_end = seen.try_take_while(|seen| ready(Ok(!matches!(seen, Seen::End))));
                let targets = until_end.try_filter_map(move |seen| {
                    ready(Ok(match seen {
                        Seen::Object(object) => Some(Target::of(&object.metadata, &labels)),
                        Seen::Nothing | Seen::End => None,
                    }))
                });
                return Ok(targets.boxed());
            }
            // API servers without `WatchList` refuse `sendInitialEvents`.
            Err(error) if code(&error) == Some(422) => {}
            Err(error) => return Err(error),
        }
    }
    let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
    let mut pages = Box::pin(pages_of(api, labels, parameters).peekable());
    pages.as_mut().peek().await;
    Ok(pages.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten().boxed())
}

/// What an event of the stream says; none: the stream has ended.
enum Seen {
    Object(Box<Object>),
    Nothing,
    End,
}

fn read(event: Option<Result<WatchEvent<Object>, kube::Error>>) -> Result<Seen, kube::Error> {
    match event {
        Some(Ok(WatchEvent::Added(object))) => Ok(Seen::Object(Box::new(object))),
        Some(Ok(WatchEvent::Bookmark(bookmark))) if bookmark.metadata.annotations.contains_key(END) => Ok(Seen::End),
        // What there is comes first, in one state that is not older than the request, and as added. These change what was
        // shown already: it would be met twice.
        Some(Ok(WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => Ok(Seen::Nothing),
        Some(Ok(WatchEvent::Error(status))) => Err(kube::Error::Api(status)),
        Some(Err(error)) => Err(error),
        None => {
            let early = "the API server ended a streaming list before its last object";
            Err(kube::Error::ReadEvents(io::Error::new(io::ErrorKind::UnexpectedEof, early)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Request, Response};
    use kube::{Client, client::Body};
    use serde_json::{Value, json};

    use super::*;
    use crate::{fixtures::FakeApi, snapshot::tests::resource};

    /// What a survey shows when a watch is answered with these events, and whether it failed.
    async fn of(events: &[Value]) -> (Vec<String>, bool) {
        let text: String = events.iter().map(|event| format!("{event}\n")).collect();
        let service = tower::service_fn(move |request: Request<Body>| {
            assert!(
                request.uri().query().unwrap().contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
            );
            ready(Ok::<_, std::convert::Infallible>(Response::new(Body::from(text.clone().into_bytes()))))
        });
        let client = Client::new(service, "default");
        shown(resource("", "ConfigMap", "configmaps").objects(&client, None)).await
    }

    async fn shown(api: Api<Object>) -> (Vec<String>, bool) {
        let labels = RingLabels::of(&"example".parse().unwrap());
        let seen: Vec<_> = survey(api, labels, Way::Stream).await.unwrap().collect().await;
        let failed = seen.iter().any(Result::is_err);
        (seen.into_iter().filter_map(|seen| Some(seen.ok()?.name)).collect(), failed)
    }

    fn added(name: &str) -> Value {
        json!({"type": "ADDED", "object": {"metadata": {"name": name}}})
    }

    fn bookmark(annotations: &Value) -> Value {
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "annotations": annotations}}})
    }

    #[tokio::test]
    async fn a_stream_is_whole_when_it_says_so() {
        let end = bookmark(&json!({END: "true"}));
        let plain = bookmark(&json!({}));
        assert_eq!(
            of(&[added("a"), plain.clone(), added("b"), end.clone(), added("c")]).await,
            (vec!["a".into(), "b".into()], false)
        );
        assert_eq!(of(&[end]).await, (vec![], false));
        let modified = json!({"type": "MODIFIED", "object": added("a")["object"]});
        assert_eq!(
            of(&[added("a"), modified, bookmark(&json!({END: "true"}))]).await,
            (vec!["a".into()], false),
            "once"
        );
        assert_eq!(of(&[added("a"), plain]).await, (vec!["a".into()], true), "cut off");
        let expired = json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": "", "reason": "Expired"}});
        assert_eq!(of(&[added("a"), expired]).await, (vec!["a".into()], true));
    }

    #[tokio::test]
    async fn a_server_without_streaming_lists_is_asked_for_pages() {
        let api = FakeApi::default();
        api.put("/api/v1/namespaces/default/configmaps/a", json!({"metadata": {"name": "a"}}));
        api.intercept(|asked, _| {
            asked.query.contains("sendInitialEvents").then_some(http::StatusCode::UNPROCESSABLE_ENTITY)
        });
        let seen = shown(resource("", "ConfigMap", "configmaps").objects(&api.client(), None)).await;
        assert_eq!(seen, (vec!["a".into()], false));
    }
}
