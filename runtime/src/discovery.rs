//! What the API server serves: from a group and a plural name to version, kind, scope and verbs.
//!
//! Asks by group, each version of it: a resource need not be in the group's preferred version.

use kube::{
    Client,
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

/// Why it is not known what the API server serves.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// The group, or the resource in it, is not there.
    #[error("the API server does not serve {0}")]
    NotServed(GroupResource),
    /// The API server, or an aggregated one behind it, does not say.
    #[error("{}", explain(.0))]
    NoAnswer(#[source] kube::Error),
}

/// The resources of a group; none if the group is not served.
pub struct Group(Option<ApiGroup>);

impl Group {
    /// The resource of this plural name.
    pub fn find(&self, plural: &str) -> Option<Served> {
        let group = self.0.as_ref()?;
        let versions = std::iter::once(group.preferred_version_or_latest()).chain(group.versions());
        let mut resources = versions.flat_map(|version| group.versioned_resources(version));
        let (api, ApiCapabilities { scope, operations, .. }) = resources.find(|(api, _)| api.plural == plural)?;
        Some(Served { api, namespaced: scope == Scope::Namespaced, verbs: operations })
    }
}

/// Asks for all resources of a group; the core group's name is empty.
///
/// # Errors
/// When the API server can't say.
pub async fn group(client: &Client, name: &str) -> Result<Group, LookUpError> {
    match discovery::group(client, name).await {
        Ok(group) => Ok(Group(Some(group))),
        Err(kube::Error::Discovery(_)) => Ok(Group(None)),
        Err(error) => Err(LookUpError::NoAnswer(error)),
    }
}

/// Asks for one resource.
///
/// # Errors
/// When it is not served, or the API server can't say.
pub async fn resource(client: &Client, name: &GroupResource) -> Result<Served, LookUpError> {
    let found = group(client, &name.group).await?.find(&name.resource);
    found.ok_or_else(|| LookUpError::NotServed(name.clone()))
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

    /// Two groups and the core; of one nothing is known at the moment.
    fn api_server() -> Client {
        let version =
            |group: &str, version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
        let groups = json!({"groups": [
            {"name": "x.io", "versions": [version("x.io", "v1beta1"), version("x.io", "v2"), version("x.io", "v1")],
                "preferredVersion": version("x.io", "v1")},
            {"name": "down.io", "versions": [version("down.io", "v1")]},
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
        let error = resource(&client, &name("down.io", "things")).await.unwrap_err();
        assert!(matches!(error, LookUpError::NoAnswer(_)), "{error}");
        assert!(error.to_string().contains("answered 503: no endpoints"), "{error}");
    }
}
