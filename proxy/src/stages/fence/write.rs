//! What changes something: counted while it is under way, and refused where it is about what is another shard's.
//! A PUT of an object gets back the label that its writer does not see.

use std::{collections::HashSet, sync::Arc};

use http::{Request, Response, StatusCode, header, request::Parts};

use super::{
    Handler,
    ask::named,
    detached::{DetachedWrites, SendGuard},
    impersonates,
    ownership_check::{DenyReason, OwnershipCheck, deny, uids_of},
    relabel::{Above, Relabeler},
    target,
};
use crate::{
    access::credentials::is_foreign,
    body::{Body, full, holding},
    budget::Budget,
    fence::{About, CachedOwner, Target, Uid, WriteGuard},
    labels::insert::with_label,
    metadata::{self, Owner, Written},
    request::{Query, RequestInfo, Resource, Verb, representation::Encoding, selector::Selector},
    stages::{context::AdmittedRequest, narrow::joined, whole},
    status::Refusal,
    upstream::UpstreamError,
};

/// What a write has to do with beside itself.
pub(super) struct Around {
    pub(super) detached: DetachedWrites,
    pub(super) relabeler: Relabeler,
}

/// What was found out about a write that may be sent.
struct Allowed {
    /// It names an owner that was none of the object's, as far as that is known.
    changes_owner: bool,
    /// The objects of the ring that it concerns: what it names, and who controls that.
    uids: Vec<Uid>,
}

/// Sends a request, if it may be sent.
pub(super) async fn write<S: Handler>(
    next: S,
    check: OwnershipCheck,
    Around { detached, relabeler }: Around,
    AdmittedRequest { request, mut context }: AdmittedRequest,
) -> Result<Response<Body>, Refusal> {
    let RequestInfo { verb, resource, upgrade, .. } = &context.info;
    let (target, verb, upgrade, budget) = (target(resource), *verb, *upgrade, &context.origin.budget);
    let creates = resource.name.is_none() && verb == Verb::Create;
    let (request, Written { name, owners }) = read(&check, request, &context.info, budget).await?;
    let (mut head, mut body) = request.into_parts();
    // Before anything is asked: an object that is ours then stays so until this is answered, and who works on an owner waits
    // for that.
    let write_guard =
        Arc::new(check.fence.enter(About { target: (!creates).then(|| target.clone()), uids: HashSet::new() }));
    write_guard.add_candidates(&uids_of(&owners));
    let owners =
        check.followed(&owners, resource.namespace.as_deref()).await.map_err(|failed| failed.about(&target))?;
    let brings = creates && check.may_be_the_rings(&owners);
    let began = check.cache_scope.term.began;
    if brings && check.views.interrupted(&resource.kind, resource.namespace.as_deref(), began).await {
        return Err(Refusal::Interrupted(Box::new(named(&target))));
    }
    let Allowed { changes_owner, uids } = allowed(&check, &write_guard, &head, &owners, &context.info).await?;
    // What is created has no name here, and nothing is known of it.
    let changes_owner = changes_owner && !creates;
    if changes_owner {
        check.fence.owner_changes(&target);
    } else if verb == Verb::Delete {
        check.fence.forget(&target);
    }
    if verb == Verb::Update
        && is_whole(resource)
        && check.hides_labels
        && matches!(check.fence.cached_owner(&check.cache_scope, &target), CachedOwner::Ours(_))
    {
        body = with_shard_label(&check, &mut head, body, budget).await?;
    }
    if upgrade {
        context.write_guard = Some(write_guard.clone());
    }
    let is_dry = || Query::parse(head.uri.query().unwrap_or_default()).is_ok_and(|it| it.first("dryRun").is_some());
    let may_follow = (!owners.is_empty() && !is_dry()).then(|| (context.admitted.clone(), detached.clone()));
    let is_foreign = is_foreign(&head.headers);
    write_guard.sent();
    let admitted = context.admitted.clone();
    let answer = next.call(AdmittedRequest { request: Request::from_parts(head, body), context });
    let answered = if upgrade {
        answer.await
    } else {
        SendGuard::new(answer, (write_guard.clone(), is_foreign), admitted, detached).await
    };
    if changes_owner {
        check.fence.owner_changes(&target);
    }
    heed(&answered, &write_guard, is_foreign);
    let answer = answered?.map(|body| holding(body, write_guard));
    let Some(around) = may_follow else { return Ok(answer) };
    // What is created is none of the objects that are known to be there: these are those that it follows.
    let above = Above { owners, uids };
    Ok(relabeler.look(answer, (target, name.filter(|_| creates), above), check, around).await)
}

/// Returns the object in a PUT, of its status too, with this shard's label, which its writer could not see.
///
/// Policy and webhook put the label back themselves; where neither acts the object would have no shard. A PUT of an object
/// that is drained by then takes the drain label off and keeps the object here: the policy puts that back in the same write,
/// and else the sharder drains it again. Without the shard label it would count as released, before it is.
async fn with_shard_label(
    check: &OwnershipCheck,
    head: &mut Parts,
    body: Body,
    budget: &Budget,
) -> Result<Body, Refusal> {
    if Encoding::of_body(&head.headers).is_none() {
        return Ok(body);
    }
    let object = whole(budget, body).await?;
    let (key, shard) = (&check.labels.shard, check.cache_scope.term.shard.as_str());
    let Some(labelled) = with_label(&head.headers, &object, key, shard) else { return Ok(full(object)) };
    // The client library writes the new one.
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(full(labelled))
}

/// Tells the guard what the answer says: whether the write is over, and whether the controller was at work on anything.
///
/// Where credentials were refused it was not: another account's, and those that the API server does not know. The controller's own
/// that may not do something, or has no quota left, is at work.
pub(super) fn heed(answered: &Result<Response<Body>, Refusal>, write_guard: &WriteGuard, is_foreign: bool) {
    if may_go_on(answered) {
        return;
    }
    match answered.as_ref().map(Response::status) {
        Ok(StatusCode::UNAUTHORIZED) => write_guard.refused(),
        Ok(StatusCode::FORBIDDEN) if is_foreign => write_guard.refused(),
        _ => write_guard.answered(),
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

/// Returns if all that a request concerns is this shard's; the guard knows what that is then.
async fn allowed(
    check: &OwnershipCheck,
    write_guard: &WriteGuard,
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
    let policy = &check.cache_scope.policy;
    let is_either = policy.is_main(&resource.kind) && policy.is_controlled(&resource.kind);
    let asks = unseen.is_some() || is_either;
    if let Some(what) = unseen {
        check.questions.metrics.unseen(what);
    }
    if resource.name.is_some() {
        uids = check.written(&target(resource), asks, write_guard).await?;
    }
    let changes_owner = owners.iter().any(|owner| !uids.iter().any(|uid| **uid == *owner.uid));
    uids.extend(check.controlled_by(owners, resource.namespace.as_deref(), asks, write_guard).await?);
    if *verb == Verb::DeleteCollection && check.cache_scope.policy.is_controlled(&resource.kind) {
        // Children are labelled for this shard until the sharder moves them, which is after their owner was released.
        let selecting = selecting(query, &check.cache_scope.term.selector)?;
        uids.extend(check.deleted(&target(resource), selecting, asks, write_guard).await?);
    }
    // Closed at this moment: then the questions above came too early.
    write_guard.check_and_add(&uids).map_err(|object| deny(&Target::of(&object), DenyReason::Released))?;
    Ok(Allowed { changes_owner, uids })
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
    check: &OwnershipCheck,
    request: Request<Body>,
    RequestInfo { verb, resource, .. }: &RequestInfo,
    budget: &Budget,
) -> Result<(Request<Body>, Written), Refusal> {
    let names_owners = is_whole(resource)
        && matches!(verb, Verb::Create | Verb::Update | Verb::Patch)
        && check.cache_scope.policy.is_controlled(&resource.kind);
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
