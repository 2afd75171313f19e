//! The resource that the sample operator works on. Its definition is generated from here.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the user wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(group = "web.example.com", version = "v1", kind = "Website", namespaced)]
#[kube(status = "WebsiteStatus", derive = "Default", derive = "PartialEq")]
#[serde(rename_all = "camelCase", default)]
pub struct WebsiteSpec {
    /// What the site shows.
    pub content: String,
    /// How long it takes to set the site up.
    pub work_millis: u32,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WebsiteStatus {
    /// The generation that was last worked on.
    pub observed_generation: i64,
    /// The replica that worked on it.
    pub reconciled_by: String,
}
