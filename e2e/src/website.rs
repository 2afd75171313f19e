//! The resource that the sample operator works on. Its definition is generated from here.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{CustomResource, Resource as _};
use ringside_ring::{HashRing, ShardName, partition::PartitionKey, placement::DEFAULT_TOKENS_PER_SHARD};
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

/// A ConfigMap of this name that the website controls.
///
/// # Panics
/// When the website has no name, or no uid yet.
#[must_use]
pub fn child(owner: &Website, name: &str) -> ConfigMap {
    let owner = owner.controller_owner_ref(&()).expect("what was created has both");
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Where websites belong among shards of the same weight.
#[derive(Debug)]
pub struct Homes(HashRing);

impl Homes {
    /// Among these shards.
    ///
    /// # Errors
    /// When one of them has a name that no shard can have.
    pub fn among<'a>(shards: impl IntoIterator<Item = &'a str>) -> Result<Self, <ShardName as std::str::FromStr>::Err> {
        let names = shards.into_iter().map(str::parse::<ShardName>).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(HashRing::new(names, DEFAULT_TOKENS_PER_SHARD)))
    }

    /// The shard that a website belongs to; none where there is no shard.
    pub fn of(&self, namespace: &str, name: &str) -> Option<&str> {
        let key = PartitionKey::of(&Website::group(&()), &Website::kind(&()), namespace, name);
        self.0.owner(&key).map(ShardName::as_str)
    }
}
