//! Which resource is meant, as `kubectl` names it: by its plural, its singular, its kind or a short name, alone or with its group.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use kube::{
    Client,
    core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery},
};
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::explain;

/// Returns the object's resource and its name: `website shop` and `website/shop` name the same.
///
/// # Errors
/// When no object is named.
pub(super) fn object(resource: &str, object: Option<String>) -> anyhow::Result<(String, String)> {
    match (object, resource.split_once('/')) {
        (Some(object), _) => Ok((resource.to_owned(), object)),
        (None, Some((resource, object))) => Ok((resource.to_owned(), object.to_owned())),
        (None, None) => bail!("name the object as well: `ringside owner {resource} NAMESPACE/NAME`"),
    }
}

/// Returns the resources that are meant. The API server is asked where the name is not that of one of these.
///
/// # Errors
/// When the API server serves none of that name, or can't say.
pub(super) async fn resources(
    client: &Client,
    named: &str,
    shared: &BTreeSet<GroupResource>,
) -> anyhow::Result<BTreeSet<GroupResource>> {
    let is_named = |id: &&GroupResource| id.resource == named || id.to_string() == named;
    let exactly: BTreeSet<_> = shared.iter().filter(is_named).cloned().collect();
    if !exactly.is_empty() {
        return Ok(exactly);
    }
    let served =
        async { Ok([client.list_core_api_versions_aggregated().await?, client.list_api_groups_aggregated().await?]) };
    let served = served.await.map_err(|error| anyhow!("can't ask what the API server serves: {}", explain(&error)))?;
    let meant: BTreeSet<_> =
        served.iter().flat_map(|list| &list.items).flat_map(|group| meant_of(group, named)).collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let silent: Vec<_> =
        served.iter().flat_map(|list| &list.items).filter(|group| is_silent(group)).map(name_of).collect();
    if !silent.is_empty() {
        bail!("can't tell what '{named}' is: what serves {} does not answer", silent.join(", "));
    }
    bail!("the API server serves no resource '{named}'; `kubectl api-resources` lists what it serves");
}

fn name_of(group: &APIGroupDiscovery) -> &str {
    group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}

/// Whether the API server says nothing new of a group, as where an aggregated server is gone.
fn is_silent(group: &APIGroupDiscovery) -> bool {
    group.versions.iter().any(|version| version.freshness.as_deref() == Some("Stale"))
}

/// Returns those of a group that are meant.
fn meant_of<'a>(group: &'a APIGroupDiscovery, named: &'a str) -> impl Iterator<Item = GroupResource> + 'a {
    let name = name_of(group);
    let all = group.versions.iter().flat_map(|version| &version.resources);
    let (first, of) = named.split_once('.').map_or((named, None), |(first, of)| (first, Some(of)));
    let has = |named: &str| group.versions.iter().any(|version| version.version.as_deref() == Some(named));
    let is_of =
        of.is_none_or(|of| of == name || of.split_once('.').is_some_and(|(version, of)| has(version) && of == name));
    all.filter(move |resource| is_of && is_called(resource, first)).filter_map(move |resource| {
        Some(GroupResource { group: name.to_owned(), resource: resource.resource.clone()? })
    })
}

/// Whether a resource is called so, whatever the case.
fn is_called(resource: &APIResourceDiscovery, name: &str) -> bool {
    let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.as_ref());
    let names = [resource.resource.as_ref(), resource.singular_resource.as_ref(), kind];
    names.into_iter().flatten().chain(&resource.short_names).any(|it| it.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn id(group: &str, resource: &str) -> GroupResource {
        GroupResource { group: group.to_owned(), resource: resource.to_owned() }
    }

    /// Serves websites, and deployments of two groups.
    fn api_server() -> Client {
        let resource = |plural: &str, singular: &str, kind: &str, short: &[&str]| json!({"resource": plural, "singularResource": singular, "responseKind": {"kind": kind}, "shortNames": short});
        let group = |name: &str, resources: Vec<Value>| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]});
        let deployments = || resource("deployments", "deployment", "Deployment", &["deploy"]);
        let core = json!({"items": [group("", vec![resource("configmaps", "configmap", "ConfigMap", &["cm"])])]});
        let websites = resource("websites", "website", "Website", &["ws"]);
        let others = [
            group("apps", vec![deployments()]),
            group("old.io", vec![deployments()]),
            group("web.example.com", vec![websites]),
        ];
        let others = json!({"items": others});
        let service = tower::service_fn(move |request: Request<Body>| {
            let list = if request.uri().path() == "/api" { &core } else { &others };
            std::future::ready(Response::builder().body(Body::from(list.to_string().into_bytes())))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_resource_is_found_by_all_that_kubectl_takes() {
        let (client, shared) = (api_server(), BTreeSet::from([id("web.example.com", "websites")]));
        let found = async |named: &str| resources(&client, named, &shared).await.unwrap();
        for named in ["websites", "website", "Website", "ws", "ws.web.example.com", "websites.v1.web.example.com"] {
            assert_eq!(found(named).await, shared, "{named}");
        }
        assert_eq!(found("cm").await, [id("", "configmaps")].into());
        assert_eq!(found("deploy").await, [id("apps", "deployments"), id("old.io", "deployments")].into());
        assert_eq!(found("deployment.apps").await, [id("apps", "deployments")].into());
        for wrong in ["websits", "website.apps", "web", "websites.v2.web.example.com"] {
            let told = resources(&client, wrong, &shared).await.unwrap_err().to_string();
            assert!(told.contains(wrong) && told.contains("kubectl api-resources"), "{told}");
        }
    }

    #[test]
    fn an_object_is_named_behind_its_resource_or_with_it() {
        let of = |resource: &str, name: Option<&str>| object(resource, name.map(str::to_owned));
        let shop = ("website".to_owned(), "shop".to_owned());
        assert_eq!(of("website", Some("shop")).unwrap(), shop);
        assert_eq!(of("website/shop", None).unwrap(), shop);
        assert!(of("website", None).unwrap_err().to_string().contains("owner website NAMESPACE/NAME"));
    }
}
