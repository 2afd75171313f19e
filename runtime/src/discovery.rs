//! What the API server serves: from a group and a plural name to version, kind, scope and verbs.
//!
//! Asks by group, each version of it: a resource need not be in the group's preferred version.

use std::{cmp::Reverse, sync::Arc};

use kube::{
    Client,
    core::{GroupVersion, Version},
    discovery::{self, ApiCapabilities, ApiGroup, ApiResource, Scope},
};
use ringside_ring::cluster_ring::GroupResource;

use crate::explain::explain;

/// A resource in the version in which it is best asked for: the one that the API server prefers for the group, or else
/// the most stable one that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Group, version, kind and plural name.
    pub api: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    /// Whether its objects can be asked for in all of these ways.
    pub fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|it| it == verb))
    }
}

impl From<(ApiResource, ApiCapabilities)> for Served {
    fn from((api, ApiCapabilities { scope, operations, .. }): (ApiResource, ApiCapabilities)) -> Self {
        Self { api, namespaced: scope == Scope::Namespaced, verbs: operations }
    }
}

/// Why it is not known what the API server serves.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LookUpError {
    /// The group, or the resource in it, is not there.
    #[error("the API server does not serve {0}")]
    NotServed(GroupResource),
    /// The API server, or an aggregated one behind it, does not say.
    #[error("{}", explain(.0))]
    NoAnswer(#[source] Arc<kube::Error>),
}

impl From<kube::Error> for LookUpError {
    fn from(error: kube::Error) -> Self {
        Self::NoAnswer(Arc::new(error))
    }
}

/// The resources of a group; none if the group is not served.
#[derive(Default)]
pub struct Group {
    /// Those that answered, in the order in which they are best asked for.
    versions: Vec<ApiGroup>,
    /// Why a version did not answer: each may have a server of its own.
    silent: Option<LookUpError>,
}

impl Group {
    /// A resource of this group.
    ///
    /// # Errors
    /// When it is not served, or may be in a version that does not answer.
    pub fn find(&self, name: &GroupResource) -> Result<Served, LookUpError> {
        self.in_each_version(name).map(|mut served| served.swap_remove(0))
    }

    /// The same in each version that has it, the one in which it is best asked for first.
    ///
    /// # Errors
    /// When it is not served, or may be in a version that does not answer.
    pub fn in_each_version(&self, name: &GroupResource) -> Result<Vec<Served>, LookUpError> {
        let resources = self.versions.iter().flat_map(ApiGroup::recommended_resources);
        let served: Vec<_> = resources.filter(|(api, _)| api.plural == name.resource).map(Served::from).collect();
        if served.is_empty() {
            return Err(self.silent.clone().unwrap_or_else(|| LookUpError::NotServed(name.clone())));
        }
        Ok(served)
    }

    /// All its resources that answered, each in the version in which it is best asked for and without subresources; and
    /// why there may be more.
    pub fn all(&self) -> (Vec<Served>, Option<&LookUpError>) {
        let mut all: Vec<Served> = Vec::new();
        for served in self.versions.iter().flat_map(ApiGroup::recommended_resources).map(Served::from) {
            if !all.iter().any(|known| known.api.plural == served.api.plural) {
                all.push(served);
            }
        }
        (all, self.silent.as_ref())
    }
}

/// The names of all groups, the core group's among them.
///
/// # Errors
/// When the API server can't say.
pub async fn groups(client: &Client) -> Result<Vec<String>, LookUpError> {
    let named = client.list_api_groups().await?.groups.into_iter().map(|group| group.name);
    Ok(std::iter::once(ApiGroup::CORE_GROUP.to_owned()).chain(named).collect())
}

/// Asks for all resources of a group; the core group's name is empty.
///
/// # Errors
/// When the API server can't say which versions there are.
pub async fn group(client: &Client, name: &str) -> Result<Group, LookUpError> {
    let mut group = Group::default();
    for version in versions(client, name).await? {
        match discovery::pinned_group(client, &GroupVersion::gv(name, &version)).await {
            Ok(found) => group.versions.push(found),
            Err(error) => group.silent = Some(error.into()),
        }
    }
    Ok(group)
}

/// Asks for one resource.
///
/// # Errors
/// When it is not served, or the API server can't say.
pub async fn resource(client: &Client, name: &GroupResource) -> Result<Served, LookUpError> {
    group(client, &name.group).await?.find(name)
}

/// The versions of a group: the preferred one, and then the most stable first.
async fn versions(client: &Client, name: &str) -> Result<Vec<String>, kube::Error> {
    if name == ApiGroup::CORE_GROUP {
        return Ok(client.list_core_api_versions().await?.versions);
    }
    let group = client.list_api_groups().await?.groups.into_iter().find(|group| group.name == name);
    let Some(group) = group else { return Ok(Vec::new()) };
    let preferred = group.preferred_version.map(|version| version.version);
    let mut versions: Vec<_> = group.versions.into_iter().map(|version| version.version).collect();
    versions.sort_by_cached_key(|it| (Some(it) != preferred.as_ref(), Reverse(Version::parse(it).priority())));
    Ok(versions)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Request, Response, StatusCode};
    use kube::{client::Body, discovery::verbs};
    use serde_json::{Value, json};

    use super::*;

    fn served(name: &str, kind: &str, namespaced: bool, verbs: &[&str]) -> Value {
        json!({"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs})
    }

    /// Groups and the core; of one nothing is known at the moment, and of one half.
    fn api_server() -> Client {
        let version =
            |group: &str, version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
        let groups = json!({"groups": [
            {"name": "x.io", "versions": [version("x.io", "v1beta1"), version("x.io", "v2"), version("x.io", "v1")],
                "preferredVersion": version("x.io", "v1")},
            {"name": "down.io", "versions": [version("down.io", "v1")]},
            {"name": "half.io", "versions": [version("half.io", "v2"), version("half.io", "v1")]},
        ]});
        let all = ["get", "list", "watch", "patch"];
        let list = |version: &str, resources: &[Value]| json!({"groupVersion": version, "resources": resources});
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = match request.uri().path() {
                "/api" => (StatusCode::OK, json!({"versions": ["v1"]})),
                "/api/v1" => (StatusCode::OK, list("v1", &[served("secrets", "Secret", true, &all)])),
                "/apis" => (StatusCode::OK, groups.clone()),
                "/apis/x.io/v1" => {
                    let resources =
                        [served("things/status", "Thing", true, &["get"]), served("things", "Thing", true, &all)];
                    (StatusCode::OK, list("x.io/v1", &resources))
                }
                "/apis/x.io/v2" => (StatusCode::OK, list("x.io/v2", &[served("things", "Thing", true, &all)])),
                "/apis/half.io/v1" => (StatusCode::OK, list("half.io/v1", &[served("things", "Thing", true, &all)])),
                "/apis/x.io/v1beta1" => {
                    (StatusCode::OK, list("x.io/v1beta1", &[served("olds", "Old", false, &["get", "list"])]))
                }
                _ => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    json!({"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "code": 503, "message": "no endpoints"}),
                ),
            };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            std::future::ready(Response::builder().status(code).body(body))
        });
        Client::new(service, "default")
    }

    fn name(group: &str, resource: &str) -> GroupResource {
        GroupResource { group: group.to_owned(), resource: resource.to_owned() }
    }

    #[tokio::test]
    async fn all_resources_of_a_group_are_listed_once_and_what_is_silent_is_told() {
        let client = api_server();
        let names = |group: &Group| group.all().0.into_iter().map(|it| it.api.plural).collect::<Vec<_>>();
        let whole = group(&client, "x.io").await.unwrap();
        assert_eq!((names(&whole), whole.all().1.is_none()), (vec!["things".to_owned(), "olds".to_owned()], true));
        let half = group(&client, "half.io").await.unwrap();
        assert_eq!((names(&half), half.all().1.is_some()), (vec!["things".to_owned()], true));
        assert_eq!(groups(&client).await.unwrap(), ["", "x.io", "down.io", "half.io"]);
    }

    #[tokio::test]
    async fn a_resource_has_the_preferred_version_or_else_one_that_has_it() {
        let client = api_server();
        let things = resource(&client, &name("x.io", "things")).await.unwrap();
        assert_eq!((things.api.api_version.as_str(), things.api.kind.as_str()), ("x.io/v1", "Thing"));
        assert!(things.namespaced && things.supports(&[verbs::LIST, verbs::WATCH, verbs::PATCH]));
        let olds = resource(&client, &name("x.io", "olds")).await.unwrap();
        assert_eq!((olds.api.version.as_str(), olds.api.plural.as_str()), ("v1beta1", "olds"));
        assert!(!olds.namespaced && olds.supports(&[verbs::LIST]) && !olds.supports(&[verbs::LIST, verbs::WATCH]));
        let secrets = resource(&client, &name("", "secrets")).await.unwrap();
        assert_eq!((secrets.api.api_version.as_str(), secrets.api.group.as_str()), ("v1", ""));
    }

    #[tokio::test]
    async fn what_is_not_served_is_told_from_what_is_not_known() {
        let client = api_server();
        for missing in
            [name("x.io", "others"), name("x.io", "things/status"), name("y.io", "things"), name("", "things")]
        {
            let error = resource(&client, &missing).await.unwrap_err();
            assert!(matches!(&error, LookUpError::NotServed(it) if *it == missing), "{error}");
        }
        for unknown in [name("down.io", "things"), name("half.io", "others")] {
            let error = resource(&client, &unknown).await.unwrap_err();
            assert!(matches!(error, LookUpError::NoAnswer(_)), "{error}");
            assert!(error.to_string().contains("answered 503: no endpoints"), "{error}");
        }
        let things = resource(&client, &name("half.io", "things")).await.unwrap();
        assert_eq!(things.api.version, "v1", "of a version beside one that does not answer");
    }
}
