//! What is in the cluster before the first process: resources, permissions, the ring. From the same files that the
//! documentation gives to users.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client, CustomResourceExt as _, ResourceExt as _,
    core::{ApiResource, DynamicObject},
};
use ringside_ring::{
    RingKind, RingName,
    cluster_ring::{ClusterRingSpec, GroupResource},
    rights::{self, Shards},
};
use serde_json::{Value, json};

use super::{
    NAMESPACE, SERVICE_ACCOUNT, Settings, SystemError, plane::Place, published::Subject,
    sharder::NAMESPACE as SHARDER_NAMESPACE,
};
use crate::{
    control_plane::Options, helm::deploy, manifests, ring_status::until_condition, toolchain::Operator,
    website::Website,
};

/// The sharder elects a leader and answers; each takes a second or two.
const RING_DEADLINE: Duration = Duration::from_secs(60);

/// The resources of the ring that these settings make.
pub(super) fn of_ring(settings: &Settings) -> Vec<GroupResource> {
    let all = Subject::of(settings.operator).of_ring(settings.children_in_ring);
    all.into_iter().map(|one| GroupResource { group: one.group, resource: one.plural }).collect()
}

/// A control plane that writes down what an operator writes for its objects, and who holds which Lease.
pub(super) fn options(settings: &Settings) -> Options {
    let subject = Subject::of(settings.operator);
    let resources = subject.of_ring(true).into_iter().chain(subject.beside).chain([ApiResource::erase::<Lease>(&())]);
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
    manifests::apply(client, &[usual_account(NAMESPACE)?]).await?;
    let mut objects = manifests::read_folder(&deploy("kustomize/overlays/default"))?;
    objects.extend(manifests::read(&deploy("example/roles.yaml"))?);
    // What a node would run, the harness starts itself.
    objects.retain(|object| !matches!(object.types.as_ref(), Some(types) if types.kind == "Deployment"));
    manifests::apply(client, &objects).await?;
    Ok(manifests::served(client, RingKind::ClusterRing.names().definition).await?)
}

/// The `ControllerRing` resource.
pub(super) async fn controller_rings(client: &Client) -> Result<(), SystemError> {
    manifests::apply(client, &manifests::read(&deploy("kustomize/components/controller-rings/controllerring.yaml"))?)
        .await?;
    Ok(manifests::served(client, RingKind::ControllerRing.names().definition).await?)
}

/// Gives the sharder, and the proxies of the example's account in these namespaces, what they need for a ring.
pub(super) async fn rights(
    client: &Client,
    ring: &RingName,
    spec: &ClusterRingSpec,
    namespaces: &[&str],
) -> Result<(), SystemError> {
    let shards = namespaces.iter().map(|namespace| format!("{namespace}/{SERVICE_ACCOUNT}").parse());
    let shards: Vec<Shards> = shards.collect::<Result<_, _>>().unwrap_or_default();
    let objects = rights::rights(ring, spec, SHARDER_NAMESPACE, &shards);
    let objects = objects.into_iter().map(serde_json::from_value).collect::<Result<Vec<_>, _>>();
    Ok(manifests::apply(client, &objects.map_err(anyhow::Error::from)?).await?)
}

/// The spec of the example's ring, for what this operator works on.
fn example(operator: Operator) -> Result<ClusterRingSpec, SystemError> {
    let mut ring = manifests::read(&deploy("example/ring.yaml"))?.remove(0);
    ring.data["spec"]["resources"] = Subject::of(operator).spec(true);
    Ok(serde_json::from_value(ring.data["spec"].clone()).map_err(anyhow::Error::from)?)
}

/// What the Deployment of the sharder sets in its environment.
pub(super) fn sharder_environment() -> Result<Vec<(String, String)>, SystemError> {
    let objects = manifests::read(&deploy("kustomize/base/sharder/deployment.yaml"))?;
    let set =
        objects.iter().filter_map(|object| object.data.pointer("/spec/template/spec/containers/0/env")?.as_array());
    let text = |variable: &Value, key: &str| variable[key].as_str().map(str::to_owned);
    Ok(set.flatten().filter_map(|variable| Some((text(variable, "name")?, text(variable, "value")?))).collect())
}

/// Creates a namespace whose Pods may do there what those of the example may do in theirs, for a ring of the same name.
pub(super) async fn namespace(client: &Client, name: &str) -> Result<(), SystemError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let namespace = serde_json::from_value(namespace).map_err(anyhow::Error::from)?;
    let mut objects = vec![namespace, usual_account(name)?];
    let roles = manifests::read(&deploy("example/roles.yaml"))?;
    for mut role in roles.into_iter().filter(|role| !role.name_any().starts_with("ringside-")) {
        // The rules are there.
        if role.metadata.namespace.is_none() && role.data.get("subjects").is_none() {
            continue;
        }
        put_into(&mut role, name);
        objects.push(role);
    }
    Ok(manifests::apply(client, &objects).await?)
}

/// Puts an object of a namespace into this one, and subjects; a binding of the cluster is one beside those of others.
fn put_into(object: &mut DynamicObject, name: &str) {
    if let Some(namespace) = &mut object.metadata.namespace {
        name.clone_into(namespace);
    } else if object.data.get("subjects").is_some() {
        object.metadata.name = Some(format!("{}-{name}", object.name_any()));
    }
    for subject in object.data.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        subject["namespace"] = json!(name);
    }
}

/// Gives Pods in a namespace what their operator needs beside the rights of the example.
pub(super) async fn rights_of_operator(
    client: &Client,
    operator: Operator,
    namespace: &str,
) -> Result<(), SystemError> {
    let file = operator.folder().join("rights.yaml");
    if !file.exists() {
        return Ok(());
    }
    let is_definition =
        |object: &DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == "CustomResourceDefinition");
    let (definitions, mut objects): (Vec<_>, Vec<_>) = manifests::read(&file)?.into_iter().partition(is_definition);
    manifests::apply(client, &definitions).await?;
    for definition in &definitions {
        manifests::served(client, &definition.name_any()).await?;
    }
    objects.iter_mut().for_each(|object| put_into(object, namespace));
    Ok(manifests::apply(client, &objects).await?)
}

/// Gives sharder and proxies what they need for the ring of a system.
pub(super) async fn rights_of_ring(client: &Client, place: &Place, operator: Operator) -> Result<(), SystemError> {
    rights(client, &place.ring, &example(operator)?, &[&*place.namespace]).await
}

/// The ServiceAccount of Pods that name none. Where the controller manager runs, it makes one.
fn usual_account(namespace: &str) -> Result<DynamicObject, SystemError> {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
    Ok(serde_json::from_value(account).map_err(anyhow::Error::from)?)
}

/// Creates the example's ring, but for its place, its fence and its resources, and waits until the sharder says that it is ready.
pub(super) async fn ring(client: &Client, place: &Place, settings: &Settings) -> Result<RingName, SystemError> {
    let mut manifest = manifests::read(&deploy("example/ring.yaml"))?;
    for ring in &mut manifest {
        ring.metadata.name = Some(place.ring.name().to_owned());
        ring.types.get_or_insert_default().kind = place.ring.kind().to_string();
        ring.data["spec"]["fence"] = json!(settings.fence);
        ring.data["spec"]["resources"] = Subject::of(settings.operator).spec(settings.children_in_ring);
        if place.is_shared {
            let own = json!({"matchLabels": {"kubernetes.io/metadata.name": place.namespace}});
            ring.data["spec"]["namespaceSelector"] = own;
        }
    }
    manifests::apply(client, &manifest).await?;
    until_condition(client, &place.ring, "Ready", "True", RING_DEADLINE).await?;
    Ok(place.ring.clone())
}
