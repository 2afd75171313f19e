//! The answer to a review. Reviews for rings always allow the write: the sharder labels objects, it forbids nothing.

use std::fmt::Display;

use json_patch::Patch;
use k8s_openapi::ByteString;
use serde::Serialize;

use super::request::{Unreadable, VERSION};

/// Characters that the API server passes on of a warning (AdmissionReview: "over 256 characters may be truncated").
const MAX_WARNING: usize = 256;

/// An `AdmissionReview` with an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// Why a write is refused.
#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    message: String,
}

impl Answer {
    /// The write may go on as it is.
    pub(super) fn allow(uid: impl Into<String>) -> Self {
        let response = Response {
            uid: uid.into(),
            allowed: true,
            patch_type: None,
            patch: None,
            warnings: Vec::new(),
            status: None,
        };
        Self { api_version: VERSION, kind: "AdmissionReview", response }
    }

    /// So may one that can't be read, if it is known which it is.
    pub(super) fn allow_unread(fault: &Unreadable) -> Self {
        Self::allow(fault.uid.clone().unwrap_or_default()).with_warning(fault.to_string())
    }

    /// The write is refused, with this reason.
    pub(super) fn refuse(uid: impl Into<String>, why: impl Display) -> Self {
        let mut answer = Self::allow(uid);
        answer.response.allowed = false;
        answer.response.status = Some(Status { code: 422, message: format!("ringside-sharder: {why}") });
        answer
    }

    /// It goes on with this change.
    pub(super) fn with_patch(mut self, patch: &Patch) -> Self {
        // Serializing a patch made of strings can't fail; without it the write is allowed all the same.
        if let Ok(bytes) = serde_json::to_vec(patch) {
            self.response.patch_type = Some("JSONPatch");
            self.response.patch = Some(ByteString(bytes));
        }
        self
    }

    /// The client that writes is told that something is odd.
    pub(super) fn with_warning(mut self, warning: impl Into<String>) -> Self {
        let mut warning = format!("ringside-sharder: {}", warning.into());
        let end = warning.floor_char_boundary(MAX_WARNING);
        warning.truncate(end);
        self.response.warnings.push(warning);
        self
    }
}
