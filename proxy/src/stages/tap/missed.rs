//! Tells a client what it has missed: objects that moved away between the end of one watch and the beginning of the next.
//!
//! A client that lists in between, and does not notice what is gone from its list (kopf), would work on them for ever.
//! A client that does notice loses nothing by a `DELETED` of what it does not know. The API server is asked first
//! whether the object is this shard's again where the watch begins, or another one of its name is: then the list had
//! that, and most clients know objects by their names (client-go's stores), so they would forget it. A watch of whole
//! objects shows the whole object, as it was when it left: typed clients can't read another. Of one that is not there
//! any more the metadata is all.

use std::sync::Arc;

use bytes::Bytes;
use futures::{
    StreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use http::{HeaderValue, StatusCode};
use prost::Message as _;
use ringside_ring::ResourceVersion;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    frames::Deleted,
    policy::ANSWER,
    request::{Query, representation::Encoding},
    stages::{OwnRequests, as_client::AsClient, context::AdmittedRequest},
    views::{DrainingObject, Scope, UnobservedDeletions},
    wire::{self, AnyMetadata},
};

/// How many questions are under way at a time.
const AT_A_TIME: usize = 8;
/// How many where whole objects are asked for: those not yet told are held.
const WHOLE_AT_A_TIME: usize = 2;
/// The longest answer that is read: metadata of one object, or the object where that is not known.
const MAX_ANSWER: usize = 8 << 20;

/// How to ask about single objects.
pub(super) struct Asks {
    client: AsClient,
    selector: String,
}

impl Asks {
    /// As the client that sends this watch.
    pub(super) fn of(asked: &AdmittedRequest, scope: &Arc<Scope>, own: OwnRequests) -> Self {
        let selector = asked.context.admitted.term.selector.to_string();
        Self { client: AsClient::of(asked, scope, own), selector }
    }

    /// The events that the client has to be sent first, one after the other; `None` where the API server does not say.
    pub(super) fn deleted(
        self,
        missed: &UnobservedDeletions,
        whole: Option<Encoding>,
    ) -> BoxStream<'static, Option<Deleted>> {
        let (asks, from) = (Arc::new(self), missed.from.clone());
        let ask = move |object: Arc<DrainingObject>| {
            let (asks, from) = (asks.clone(), from.clone());
            async move {
                let about = asks.about(&object, from.as_ref(), whole);
                timeout(ANSWER, about).await.ok().flatten()
            }
        };
        let told = |answer: Option<Option<_>>| ready(answer.map_or(Some(None), |event| event.map(Some)));
        let at_a_time = if whole.is_some() { WHOLE_AT_A_TIME } else { AT_A_TIME };
        stream::iter(missed.objects.clone()).map(ask).buffered(at_a_time).filter_map(told).boxed()
    }

    /// The event about it, with the object in this encoding, unless what has the name is this shard's.
    async fn about(
        &self,
        object: &DrainingObject,
        from: Option<&ResourceVersion>,
        encoding: Option<Encoding>,
    ) -> Option<Option<Deleted>> {
        // API servers write an empty list as none.
        let is_ours = |list: &Value| list["items"].as_array().is_some_and(|items| !items.is_empty());
        if is_ours(&in_json(&self.list(object, (from, Some(&self.selector)), None).await?)?) {
            return Some(None);
        }
        let whole = match encoding {
            Some(encoding) => self.whole(object, encoding).await,
            None => None,
        };
        Some(Some(Deleted { whole, ..self.event(object, from) }))
    }

    /// The object as it was when it left, or as it is with its next shard.
    async fn whole(&self, object: &DrainingObject, encoding: Encoding) -> Option<Bytes> {
        let accept = HeaderValue::from_static(encoding.media_type());
        for at in [Some(&object.version), None] {
            let list = self.list(object, (at, None), Some(&accept)).await;
            let found = list.and_then(|list| match encoding {
                Encoding::Json => first_in_json(&list, &object.uid),
                Encoding::Protobuf => first_in_protobuf(&list, &object.uid),
            });
            let held = found.and_then(|found| self.client.budget.hold(found));
            if held.is_some() {
                return held;
            }
        }
        None
    }

    /// The list of what has its name, in that state, and is selected.
    async fn list(
        &self,
        object: &DrainingObject,
        (at, selector): (Option<&ResourceVersion>, Option<&String>),
        accepts: Option<&HeaderValue>,
    ) -> Option<Bytes> {
        let mut query = Query::default();
        if let Some(selector) = selector {
            query.set("labelSelector", selector);
        }
        query.set("fieldSelector", &format!("metadata.name={}", object.name));
        if let Some(at) = at {
            query.set("resourceVersion", &at.to_string());
            query.set("resourceVersionMatch", "Exact");
        }
        let answer = self.client.list(object.namespace.as_deref(), &query, accepts).await?;
        let answer = answer.ok().filter(|answer| answer.status() == StatusCode::OK)?;
        self.client.budget.collect(answer.into_body(), MAX_ANSWER).await.ok()
    }

    fn event(&self, object: &DrainingObject, from: Option<&ResourceVersion>) -> Deleted {
        let Scope { resource, version, .. } = &*self.client.scope;
        let group = if resource.group.is_empty() { String::new() } else { format!("{}/", resource.group) };
        Deleted {
            api_version: format!("{group}{version}"),
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.to_string(),
            labels: object.labels.clone(),
            resource_version: from.unwrap_or(&object.version).to_string(),
            whole: None,
        }
    }
}

fn in_json(list: &[u8]) -> Option<Value> {
    let list: Value = serde_json::from_slice(list).ok()?;
    list["kind"].as_str().filter(|kind| kind.ends_with("List"))?;
    Some(list)
}

/// Returns the first object of a list in JSON, if it has this uid.
fn first_in_json(list: &[u8], uid: &str) -> Option<Vec<u8>> {
    let first = in_json(list)?["items"].get_mut(0)?.take();
    (first["metadata"]["uid"] == *uid).then(|| first.to_string().into())
}

/// Returns the first object of a list in protobuf, if it has this uid.
fn first_in_protobuf(list: &Bytes, uid: &str) -> Option<Vec<u8>> {
    let list = wire::unwrap(list).filter(|list| list.type_meta.as_ref().is_some_and(|it| it.kind.ends_with("List")))?;
    let first = wire::List::decode(list.raw).ok()?.items.into_iter().next()?;
    (AnyMetadata::decode(first.clone()).ok()?.metadata?.uid == uid).then(|| first.to_vec())
}
