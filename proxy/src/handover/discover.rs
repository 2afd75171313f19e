//! From a group and a plural name to what the API server calls them: version, kind, and whether namespaced.

use kube::{Client, core::ApiResource};
use ringside_ring::cluster_ring::GroupResource;

/// Why a resource can't be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoverError {
    #[error("the API server does not serve {0}")]
    Unknown(GroupResource),
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// Asks the API server, whose preferred version comes first.
pub(super) async fn discover(client: &Client, resource: &GroupResource) -> Result<ApiResource, DiscoverError> {
    let versions = if resource.group.is_empty() {
        client.list_core_api_versions().await?.versions
    } else {
        let groups = client.list_api_groups().await?.groups;
        let Some(group) = groups.into_iter().find(|group| group.name == resource.group) else {
            return Err(DiscoverError::Unknown(resource.clone()));
        };
        let preferred = group.preferred_version.map(|version| version.version);
        let mut versions: Vec<_> = group.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        versions
    };
    for version in versions {
        let list = if resource.group.is_empty() {
            client.list_core_api_resources(&version).await?
        } else {
            client.list_api_group_resources(&format!("{}/{version}", resource.group)).await?
        };
        if let Some(found) = list.resources.into_iter().find(|it| it.name == resource.resource) {
            return Ok(ApiResource {
                api_version: list.group_version,
                group: resource.group.clone(),
                version,
                kind: found.kind,
                plural: found.name,
            });
        }
    }
    Err(DiscoverError::Unknown(resource.clone()))
}
