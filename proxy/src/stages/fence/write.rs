//! What changes something: counted while it is under way, and refused where it is about what is another shard's.
//! A PUT of an object gets back the label that its writer does not see.

use std::{collections::HashSet, sync::Arc};

use http::{Request, Response, StatusCode, header, request::Parts};

use super::{
    Next,
    alone::{Alone, Sent},
    ask::named,
    impersonates,
    judge::{Judge, Why, moved, uids_of},
    target,
    unlabelled::{Above, Unlabelled},
};
use crate::{
    access::credentials::is_foreign,
    body::{Body, full, holding},
    budget::Budget,
    fence::{About, Standing, Target, Ticket, Uid},
    labels::insert::with_label,
    metadata::{self, Owner, Written},
    request::{Query, RequestInfo, Resource, Verb, representation::Encoding, selector::Selector},
    stages::{context::AdmittedRequest, narrow::joined, whole},
    status::Refusal,
    upstream::UpstreamError,
};

/// What a write has to do with beside itself.
pub(super) struct Around {
    pub(super) alone: Alone,
    pub(super) unlabelled: Unlabelled,
}

/// What was found out about a write that may be sent.
struct Allowed {
    /// It names an owner that was none of the object's, as far as that is known.
    adopts: bool,
    /// The objects of the ring that it concerns: what it names, and who controls that.
    uids: Vec<Uid>,
}

/// Sends a request, if it may be sent.
pub(super) async fn write<S: Next>(
    next: S,
    judge: Judge,
    Around { alone, unlabelled }: Around,
    AdmittedRequest { request, mut context }: AdmittedRequest,
) -> Result<Response<Body>, Refusal> {
    let RequestInfo { verb, resource, upgrade, .. } = &context.info;
    let (target, verb, upgrade, budget) = (target(resource), *verb, *upgrade, &context.origin.budget);
    let creates = resource.name.is_none() && verb == Verb::Create;
    let (request, Written { name, owners }) = read(&judge, request, &context.info, budget).await?;
    let (mut head, mut body) = request.into_parts();
    // Before anything is asked: an object that is ours then stays so until this is answered, and who works on an owner waits
    // for that.
    let ticket =
        Arc::new(judge.fence.enter(About { target: (!creates).then(|| target.clone()), uids: HashSet::new() }));
    ticket.may_be_about(&uids_of(&owners));
    let owners =
        judge.followed(&owners, resource.namespace.as_deref()).await.map_err(|failed| failed.about(&target))?;
    let brings = creates && judge.may_be_the_rings(&owners);
    let began = judge.era.term.began;
    if brings && judge.views.interrupted(&resource.kind, resource.namespace.as_deref(), began).await {
        return Err(Refusal::Interrupted(Box::new(named(&target))));
    }
    let Allowed { adopts, uids } = allowed(&judge, &ticket, &head, &owners, &context.info).await?;
    // What is created has no name here, and nothing is known of it.
    let adopts = adopts && !creates;
    if adopts {
        judge.fence.adopts(&target);
    } else if verb == Verb::Delete {
        judge.fence.forget(&target);
    }
    if verb == Verb::Update
        && is_whole(resource)
        && judge.hides_labels
        && matches!(judge.fence.standing(&judge.era, &target), Standing::Ours(_))
    {
        body = with_shard_label(&judge, &mut head, body, budget).await?;
    }
    if upgrade {
        context.ticket = Some(ticket.clone());
    }
    let is_dry = || Query::parse(head.uri.query().unwrap_or_default()).is_ok_and(|it| it.first("dryRun").is_some());
    let may_follow = (!owners.is_empty() && !is_dry()).then(|| (context.admitted.clone(), alone.clone()));
    let is_foreign = is_foreign(&head.headers);
    ticket.sent();
    let admitted = context.admitted.clone();
    let answer = next.call(AdmittedRequest { request: Request::from_parts(head, body), context });
    let answered =
        if upgrade { answer.await } else { Sent::new(answer, (ticket.clone(), is_foreign), admitted, alone).await };
    if adopts {
        judge.fence.adopts(&target);
    }
    heed(&answered, &ticket, is_foreign);
    let answer = answered?.map(|body| holding(body, ticket));
    let Some(around) = may_follow else { return Ok(answer) };
    // What is created is none of the objects that are known to be there: these are those that it follows.
    let above = Above { owners, uids };
    Ok(unlabelled.look(answer, (target, name.filter(|_| creates), above), judge, around).await)
}

/// Returns the object in a PUT, of its status too, with this shard's label, which its writer could not see.
///
/// Policy and webhook put the label back themselves; where neither acts the object would have no shard. A PUT of an object
/// that is drained by then takes the drain label off and keeps the object here: the policy puts that back in the same write,
/// and else the sharder drains it again. Without the shard label it would count as released, before it is.
async fn with_shard_label(judge: &Judge, head: &mut Parts, body: Body, budget: &Budget) -> Result<Body, Refusal> {
    if Encoding::of_body(&head.headers).is_none() {
        return Ok(body);
    }
    let object = whole(budget, body).await?;
    let (key, shard) = (&judge.labels.shard, judge.era.term.shard.as_str());
    let Some(labelled) = with_label(&head.headers, &object, key, shard) else { return Ok(full(object)) };
    // The client library writes the new one.
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(full(labelled))
}

/// Tells the ticket what the answer says: whether the write is over, and whether the controller was at work on anything.
///
/// Where credentials were refused it was not: another account's, and those that the API server does not know. The controller's own
/// that may not do something, or has no quota left, is at work.
pub(super) fn heed(answered: &Result<Response<Body>, Refusal>, ticket: &Ticket, is_foreign: bool) {
    if may_go_on(answered) {
        return;
    }
    match answered.as_ref().map(Response::status) {
        Ok(StatusCode::UNAUTHORIZED) => ticket.refused(),
        Ok(StatusCode::FORBIDDEN) if is_foreign => ticket.refused(),
        _ => ticket.answered(),
    }
}

/// Whether the API server may still carry out what was answered so: a gateway's word, or its own, that it took too long.
fn may_go_on(answered: &Result<Response<Body>, Refusal>) -> bool {
    match answered {
        Ok(response) => matches!(response.status(), StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT),
        Err(Refusal::Upstream(UpstreamError::Unreachable(_) | UpstreamError::NotProcessed(_))) => false,
        Err(Refusal::Upstream(_)) => true,
        // Of a stage on the way.
        Err(_) => false,
    }
}

/// Returns if all that a request concerns is this shard's; the ticket knows what that is then.
async fn allowed(
    judge: &Judge,
    ticket: &Ticket,
    head: &Parts,
    owners: &[Owner],
    RequestInfo { verb, resource, query, .. }: &RequestInfo,
) -> Result<Allowed, Refusal> {
    let mut uids = Vec::new();
    // What the API server's own fence does not see is compared with the labels each time (DESIGN, "The fence has two layers").
    let unseen = match head {
        _ if is_foreign(&head.headers) => Some("credentials"),
        _ if impersonates(&head.headers) => Some("impersonation"),
        _ => (!is_whole(resource)).then_some("subresource"),
    };
    // What was this shard's own may have been adopted since, and moves with its owner then.
    let policy = &judge.era.policy;
    let is_either = policy.is_main(&resource.kind) && policy.is_controlled(&resource.kind);
    let asks = unseen.is_some() || is_either;
    if let Some(what) = unseen {
        judge.asker.metrics.unseen(what);
    }
    if resource.name.is_some() {
        uids = judge.written(&target(resource), asks, ticket).await?;
    }
    let adopts = owners.iter().any(|owner| !uids.iter().any(|uid| **uid == *owner.uid));
    uids.extend(judge.controlled_by(owners, resource.namespace.as_deref(), asks, ticket).await?);
    if *verb == Verb::DeleteCollection && judge.era.policy.is_controlled(&resource.kind) {
        // Children are labelled for this shard until the sharder moves them, which is after their owner was released.
        let selecting = selecting(query, &judge.era.term.selector)?;
        uids.extend(judge.deleted(&target(resource), selecting, asks, ticket).await?);
    }
    // Closed at this moment: then the questions above came too early.
    ticket.also_about(&uids).map_err(|object| moved(&Target::of(&object), Why::LetGo))?;
    Ok(Allowed { adopts, uids })
}

/// Of a deletion of many what it selects, within the shard's own.
fn selecting(asked: &Query, ours: &str) -> Result<Query, Refusal> {
    let mut selecting = Query::default();
    if let Some(fields) = asked.first("fieldSelector") {
        selecting.set("fieldSelector", fields);
    }
    let theirs = Selector::parse(asked.first("labelSelector").unwrap_or_default())?;
    selecting.set("labelSelector", &joined(ours, &theirs));
    Ok(selecting)
}

/// The request as it came, and what its body says where it may name owners.
async fn read(
    judge: &Judge,
    request: Request<Body>,
    RequestInfo { verb, resource, .. }: &RequestInfo,
    budget: &Budget,
) -> Result<(Request<Body>, Written), Refusal> {
    let names_owners = is_whole(resource)
        && matches!(verb, Verb::Create | Verb::Update | Verb::Patch)
        && judge.era.policy.is_controlled(&resource.kind);
    if !names_owners {
        return Ok((request, Written::default()));
    }
    let (head, body) = request.into_parts();
    let body = whole(budget, body).await?;
    let written = metadata::of_request(&head.headers, &body)?;
    Ok((Request::from_parts(head, full(body)), written))
}

/// Whether it is of an object, and not of a subresource that is another thing.
fn is_whole(resource: &Resource) -> bool {
    matches!(resource.subresource.as_deref(), None | Some("status"))
}
