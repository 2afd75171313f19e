//! A request on its way, with what the stages found out about it.
//!
//! What a stage needs of those before is a field here, so none can be reached without them.

use std::sync::Arc;

use http::Request;

use super::{admit::Admitted, narrow::ViewToOpen};
use crate::{
    body::{Body, Stalled},
    budget::Budget,
    fence::WriteGuard,
    labels::Keys,
    request::{BadRequest, RequestInfo, Verb},
    serve::Caller,
};

/// A request that came in.
pub struct IncomingRequest {
    /// Without what belongs to its client's connection.
    pub request: Request<Body>,
    /// What it asks for; `None` for discovery, health, version and the like. Who has no token is not told what is wrong with it.
    pub info: Result<Option<RequestInfo>, BadRequest>,
    /// Where it comes from.
    pub origin: Origin,
}

impl IncomingRequest {
    /// What is done.
    pub fn verb(&self) -> Verb {
        match &self.info {
            Ok(Some(info)) => info.verb,
            Ok(None) => Verb::of_method(self.request.method()),
            Err(_) => Verb::Unknown,
        }
    }
}

/// Where a request comes from.
#[derive(Clone)]
pub struct Origin {
    /// Its client's connection, where it has one.
    pub(crate) caller: Option<Arc<Caller>>,
    /// Whether its client has stopped to send its body.
    pub stalled: Stalled,
    /// What its buffers draw from.
    pub budget: Budget,
}

/// A request about a resource, which this shard admitted.
pub struct AdmittedRequest {
    /// As it is to be sent, so far.
    pub request: Request<Body>,
    /// What is known of it.
    pub context: RequestContext,
}

/// What is known of an admitted request. Cheap to clone.
#[derive(Clone)]
pub struct RequestContext {
    /// What its client asks for.
    pub info: RequestInfo,
    /// The state that it was admitted in.
    pub admitted: Admitted,
    /// Where it comes from.
    pub origin: Origin,
    /// The labels that its answer must not have.
    pub hidden: Option<Keys>,
    /// Its place among the writes under way, where its connections outlive its answer.
    pub write_guard: Option<Arc<WriteGuard>>,
    /// The view of the ring that its answer gives.
    pub view_to_open: Option<ViewToOpen>,
    /// Whether it is a watch that must not go on.
    pub is_stale: bool,
    /// Whether it is a watch from nothing, which is asked for as a streaming list.
    pub is_from_nothing: bool,
}

impl RequestContext {
    /// Before any stage behind the admission.
    pub fn new(info: RequestInfo, admitted: Admitted, origin: Origin) -> Self {
        Self {
            info,
            admitted,
            origin,
            hidden: None,
            write_guard: None,
            view_to_open: None,
            is_stale: false,
            is_from_nothing: false,
        }
    }
}
