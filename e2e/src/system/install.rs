//! What is in the cluster before the first process: resources, permissions, the ring. From the same files that the
//! documentation gives to users.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Secret},
};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _, core::ApiResource};
use ringside_ring::{
    ClusterRing, RingName,
    cluster_ring::{Fence, GroupResource},
};
use serde_json::{Value, json};

use super::{Settings, SystemError};
use crate::{control_plane::Options, eventually::eventually, manifests, website::Website};

/// The sharder defines the resource, elects a leader and answers; each takes a second or two.
const RING_DEADLINE: Duration = Duration::from_secs(60);

/// The name of the definition that the sharder installs.
const CLUSTER_RINGS: &str = "clusterrings.sharding.timebertt.dev";

/// The resources of the ring.
pub(super) fn written() -> Vec<ApiResource> {
    vec![ApiResource::erase::<Website>(&()), ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Secret>(&())]
}

/// A control plane that writes down what is written to the ring's resources, and who holds which Lease.
pub(super) fn options(settings: &Settings) -> Options {
    let resources = written().into_iter().chain([ApiResource::erase::<Lease>(&())]);
    let written = resources.map(|one| GroupResource { group: one.group, resource: one.plural });
    let audit_writes = if settings.audit_requests { Vec::new() } else { written.collect() };
    Options {
        audit: settings.audit_requests,
        audit_writes,
        controller_manager: settings.controller_manager,
        line_to_etcd: settings.lines,
        api_server_flags: settings.api_server_flags.clone(),
        ..Options::default()
    }
}

/// The `Website` resource, and the permissions of sharder, proxy and operator.
pub(super) async fn resources_and_roles(client: &Client) -> Result<(), SystemError> {
    manifests::define(client, &Website::crd()).await?;
    for file in ["sharder.yaml", "proxy-roles.yaml", "example/roles.yaml"] {
        let mut objects = manifests::read(&deploy(file))?;
        // What a node would run, the harness starts itself.
        objects.retain(|object| !matches!(object.types.as_ref(), Some(types) if types.kind == "Deployment"));
        manifests::apply(client, &objects).await?;
    }
    Ok(())
}

/// What the Deployment of the sharder sets in its environment.
pub(super) fn sharder_environment() -> Result<Vec<(String, String)>, SystemError> {
    let objects = manifests::read(&deploy("sharder.yaml"))?;
    let set =
        objects.iter().filter_map(|object| object.data.pointer("/spec/template/spec/containers/0/env")?.as_array());
    let text = |variable: &Value, key: &str| variable[key].as_str().map(str::to_owned);
    Ok(set.flatten().filter_map(|variable| Some((text(variable, "name")?, text(variable, "value")?))).collect())
}

/// Installs what a sharder of ours would install itself.
pub(super) async fn define_cluster_rings(client: &Client) -> Result<(), SystemError> {
    manifests::apply(client, &manifests::read(&deploy("clusterring-crd.yaml"))?).await?;
    cluster_rings(client).await
}

/// Waits until the resource that the sharder installs is served.
pub(super) async fn cluster_rings(client: &Client) -> Result<(), SystemError> {
    Ok(manifests::served(client, CLUSTER_RINGS).await?)
}

/// Creates the example's ring, but for its fence, and waits until the sharder says that it is ready.
pub(super) async fn ring(client: &Client, fence: Fence) -> Result<RingName, SystemError> {
    let mut manifest = manifests::read(&deploy("example/ring.yaml"))?;
    manifest.iter_mut().for_each(|ring| ring.data["spec"]["fence"] = json!(fence));
    manifests::apply(client, &manifest).await?;
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let ready = eventually("the ring is ready", RING_DEADLINE, || async {
        let all = rings.list(&Default::default()).await.map_err(|error| error.to_string())?;
        let ring = all.items.first().ok_or("there is none")?;
        let conditions = ring.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let name: RingName = ring.name_any().parse().map_err(|error| format!("{error}"))?;
        ready.then_some(name).ok_or_else(|| format!("{conditions:?}"))
    });
    Ok(ready.await?)
}

/// Waits until the ring's status says that so many shards are available.
pub(super) async fn until_available(client: &Client, shards: usize, within: Duration) -> Result<(), SystemError> {
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let counted = eventually("the sharder counts the shards", within, || async {
        let all = rings.list(&Default::default()).await.map_err(|error| error.to_string())?;
        let status = all.items.first().and_then(|ring| ring.status.as_ref()).ok_or("there is no status")?;
        let available = status.available_shards;
        if usize::try_from(available) == Ok(shards) { Ok(()) } else { Err(format!("{available} of {shards}")) }
    });
    Ok(counted.await?)
}

/// Waits until the ring's status says that the API server fences it.
pub(super) async fn until_fenced(client: &Client, within: Duration) -> Result<(), SystemError> {
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let fenced = eventually("the API server's fence is in place", within, || async {
        let all = rings.list(&Default::default()).await.map_err(|error| error.to_string())?;
        let conditions = all.items.first().and_then(|ring| ring.status.clone()).unwrap_or_default().conditions;
        let fenced = conditions.iter().any(|condition| condition.type_ == "Fenced" && condition.status == "True");
        fenced.then_some(()).ok_or_else(|| format!("{conditions:?}"))
    });
    Ok(fenced.await?)
}

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}
