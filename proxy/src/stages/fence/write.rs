//! What changes something: counted while it is under way, and refused where it is about what is another shard's.

use std::sync::Arc;

use futures::FutureExt;
use http::{Request, Response, StatusCode};
use tower::ServiceExt;

use super::{
    Counted, Next,
    alone::{Alone, Sent},
    impersonates,
    judge::{Judge, moved, uids_of},
    target,
};
use crate::{
    body::{Body, full, holding},
    fence::{About, Target, Ticket},
    metadata::{self, Owner},
    request::{Query, RequestInfo, Resource, Verb, selector::Selector},
    stages::{admit::Admitted, narrow::joined, whole},
    status::Refusal,
    upstream::UpstreamError,
};

/// Sends a request, if it may be sent.
pub(super) async fn write<S: Next>(
    next: S,
    judge: Judge,
    (admitted, alone): (Admitted, Alone),
    request: Request<Body>,
    (info, resource): (RequestInfo, Resource),
) -> Result<Response<Body>, Refusal> {
    let target = target(&resource);
    let creates = resource.name.is_none() && info.verb == Verb::Create;
    // Before anything is asked: an object that is ours then stays so until this is answered.
    let ticket = Arc::new(judge.fence.enter(About { target: (!creates).then(|| target.clone()), uids: Vec::new() }));
    let Allowed { mut request, adopts } = allowed(&judge, &ticket, request, info.verb, &resource).await?;
    // What is created has no name here, and nothing is known of it.
    let adopts = adopts && !creates;
    if adopts {
        judge.fence.adopts(&target);
    } else if info.verb == Verb::Delete {
        judge.fence.forget(&target);
    }
    if info.upgrade {
        request.extensions_mut().insert(Counted(ticket.clone()));
    }
    ticket.sent();
    let answer = next.oneshot(request).boxed();
    let answered =
        if info.upgrade { answer.await } else { Sent::new(answer, (&judge.fence, &ticket), admitted, alone).await };
    if adopts {
        judge.fence.adopts(&target);
    }
    if !may_go_on(&answered) {
        ticket.answered();
    }
    Ok(answered?.map(|body| holding(body, ticket)))
}

/// Whether the API server may still carry out what was answered so: a gateway's word, or its own, that it took too long.
pub(super) fn may_go_on(answered: &Result<Response<Body>, Refusal>) -> bool {
    match answered {
        Ok(response) => matches!(response.status(), StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT),
        Err(Refusal::Upstream(UpstreamError::Unreachable(_) | UpstreamError::NotProcessed(_))) => false,
        Err(Refusal::Upstream(_)) => true,
        // Of a stage on the way.
        Err(_) => false,
    }
}

/// A request all of which is this shard's.
struct Allowed {
    request: Request<Body>,
    /// Whether it names an owner that was none of the object's, as far as that is known.
    adopts: bool,
}

/// The request, if all that it concerns is this shard's; the ticket knows what that is then.
async fn allowed(
    judge: &Judge,
    ticket: &Ticket,
    mut request: Request<Body>,
    verb: Verb,
    resource: &Resource,
) -> Result<Allowed, Refusal> {
    let whole = matches!(resource.subresource.as_deref(), None | Some("status"));
    let (mut uids, mut adopts) = (Vec::new(), false);
    // What the API server's own fence does not see is compared with the labels each time (DESIGN, "The fence has two layers").
    let unseen = match impersonates(request.headers()) {
        true => Some("impersonation"),
        false => (!whole).then_some("subresource"),
    };
    let asks = unseen.is_some();
    if let Some(what) = unseen {
        judge.asker.metrics.unseen(what);
    }
    let names_owners = whole
        && matches!(verb, Verb::Create | Verb::Update | Verb::Patch)
        && judge.era.policy.controlled.contains(&resource.kind);
    let mut owners = Vec::new();
    if names_owners {
        // Before anything is asked: who works on the owner waits for an answer from here on.
        (request, owners) = with_owners(request).await?;
        ticket.may_be_about(&uids_of(&owners));
    }
    if resource.name.is_some() {
        uids = judge.written(&target(resource), asks, ticket).await?;
    }
    if names_owners {
        adopts = owners.iter().any(|owner| !uids.iter().any(|uid| **uid == *owner.uid));
        uids.extend(judge.controlled_by(&owners, resource.namespace.as_deref(), asks, ticket).await?);
    }
    if verb == Verb::DeleteCollection && judge.era.policy.controlled.contains(&resource.kind) {
        // Children are labelled for this shard until the sharder moves them, which is after their owner was let go.
        let selecting = selecting(&request, &judge.era.term.selector)?;
        uids.extend(judge.deleted(&target(resource), selecting, asks, ticket).await?);
    }
    // Closed at this moment: then the questions above came too early.
    ticket.also_about(&uids).map_err(|object| moved(&Target::of(&object), None))?;
    Ok(Allowed { request, adopts })
}

/// Of a deletion of many what it selects, within the shard's own.
fn selecting(request: &Request<Body>, ours: &str) -> Result<Query, Refusal> {
    let asked = request.extensions().get::<RequestInfo>().map(|info| info.query.clone()).unwrap_or_default();
    let mut selecting = Query::default();
    if let Some(fields) = asked.first("fieldSelector") {
        selecting.set("fieldSelector", fields);
    }
    let theirs = Selector::parse(asked.first("labelSelector").unwrap_or_default())?;
    selecting.set("labelSelector", &joined(ours, &theirs));
    Ok(selecting)
}

/// The controllers that the body names, and the request as it came.
async fn with_owners(request: Request<Body>) -> Result<(Request<Body>, Vec<Owner>), Refusal> {
    let (head, body) = request.into_parts();
    let body = whole(body).await?;
    let owners = metadata::controllers_in_request(&head.headers, &body)?;
    Ok((Request::from_parts(head, full(body)), owners))
}
