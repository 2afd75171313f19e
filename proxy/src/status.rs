//! The one place where the proxy's own errors become answers: Kubernetes `Status` objects.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use serde_json::{Value, json};

use crate::{
    body::{Body, BodyStalled, full},
    election::{LeadInDoubt, LockRefusal},
    metadata::Unreadable,
    peering::presence::NotThere,
    policy::ANSWER,
    request::{BadRequest, representation::Encoding, selector::ParseSelector},
    upstream::UpstreamError,
    views::Expired,
    wire,
};

/// An object, as a `Status` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its resource.
    pub resource: GroupResource,
    /// Its name.
    pub name: String,
}

/// Why the proxy answers a request itself, and not as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The local token is missing or wrong.
    #[error("the request does not carry the token of this proxy: use the kubeconfig in its access folder")]
    Unauthorized,
    /// The API server does not know the token of the request, which is not this proxy's either.
    #[error("the API server does not accept the token of the request: use the kubeconfig in the proxy's access folder")]
    RejectedToken,
    /// The API server does not say whose the token is.
    #[error("can't find out whose the token of the request is: {0}")]
    UnverifiedToken(Arc<str>),
    /// What it asks for is a tunnel, or an echo of its credentials.
    #[error("the methods CONNECT and TRACE do not pass: send a request of the Kubernetes API")]
    Method,
    /// The request is ambiguous.
    #[error(transparent)]
    BadRequest(#[from] BadRequest),
    /// The selector of a request to a sharded resource can't be joined with the shard's.
    #[error("unable to parse the label selector: {0}")]
    Selector(#[from] ParseSelector),
    /// The body of a request to a sharded resource, or to what may be the lock of the controller's election, can't be read.
    #[error(
        "a compressed body can't be read here, where a resource of the ring, a Lease or a ConfigMap is written: send it uncompressed"
    )]
    CompressedBody,
    /// The proxy reads no CBOR.
    #[error("a CBOR body can't be read here: send JSON or protobuf")]
    CborBody,
    /// The answer to a watch of a sharded resource can't be read.
    #[error("the API server answered a watch of a resource of the ring in a format that was not asked for")]
    OpaqueWatch,
    /// A state was asked for in which an object may still be this shard's that is not any more.
    #[error("too old resource version: {0}: objects of the ring were moved since: list again")]
    Expired(ResourceVersion),
    /// The page of a list from before objects were released.
    #[error(transparent)]
    ExpiredPage(#[from] Expired),
    /// This instance is not a shard at the moment.
    #[error("this instance does not hold its shard Lease at the moment")]
    NotAShard,
    /// The controller may believe that it leads, by a lock that the ring may have lost.
    #[error(transparent)]
    LeadInDoubt(#[from] LeadInDoubt),
    /// Neither was so when it sent a request on that may have changed something.
    #[error(
        "this instance lost its shard Lease, or may have lost the lock of the controller's election, before the API server answered: the request may have been done or not"
    )]
    LostMeanwhile,
    /// A deletion of many, of a resource whose objects the sharder is about to label.
    #[error("{0} joined the ring, and their objects are being labelled: send the deletion again in a moment")]
    Unlabelled(GroupResource),
    /// What the ring shards is not known.
    #[error("{0}")]
    PolicyUnknown(String),
    /// The API server did not answer.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// An object of the ring that is another shard's.
    #[error("{} \"{}\" not found: it is not this shard's", .0.resource, .0.name)]
    NotOurs(Box<Named>),
    /// A write about an object of the ring that is not this shard's, or not any more.
    #[error(
        "the request can't be fulfilled on {} \"{}\": {why}; it is that shard's to work on, and looks deleted here", .object.resource, .object.name
    )]
    Moved {
        /// The object; for one that it would control, the controller.
        object: Box<Named>,
        /// Whose it is.
        why: String,
    },
    /// An object that would be created under an owner, while the controller may not know of those that are there.
    #[error(
        "the watch on {} was broken off, and the controller may not know yet of all that there is: nothing was created, and \
         it has to look again", .0.resource
    )]
    Interrupted(Box<Named>),
    /// A `Binding` that names its Pod in the body alone.
    #[error(
        "a Binding of a resource of the ring is judged by its Pod's labels: post it to pods/NAME/binding, and not to bindings"
    )]
    BindingByItself,
    /// It is not known whose an object is.
    #[error("can't find out whose {} \"{}\" is: {why}", .object.resource, .object.name)]
    Unverified {
        /// The object.
        object: Box<Named>,
        /// What went wrong.
        why: String,
        /// Whether a user has to fix that.
        forbidden: bool,
    },
    /// The body of a write to a controlled resource can't be read for sure.
    #[error("the owners in the body can't be read: {0}")]
    Owners(#[from] Unreadable),
    /// A deletion of many that concerns more owners than can be judged at once.
    #[error("it selects children of more than {0} objects: delete in smaller selections, by label or by namespace")]
    TooManyOwners(usize),
    /// It is longer than the API server takes, which says so in these words.
    #[error("Request entity too large: limit is {0}")]
    TooLong(usize),
    /// All bytes that may be held in buffers are held.
    #[error("the proxy holds as many bytes of requests and answers as it may: send the request again in a moment")]
    NoRoom,
    /// The client has stopped to send the body.
    #[error("{0}: nothing was written, send the request again")]
    BodyStalled(BodyStalled),
    /// The client did not send the whole body.
    #[error("the body did not come whole: {0}")]
    Cut(String),
    /// The API server does not say in time how far a resource is.
    #[error(
        "the API server did not say within {answer:?} at which resourceVersion {0} are, which every list and watch is compared \
         with: try again",
        answer = ANSWER
    )]
    FloorUnknown(GroupResource),
    /// A request to an election's lock that is answered here.
    #[error(transparent)]
    Lock(#[from] LockRefusal),
    /// What the controller says of itself to kopf's peers can't be said for the ring.
    #[error(transparent)]
    Peers(#[from] NotThere),
}

/// Seconds after which a client should try again what may work by then.
const RETRY_AFTER: i32 = 1;

struct Reply {
    code: StatusCode,
    reason: &'static str,
    /// Short, for metrics.
    label: &'static str,
    retry: bool,
}

impl Refusal {
    fn answer(&self) -> Reply {
        let answer = |code, reason, label| Reply { code, reason, label, retry: false };
        let later =
            |label| Reply { code: StatusCode::SERVICE_UNAVAILABLE, reason: "ServiceUnavailable", label, retry: true };
        match self {
            Self::Unauthorized | Self::RejectedToken => answer(StatusCode::UNAUTHORIZED, "Unauthorized", "token"),
            Self::UnverifiedToken(_) => later("account"),
            Self::Method => answer(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "method"),
            Self::BadRequest(_) => answer(StatusCode::BAD_REQUEST, "BadRequest", "ambiguous"),
            Self::Selector(_) => answer(StatusCode::BAD_REQUEST, "BadRequest", "selector"),
            // Each as the API server refuses it (tried).
            Self::CompressedBody => answer(StatusCode::BAD_REQUEST, "BadRequest", "body"),
            Self::CborBody => answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "body"),
            Self::OpaqueWatch => answer(StatusCode::BAD_GATEWAY, "InternalError", "watch"),
            // The words by which clients know that they have to list again.
            Self::Expired(_) | Self::ExpiredPage(_) => answer(StatusCode::GONE, "Expired", "expired"),
            Self::NotAShard => later("lease"),
            Self::LeadInDoubt(_) => later("lead"),
            // No Retry-After, here and where the API server did not answer: client-go repeats every request that is
            // answered with one, a POST with generateName too, which may have made an object already.
            Self::LostMeanwhile => answer(StatusCode::BAD_GATEWAY, "InternalError", "lease"),
            Self::PolicyUnknown(_) => later("ring"),
            Self::Unlabelled(_) => later("unlabelled"),
            Self::FloorUnknown(_) => later("floor"),
            Self::NoRoom => {
                Reply { code: StatusCode::TOO_MANY_REQUESTS, reason: "TooManyRequests", label: "buffers", retry: true }
            }
            Self::BodyStalled(_) => answer(StatusCode::REQUEST_TIMEOUT, "Timeout", "stalled"),
            // The controller has to find out again whether there is something to create. A 503 some clients (fabric8)
            // repeat as it is, and a 409 many take for the word that it exists.
            Self::Interrupted(_) => answer(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "interrupted"),
            // client-go repeats a request by itself when it may, which is when nothing can have happened yet.
            Self::Upstream(UpstreamError::Unreachable(_) | UpstreamError::NotProcessed(_)) => later("unreachable"),
            Self::Upstream(_) => answer(StatusCode::BAD_GATEWAY, "InternalError", "upstream"),
            Self::NotOurs(_) => answer(StatusCode::NOT_FOUND, "NotFound", "foreign"),
            Self::Moved { .. } => answer(StatusCode::CONFLICT, "Conflict", "moved"),
            Self::BindingByItself => answer(StatusCode::FORBIDDEN, "Forbidden", "binding"),
            Self::Unverified { forbidden: true, .. } => answer(StatusCode::FORBIDDEN, "Forbidden", "labels"),
            Self::Unverified { .. } => later("labels"),
            Self::Owners(Unreadable::Form) => {
                answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "owners")
            }
            Self::Owners(_) | Self::Cut(_) => answer(StatusCode::BAD_REQUEST, "BadRequest", "owners"),
            Self::TooLong(_) => answer(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "length"),
            Self::TooManyOwners(_) => answer(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", "owners"),
            Self::Lock(refusal) => {
                let (code, reason) = refusal.answer();
                let label = if matches!(refusal, LockRefusal::NoRoom { .. }) { "lock_without_room" } else { "lock" };
                answer(code, reason, label)
            }
            Self::Peers(NotThere { refused, .. }) => match *refused {
                Some(code @ StatusCode::FORBIDDEN) => answer(code, "Forbidden", "peers"),
                Some(code @ StatusCode::CONFLICT) => answer(code, "Conflict", "peers"),
                Some(code @ StatusCode::UNPROCESSABLE_ENTITY) => answer(code, "Invalid", "peers"),
                _ => later("peers"),
            },
        }
    }

    /// A short name of the reason, one of few.
    pub fn label(&self) -> &'static str {
        self.answer().label
    }

    fn object(&self) -> Option<Named> {
        match self {
            Self::NotOurs(object) | Self::Moved { object, .. } | Self::Unverified { object, .. } => {
                Some(Named::clone(object))
            }
            Self::Lock(refusal) => {
                refusal.lock().map(|lock| Named { resource: lock.kind.resource(), name: lock.name.clone() })
            }
            _ => None,
        }
    }

    /// The answer to the client, in the form that it asked for.
    pub(crate) fn into_response(self, encoding: Encoding) -> Response<Body> {
        let Reply { code, reason, retry, .. } = self.answer();
        let mut status = wire::Status::failure(code, reason, format!("ringside-proxy: {self}"));
        // Of errors about one object the kind is the resource (`NewNotFound` of k8s.io/apimachinery).
        status.details = self.object().map(|Named { resource: GroupResource { group, resource: kind }, name }| {
            wire::StatusDetails { name, group, kind, ..wire::StatusDetails::default() }
        });
        if retry {
            status.details.get_or_insert_default().retry_after_seconds = RETRY_AFTER;
        }
        // As the API server, no WWW-Authenticate with a 401: clients have no other credentials to try.
        let mut response = Response::new(full(status.encoded(encoding)));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
        // What the API server puts on every answer.
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if code == StatusCode::METHOD_NOT_ALLOWED {
            let methods = HeaderValue::from_static("GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE");
            response.headers_mut().insert(header::ALLOW, methods);
        }
        if retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        response
    }
}

impl wire::Status {
    /// One of a request that is not done.
    pub(crate) fn failure(code: StatusCode, reason: &str, message: String) -> Self {
        Self {
            metadata: Some(wire::ListMeta::default()),
            status: "Failure".to_owned(),
            message,
            reason: reason.to_owned(),
            code: code.as_u16().into(),
            ..Self::default()
        }
    }

    /// The object in this encoding.
    pub(crate) fn encoded(&self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Json => self.json().to_string().into(),
            Encoding::Protobuf => wire::wrap("v1", "Status", self),
        }
    }

    fn json(&self) -> Value {
        let details = self.details.as_ref().map(|details| {
            given([
                ("name", json!(details.name)),
                ("group", json!(details.group)),
                ("kind", json!(details.kind)),
                ("retryAfterSeconds", json!(details.retry_after_seconds)),
                ("uid", json!(details.uid)),
            ])
        });
        given([
            ("kind", json!("Status")),
            ("apiVersion", json!("v1")),
            ("metadata", json!({})),
            ("status", json!(self.status)),
            ("message", json!(self.message)),
            ("reason", json!(self.reason)),
            ("details", json!(details)),
            ("code", json!(self.code)),
        ])
    }
}

/// Of these fields those that say something, as in protobuf.
fn given<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let empty = [Value::Null, json!(""), json!(0)];
    let given = fields.into_iter().filter(|(_, value)| !empty.contains(value));
    given.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::BodyExt;
    use prost::Message;

    use super::*;
    use crate::election::{Kind, LockName};

    async fn body(response: Response<Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_refusal_is_a_status_that_clients_understand() {
        let response = Refusal::NotAShard.into_response(Encoding::Json);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let bytes = body(response).await;
        let status: k8s_openapi::apimachinery::pkg::apis::meta::v1::Status = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((status.code, status.reason.as_deref()), (Some(503), Some("ServiceUnavailable")));
        assert_eq!(status.details.unwrap().retry_after_seconds, Some(1));
        assert!(status.message.unwrap().contains("shard Lease"));
    }

    #[tokio::test]
    async fn a_refusal_of_a_lock_names_it_as_the_api_server_does() {
        for (kind, details) in [
            (Kind::Lease, json!({"name": "lock", "group": "coordination.k8s.io", "kind": "leases"})),
            (Kind::ConfigMap, json!({"name": "lock", "kind": "configmaps"})),
        ] {
            let name = LockName { kind, namespace: "ns".to_owned(), name: "lock".to_owned() };
            let response = Refusal::Lock(LockRefusal::Conflict(name)).into_response(Encoding::Json);
            let status: serde_json::Value = serde_json::from_slice(&body(response).await).unwrap();
            assert_eq!(status["details"], details, "{status}");
        }
    }

    #[tokio::test]
    async fn a_client_of_protobuf_is_answered_the_same_in_protobuf() {
        let response = Refusal::NotAShard.into_response(Encoding::Protobuf);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf");
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let unknown = wire::unwrap(&body(response).await).unwrap();
        let kind = unknown.type_meta.unwrap();
        assert_eq!((kind.api_version.as_str(), kind.kind.as_str()), ("v1", "Status"));
        let status = wire::Status::decode(unknown.raw).unwrap();
        assert_eq!(
            (status.code, status.reason.as_str(), status.status.as_str()),
            (503, "ServiceUnavailable", "Failure")
        );
        assert_eq!(status.details.unwrap().retry_after_seconds, 1);
        assert!(status.message.contains("shard Lease"));
    }
}
