//! One line: an event of `audit.k8s.io/v1`, as far as it matters.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use serde::Deserialize;
use serde_json::Value;

use super::POD_NAME;

/// The verbs that write.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    #[serde(rename = "auditID")]
    pub(super) id: String,
    pub(super) stage: String,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: User,
    #[serde(default)]
    pub(super) user_agent: String,
    #[serde(default)]
    pub(super) object_ref: Reference,
    #[serde(default)]
    pub(super) response_status: Status,
    /// An object, or a patch of any kind.
    pub(super) request_object: Option<Value>,
    pub(super) response_object: Option<Response>,
    pub(super) request_received_timestamp: MicroTime,
    pub(super) stage_timestamp: MicroTime,
}

/// Who asked.
#[derive(Deserialize)]
pub(super) struct User {
    #[serde(default)]
    pub(super) username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reference {
    pub(super) resource: String,
    pub(super) api_group: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: String,
}

/// The status of the answer; its code is 0 before there is one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
}

/// An object, a list of them, or a `Status`.
#[derive(Deserialize)]
pub(super) struct Response {
    #[serde(default)]
    pub(super) metadata: Metadata,
    pub(super) spec: Option<Spec>,
    pub(super) details: Option<Details>,
    pub(super) items: Option<Vec<Self>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) holder_identity: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Details {
    #[serde(default)]
    pub(super) uid: String,
}

impl Event {
    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// Whether the request writes, and is not only tried.
    pub(super) fn is_write(&self) -> bool {
        WRITES.contains(&&*self.verb) && !self.request_uri.contains("dryRun=All")
    }
}

impl User {
    /// The Pod that the token is bound to.
    pub(super) fn pod(&self) -> Option<&String> {
        self.extra.get(POD_NAME)?.first()
    }
}
