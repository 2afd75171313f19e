//! The API server that ends, and what it forgets or learns again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, CustomResourceExt as _, ResourceExt as _, api::ListParams};
use serde_json::json;
use tokio::time::Instant;

use crate::{chaos::run::Run, manifests, website::Website};

/// It is killed, and comes back with nothing in memory.
pub(super) async fn restart(run: &mut Run, lasts: Duration) -> Result<usize> {
    run.system.stop_api_server().await?;
    let passed = run.pass(Instant::now() + lasts).await;
    run.system.start_api_server().await?;
    passed.map(|()| 1)
}

/// etcd forgets what was before now: who asks for that is answered with 410.
pub(super) async fn forget_history(run: &mut Run) -> Result<usize> {
    let now = run.workload.api(&run.client).list_metadata(&ListParams::default().limit(1)).await?;
    let now = now.metadata.resource_version.context("a list without a resourceVersion")?;
    run.system.control_plane().forget_before(&now).await?;
    Ok(1)
}

/// The resource gets a new version, which is preferred, and whose conversion calls a port where nothing listens. It
/// goes again. Returns how many versions there were meanwhile beyond those of before.
pub(super) async fn prefer_a_version_without_conversion(run: &mut Run, lasts: Duration) -> Result<usize> {
    let before = Website::crd();
    let mut newer = before.clone();
    let mut version = before.spec.versions.first().context("a resource without a version")?.clone();
    (version.name, version.storage) = ("v2".to_owned(), false);
    newer.spec.versions.push(version);
    newer.spec.conversion = Some(serde_json::from_value(json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]},
    }))?);
    manifests::define(&run.client, &newer).await?;
    let passed = run.pass(Instant::now() + lasts).await;
    // An apply without a field that it set takes that field away.
    manifests::define(&run.client, &before).await?;
    let after = Api::<CustomResourceDefinition>::all(run.client.clone()).get(&before.name_any()).await?;
    passed.map(|()| newer.spec.versions.len() - after.spec.versions.len())
}

/// The definition gets another description: the API server makes the resource's storage and caches again, and ends its
/// watches. Returns how many definitions changed.
pub(super) async fn define_again(run: &mut Run) -> Result<usize> {
    let definitions: Api<CustomResourceDefinition> = Api::all(run.client.clone());
    let mut definition = Website::crd();
    let before = definitions.get(&definition.name_any()).await?.metadata.generation;
    for schema in definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()) {
        let schema = schema.open_api_v3_schema.get_or_insert_default();
        schema.description = Some(format!("As of {:?}", run.system.monitor().now()));
    }
    manifests::define(&run.client, &definition).await?;
    let after = definitions.get(&definition.name_any()).await?.metadata.generation;
    Ok(usize::from(before != after))
}
