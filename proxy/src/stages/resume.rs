//! Makes watches list again that go on from before their resource joined the ring, or left it, or from before a gap in
//! the Lease.
//!
//! What such a client knows is of another set of objects, and no event will ever correct it: of an object that
//! never matched the shard's selector there is no `DELETED`. The tap ends what is open at the change. This finds
//! who was between two watches, between list and watch or between two pages of a list, and who connects again because
//! the proxy was restarted, for it can't know what the ring was before: by the resourceVersion of the collection, read
//! after the change and before the first list or watch that is decided on it. A watch from below that is stale
//! ([`RequestContext`](super::context::RequestContext)). One from just there passes: when nothing is written, a new
//! list comes from there too. Where that version is below what was seen before, etcd was restored, and what was seen
//! counts no more.

use http::{Request, Response, StatusCode, Uri};
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use serde::Deserialize;

use super::{
    OwnRequests,
    as_client::{collection, fields_of, list_as_client},
    context::AdmittedRequest,
    list::ListMeta,
    narrow::start_of_watch,
};
use crate::{
    body::{Body, empty},
    budget::Budget,
    fence::Fence,
    policy::Read,
    request::{Query, Resource, Verb},
    status::Refusal,
    upstream::UpstreamError,
    views::Views,
};

/// The longest answer that is read for its resourceVersion: one object, of which etcd keeps 1.5 MiB at most by
/// default, where the API server of a resource does not know how to send its metadata alone.
const MAX_ANSWER: usize = 8 << 20;

/// A list or watch that is compared with the resourceVersion of its collection.
pub(super) struct Resuming {
    resource: GroupResource,
    floor: Read,
    /// From where it goes on.
    from: Option<ResourceVersion>,
    /// How the version is asked for.
    question: Request<Body>,
    budget: Budget,
}

/// Why the collection's version is not known.
pub(super) enum VersionUnknown {
    /// Who may not list has no list that could be old.
    MayNotList,
    /// The API server refuses for another reason, as it would refuse the client's own list.
    Answer(Box<Response<Body>>),
    Refusal(Refusal),
}

impl Resuming {
    /// None for what goes on from nowhere.
    pub(super) fn of(AdmittedRequest { request, context }: &AdmittedRequest) -> Option<Self> {
        let info = &context.info;
        let floor = context.admitted.floor(&info.resource.kind)?;
        if !matches!(info.verb, Verb::List | Verb::Watch) {
            return None;
        }
        let from = (info.verb == Verb::Watch).then(|| start_of_watch(&info.query)).flatten();
        let mut question = list_as_client(request.headers()).map(|()| empty());
        *question.uri_mut() = self::question(&info.resource, &info.query)?;
        let (resource, budget) = (info.resource.kind.clone(), context.origin.budget.clone());
        Some(Self { resource, floor, from, question, budget })
    }

    /// Whether it goes on from before what can be trusted. What the fence and the views know of resourceVersions is compared with
    /// what is read.
    ///
    /// # Errors
    /// When that is not known.
    pub(super) async fn judge(self, own: OwnRequests, fence: Fence, views: Views) -> Result<bool, VersionUnknown> {
        let Self { resource, floor, from, question, budget } = self;
        let (of, seen) = (resource.clone(), fence.floor(&resource));
        let version = async move {
            let version = collection_version(own, &budget, question).await?;
            // It was asked for later than that was seen.
            if seen.is_some_and(|seen| seen > version) {
                tracing::warn!(resource = %of, %version, "resourceVersions went back: etcd was restored");
                fence.went_back(&of);
                views.went_back(&of, &version);
            }
            Ok(version)
        };
        let floor =
            floor.or_ask(version).await.map_err(|_| VersionUnknown::Refusal(Refusal::FloorUnknown(resource)))??;
        Ok(from.is_some_and(|from| from < *floor))
    }
}

/// One object of what the client may list: permissions can be for one namespace, or for one name.
fn question(resource: &Resource, query: &Query) -> Option<Uri> {
    let query = Query::default().with("fieldSelector", &fields_of(resource, query).unwrap_or_default());
    let path = collection(&resource.kind, &resource.version, resource.namespace.as_deref());
    format!("{path}?{query}&limit=1").parse().ok()
}

#[derive(Deserialize)]
struct Collection {
    metadata: ListMeta,
}

async fn collection_version(
    own: OwnRequests,
    budget: &Budget,
    question: Request<Body>,
) -> Result<ResourceVersion, VersionUnknown> {
    let answer = own(question).await.map_err(VersionUnknown::Refusal)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN => return Err(VersionUnknown::MayNotList),
        _ => return Err(VersionUnknown::Answer(Box::new(answer))),
    }
    let broken = |reason: String| {
        let reason = format!("the version of a list could not be read: {reason}");
        VersionUnknown::Refusal(UpstreamError::Failed(reason.into()).into())
    };
    let bytes = budget.collect(answer.into_body(), MAX_ANSWER).await.map_err(|it| broken(it.to_string()))?;
    let list: Collection = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    list.metadata.resource_version.parse().map_err(|_| broken(list.metadata.resource_version))
}
