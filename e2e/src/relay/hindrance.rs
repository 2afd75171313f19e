//! Trouble with requests for one resource, as an API server has it that is overloaded, or can't reach its etcd.

use std::time::Duration;

use http::{Response, StatusCode, header};
use serde_json::json;

use super::forward::{Passing, full};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It is carried out at once, and answered so much later.
    Late(Duration),
    /// It is refused with this status. Who is told that it asks too often is told to wait for a second.
    Refused(StatusCode),
}

/// As an API server says it.
pub(super) fn refusal(status: StatusCode) -> Response<Passing> {
    let said = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
        "message": "the relay refuses this for a while"});
    let mut response = Response::new(full(said.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}
