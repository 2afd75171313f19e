//! Keeps the controller from what is another shard's, where no selector does: reads by name, and writes.
//!
//! | request, of a resource of the ring | what is done |
//! | --- | --- |
//! | get by name | another shard's object, by the labels in the answer, is answered 404, as after its `DELETED` |
//! | get of a subresource but `status` | the same, by labels that are asked for first |
//! | update, patch, apply, delete, `status` | passes if the object is known to be ours, else if its labels say so; or 409 |
//! | any other subresource, impersonation | passes if the object's labels say so at this moment; or 409 |
//! | `Binding` that is posted to `bindings`, of Pods of the ring | refused: its Pod stands in the body |
//! | create, update, patch, apply of a controlled resource | the same for the controller that the body names |
//! | create of one while the controller's watch on it is broken off | held until that is back, and refused: it has to look again |
//! | deletecollection | narrowed by a later stage; of a controlled resource the same for the owners of what it selects |
//!
//! A controlled object that is created without label is cared for (`relabeler`).
//! What changes something is counted while it is under way ([`crate::fence`]). Changes no request, but that an
//! object in JSON or protobuf that is replaced has this shard's label again, where the labels are hidden.
//! Bodies are collected of answers to gets by name, of such objects, of what writes controlled resources, and of answers to what creates them:
//! one object each, which etcd keeps to 1.5 MiB by default; labels and owners can stand anywhere in it. All other bodies pass as streams. Requests
//! for resources that are not the ring's are not touched: Events about an object that moved pass.

use std::sync::Arc;

use futures::FutureExt;
use http::HeaderMap;
use ringside_ring::{RingLabels, cluster_ring::GroupResource};

use super::{
    Answered, Handler, OwnRequests,
    admit::Admitted,
    context::{AdmittedRequest, RequestContext},
};
use crate::{
    fence::{self, CacheScope, Target},
    metrics::Metrics,
    request::{RequestInfo, Resource, Verb, representation::is_compressed},
    status::Refusal,
    views::Views,
};

mod ask;
mod detached;
mod kinds;
mod ownership_check;
mod read;
mod relabel;
mod write;

use ask::ApiQuestions;
pub use detached::DetachedWrites;
use kinds::Kinds;
use ownership_check::OwnershipCheck;
use relabel::Relabeler;

/// Subresources that connect the client to something: by GET too, they change what they like.
pub(super) const CONNECTS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// What decides.
#[derive(Clone)]
pub struct FenceState {
    /// What the controller may not write any more, and what it is writing.
    pub fence: fence::Fence,
    /// What it can still see.
    pub views: Views,
    /// The labels of the ring's objects.
    pub labels: Arc<RingLabels>,
    /// Whether the controller does not see them.
    pub hides_labels: bool,
}

/// Keeps the controller from other shards' objects in reads by name and in writes.
#[derive(Clone)]
pub struct Fence<S> {
    next: S,
    state: FenceState,
    kinds: Kinds,
    questions: ApiQuestions,
    detached: DetachedWrites,
    relabeler: Relabeler,
}

impl<S: Handler> Fence<S> {
    /// Around the stages that narrow and send requests; `own` sends its questions.
    pub fn new(next: S, own: OwnRequests, state: FenceState, metrics: Metrics, detached: DetachedWrites) -> Self {
        let questions = ApiQuestions::new(own, metrics);
        Self { next, state, kinds: Kinds::default(), questions, detached, relabeler: Relabeler::default() }
    }
}

/// What is to be done with a request for a resource of the ring.
enum RingAccess {
    Pass,
    /// The answer's labels decide.
    Read,
    /// The object's labels are asked for first.
    AskAndRead,
    Write,
}

impl RingAccess {
    fn of(RequestInfo { verb, resource, .. }: &RequestInfo, admitted: &Admitted) -> Self {
        let connects = resource.subresource.as_deref().is_some_and(|it| CONNECTS.contains(&it));
        let policy = &admitted.policy;
        let own =
            resource.name.is_some() && policy.narrows(&resource.kind) && !policy.read_by_all.contains(&resource.kind);
        match verb {
            Verb::Get if connects => Self::Write,
            Verb::Get if !own => Self::Pass,
            Verb::Get if matches!(resource.subresource.as_deref(), None | Some("status")) => Self::Read,
            Verb::Get => Self::AskAndRead,
            Verb::Create if resource.name.is_none() && !policy.is_controlled(&resource.kind) => Self::Pass,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => Self::Write,
            // A method that means nothing is not known for what it does: `PROXY`, say, on `exec`.
            Verb::Unknown => Self::Write,
            Verb::List | Verb::Watch => Self::Pass,
        }
    }
}

/// Whether a Pod of the ring would be bound to a node by a request whose path does not name it. `bindings` knows nothing but
/// `create`.
fn binds_by_itself(RequestInfo { verb, resource, .. }: &RequestInfo, admitted: &Admitted) -> bool {
    let pods = || GroupResource { group: String::new(), resource: "pods".to_owned() };
    *verb == Verb::Create
        && resource.kind.group.is_empty()
        && resource.kind.resource == "bindings"
        && admitted.policy.resources.contains(&pods())
}

/// What a request names.
fn target(resource: &Resource) -> Target {
    let Resource { kind, namespace, name, .. } = resource;
    Target { resource: kind.clone(), namespace: namespace.clone(), name: name.clone() }
}

/// Whether the API server is asked to impersonate another user, whom its own fence does not know as a shard.
fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

impl<S: Handler> Handler for Fence<S> {
    fn call(&self, asked: AdmittedRequest) -> Answered {
        let RequestContext { info, admitted, origin, .. } = &asked.context;
        let resource = &info.resource;
        if binds_by_itself(info, admitted) {
            return futures::future::ready(Err(Refusal::BindingByItself)).boxed();
        }
        if !admitted.policy.resources.contains(&resource.kind) {
            return self.next.call(asked);
        }
        let way = RingAccess::of(info, admitted);
        if matches!(way, RingAccess::Pass) {
            return self.next.call(asked);
        }
        if is_compressed(asked.request.headers()) && !resource.is_behind_api_server() {
            return futures::future::ready(Err(Refusal::CompressedBody)).boxed();
        }
        let cache_scope = CacheScope { term: admitted.term.clone(), policy: admitted.policy.clone() };
        let (next, check) = (
            self.next.clone(),
            OwnershipCheck {
                questions: self.questions.drawing(origin.budget.clone()),
                fence: self.state.fence.clone(),
                views: self.state.views.clone(),
                labels: self.state.labels.clone(),
                hides_labels: self.state.hides_labels,
                kinds: self.kinds.clone(),
                cache_scope,
                version: resource.version.clone(),
            },
        );
        match way {
            RingAccess::Pass | RingAccess::Write => {
                let around = write::Around { detached: self.detached.clone(), relabeler: self.relabeler.clone() };
                write::write(next, check, around, asked).boxed()
            }
            RingAccess::Read => read::read(next, check, asked).boxed(),
            RingAccess::AskAndRead => read::ask_and_read(next, check, asked).boxed(),
        }
    }
}
