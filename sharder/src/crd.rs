//! Installs the CustomResourceDefinition of `ClusterRing`.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use ringside_ring::manifest::clusterring_crd;

use crate::{
    FIELD_MANAGER,
    explain::{code, explain},
};

/// How soon another attempt is made.
const RETRY: Duration = Duration::from_secs(2);
/// How long the API server may take to serve a new definition.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Installs the definition, and waits until it is served. Tries until that succeeds, and says why it does not.
///
/// Every replica does so at its start: the write changes nothing when the definition is the same.
pub(crate) async fn install(client: &Client) {
    while let Err(error) = try_install(client).await {
        // Whoever installs definitions by other means need not let the sharder do it.
        if code(&error) == Some(403) && is_there(client).await {
            tracing::warn!(error = %explain(&error), "can't install the ClusterRing definition; using the one that is there");
            return;
        }
        tracing::warn!(error = %explain(&error), "can't install the ClusterRing definition; trying again");
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_install(client: &Client) -> Result<(), kube::Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = clusterring_crd();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&definition.name_any(), &parameters, &Patch::Apply(&definition)).await?;
    let name = definition.name_any();
    let established = await_condition(api, &name, is_crd_established());
    if tokio::time::timeout(ESTABLISH_TIMEOUT, established).await.is_err() {
        // The watch on rings tries until it can.
        tracing::warn!(name, "the API server does not serve the new definition yet");
    }
    Ok(())
}

async fn is_there(client: &Client) -> bool {
    let rings: Api<ringside_ring::ClusterRing> = Api::all(client.clone());
    rings.list(&kube::api::ListParams::default().limit(1)).await.is_ok()
}
