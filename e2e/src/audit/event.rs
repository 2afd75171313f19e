//! One line: an event of `audit.k8s.io/v1`, as far as it matters.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

use super::POD_NAME;

/// The verbs that write.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    #[serde(rename = "auditID")]
    pub(crate) id: String,
    pub(crate) stage: String,
    #[serde(rename = "requestURI")]
    pub(crate) request_uri: String,
    pub(crate) verb: String,
    pub(crate) user: User,
    #[serde(default)]
    pub(crate) user_agent: String,
    #[serde(default)]
    pub(crate) object_ref: Reference,
    #[serde(default)]
    pub(crate) response_status: Status,
    /// An object, or a patch of any kind.
    pub(crate) request_object: Option<Value>,
    pub(crate) response_object: Option<Response>,
    pub(crate) request_received_timestamp: MicroTime,
    pub(crate) stage_timestamp: MicroTime,
}

/// Who asked.
#[derive(Deserialize)]
pub(crate) struct User {
    #[serde(default)]
    pub(crate) username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reference {
    pub(crate) resource: String,
    pub(crate) api_group: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// The status of the answer; its code is 0 before there is one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// An object, a list of them, or a `Status`.
#[derive(Deserialize)]
pub(crate) struct Response {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Option<Spec>,
    pub(crate) details: Option<Details>,
    pub(crate) items: Option<Vec<Self>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) holder_identity: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Details {
    #[serde(default)]
    pub(crate) uid: String,
}

impl Event {
    /// Reads a line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// Whether the request writes, and is not only tried.
    pub(crate) fn is_write(&self) -> bool {
        WRITES.contains(&&*self.verb) && !self.request_uri.contains("dryRun=All")
    }
}

impl Reference {
    /// The resource with its subresource.
    pub(crate) fn resource(&self) -> String {
        [&*self.resource, &*self.subresource].join("/").trim_end_matches('/').to_owned()
    }
}

impl User {
    /// The Pod that the token is bound to.
    pub(crate) fn pod(&self) -> Option<&String> {
        self.extra.get(POD_NAME)?.first()
    }
}
