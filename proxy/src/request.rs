//! What a request asks the API server for, found out as the API server itself does.
//!
//! After `RequestInfoFactory.NewRequestInfo` of k8s.io/apiserver: whatever that takes for a list must be a
//! list here, or it would go out unnarrowed. Where this parser is stricter, the request is refused.

use http::{HeaderMap, Method, header};
use ringside_ring::cluster_ring::GroupResource;

pub(crate) mod page;
mod path;
pub mod query;
pub mod representation;
pub mod selector;

pub use path::BadPath;
pub use query::{BadQuery, Query};

/// What is done, in the words of the API server's audit log and RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object, or a subresource.
    Get,
    /// Reads the objects of a resource.
    List,
    /// Follows the objects of a resource.
    Watch,
    /// Makes an object, or posts to a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes the objects of a resource.
    DeleteCollection,
    /// A method that means nothing for resources; the API server refuses it.
    Unknown,
}

impl Verb {
    /// By the method alone.
    pub fn of_method(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD => Self::Get,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => Self::Unknown,
        }
    }

    /// Whether the answer is about the objects that a selector names.
    pub fn selects(self) -> bool {
        matches!(self, Self::List | Self::Watch | Self::DeleteCollection)
    }

    /// Whether it changes nothing, so that it may be repeated at will.
    pub fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The resource that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Group and plural name.
    pub kind: GroupResource,
    /// The API version.
    pub version: String,
    /// The namespace, unless the request is about all of them or the resource has none.
    pub namespace: Option<String>,
    /// The object's name, unless the request is about several.
    pub name: Option<String>,
    /// The part of the object, as in `pods/log`.
    pub subresource: Option<String>,
}

impl Resource {
    /// Whether query and body are for a server behind the API server, which its subresource `proxy` reaches.
    pub fn is_behind_api_server(&self) -> bool {
        self.subresource.as_deref() == Some("proxy")
    }
}

/// What a request asks for that is about a resource.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// What is done.
    pub verb: Verb,
    /// To what.
    pub resource: Resource,
    /// The query of a verb that selects; empty for the others, whose query no stage reads.
    pub query: Query,
    /// Whether the connection may become something else: exec, attach, port-forward, `proxy`, a watch by WebSocket.
    pub upgrade: bool,
}

/// Why a request can't be understood, and so is not forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The path.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// The query.
    #[error(transparent)]
    Query(#[from] BadQuery),
}

impl RequestInfo {
    /// Classifies a request by its head; `None` for discovery, health, version and the like.
    ///
    /// # Errors
    /// When the path is ambiguous, or the query of a verb that selects too long.
    pub fn of(method: &Method, uri: &http::Uri, headers: &HeaderMap) -> Result<Option<Self>, BadRequest> {
        let Some(target) = path::parse(uri.path())? else { return Ok(None) };
        let named = target.resource.name.is_some();
        let mut verb = target.verb.unwrap_or_else(|| Verb::of_method(method));
        let mut query = Query::default();
        if verb == Verb::Watch || (!named && matches!(verb, Verb::Get | Verb::Delete)) {
            query = Query::parse(uri.query().unwrap_or_default())?;
            verb = match verb {
                Verb::Get if query.flag("watch") => Verb::Watch,
                Verb::Get => Verb::List,
                Verb::Delete => Verb::DeleteCollection,
                other => other,
            };
        }
        let upgrade = may_upgrade(headers, verb, &target.resource);
        Ok(Some(Self { verb, resource: target.resource, query, upgrade }))
    }
}

/// By both headers (RFC 9110, section 7.8). Without `Connection` the other one is nothing that was asked for here.
pub(crate) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let named = lines.flat_map(|line| line.split(',')).any(|name| name.trim().eq_ignore_ascii_case("upgrade"));
    named && headers.contains_key(header::UPGRADE)
}

/// Whether the connection may change to the protocol that is asked for. Of any other, a server on the way could make a
/// tunnel past the selector and the fence.
fn may_upgrade(headers: &HeaderMap, verb: Verb, resource: &Resource) -> bool {
    let protocol = headers.get(header::UPGRADE).filter(|_| asks_for_upgrade(headers));
    let is = |name: &str| protocol.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(name.as_bytes()));
    let of_pod = resource.kind.group.is_empty() && resource.kind.resource == "pods";
    let streams = match resource.subresource.as_deref() {
        Some("exec" | "attach" | "portforward") => of_pod,
        _ => resource.is_behind_api_server(),
    };
    is("websocket") && (streams || verb == Verb::Watch) || is("SPDY/3.1") && streams
}

#[cfg(test)]
mod tests;
