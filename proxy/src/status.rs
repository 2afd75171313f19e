//! The one place where the proxy's own errors become answers: Kubernetes `Status` objects.

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::{
    body::{Body, full},
    election::LockRefusal,
    request::{BadRequest, selector::ParseSelector},
    upstream::UpstreamError,
};

/// Why the proxy answers a request itself, and not as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The local token is missing or wrong.
    #[error("the request does not carry the token of this proxy: use the kubeconfig in its access folder")]
    Unauthorized,
    /// The request is ambiguous.
    #[error(transparent)]
    BadRequest(#[from] BadRequest),
    /// The selector of a request to a sharded resource can't be joined with the shard's.
    #[error("unable to parse the label selector: {0}")]
    Selector(#[from] ParseSelector),
    /// The body of a request to a sharded resource can't be read.
    #[error("{0} can't be sent to a resource of the ring: send it as plain JSON or protobuf")]
    OpaqueBody(&'static str),
    /// The answer to a watch of a sharded resource can't be read.
    #[error("the API server answered a watch of a resource of the ring in a format that was not asked for")]
    OpaqueWatch,
    /// This instance is not a shard at the moment.
    #[error("this instance does not hold its shard Lease at the moment")]
    NotAShard,
    /// It was one when it sent a request on that may have changed something.
    #[error("this instance lost its shard Lease before the API server answered: the request may have been done or not")]
    LostMeanwhile,
    /// What the ring shards is not known.
    #[error("{0}")]
    PolicyUnknown(String),
    /// The API server did not answer.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// A request to an election Lease that is answered here.
    #[error(transparent)]
    Lock(#[from] LockRefusal),
}

/// Seconds after which a client should try again what may work by then.
const RETRY_AFTER: u32 = 1;

struct Answer {
    code: StatusCode,
    reason: &'static str,
    /// Short, for metrics.
    label: &'static str,
    retry: bool,
}

impl Refusal {
    fn answer(&self) -> Answer {
        let answer = |code, reason, label| Answer { code, reason, label, retry: false };
        let later =
            |label| Answer { code: StatusCode::SERVICE_UNAVAILABLE, reason: "ServiceUnavailable", label, retry: true };
        match self {
            Self::Unauthorized => answer(StatusCode::UNAUTHORIZED, "Unauthorized", "token"),
            Self::BadRequest(_) => answer(StatusCode::BAD_REQUEST, "BadRequest", "ambiguous"),
            Self::Selector(_) => answer(StatusCode::BAD_REQUEST, "BadRequest", "selector"),
            Self::OpaqueBody(_) => answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "body"),
            Self::OpaqueWatch => answer(StatusCode::BAD_GATEWAY, "InternalError", "watch"),
            Self::NotAShard => later("lease"),
            // No Retry-After, here and where the API server did not answer: client-go repeats every request that is
            // answered with one, a POST with generateName too, which may have made an object already.
            Self::LostMeanwhile => answer(StatusCode::BAD_GATEWAY, "InternalError", "lease"),
            Self::PolicyUnknown(_) => later("ring"),
            // client-go repeats a request by itself when it may, which is when nothing can have happened yet.
            Self::Upstream(UpstreamError::Unreachable(_)) => later("unreachable"),
            Self::Upstream(_) => answer(StatusCode::BAD_GATEWAY, "InternalError", "upstream"),
            Self::Lock(refusal) => answer(refusal.code(), refusal.reason(), "lock"),
        }
    }

    /// A short name of the reason, one of few.
    pub fn label(&self) -> &'static str {
        self.answer().label
    }

    /// The answer to the client.
    pub fn into_response(self) -> Response<Body> {
        let Answer { code, reason, retry, .. } = self.answer();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("ringside-proxy: {self}"), "reason": reason, "code": code.as_u16(),
        });
        if retry {
            status["details"] = json!({ "retryAfterSeconds": RETRY_AFTER });
        }
        let mut response = Response::new(full(status.to_string()));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        if code == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_refusal_is_a_status_that_clients_understand() {
        let response = Refusal::NotAShard.into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let status: k8s_openapi::apimachinery::pkg::apis::meta::v1::Status = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((status.code, status.reason.as_deref()), (Some(503), Some("ServiceUnavailable")));
        assert!(status.message.unwrap().contains("shard Lease"));
    }
}
