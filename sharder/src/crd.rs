//! Installs the CustomResourceDefinition of `ClusterRing`.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use ringside_ring::manifest::clusterring_crd;

use crate::{FIELD_MANAGER, pauses::Pauses};
use ringside_runtime::explain::{code, explain};

/// How long the API server may take to serve a new definition.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Installs the definition, and waits until it is served. Tries until that succeeds, and says why it does not.
///
/// Every replica does so at its start: the write changes nothing when the definition is the same.
pub(crate) async fn install(client: &Client) {
    let mut pauses = Pauses::new();
    while let Err(error) = try_install(client).await {
        // Whoever installs definitions by other means need not let the sharder do it.
        if code(&error) == Some(403) && is_there(client).await {
            tracing::warn!(error = %explain(&error), "can't install the ClusterRing definition; using the one that is there");
            return;
        }
        tracing::warn!(error = %explain(&error), "can't install the ClusterRing definition; trying again");
        pauses.next().await;
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

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Method, StatusCode};
    use serde_json::json;

    use super::*;
    use crate::fixtures::FakeApi;

    /// Where the definition is.
    pub(crate) const PATH: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterrings.sharding.timebertt.dev";

    fn api() -> FakeApi {
        let api = FakeApi::default();
        api.put(PATH, json!({}));
        api
    }

    fn attempts(api: &FakeApi) -> usize {
        api.asked().iter().filter(|asked| asked.method == Method::PATCH).count()
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_away_is_waited_for() {
        let api = api();
        let mut failures = 3;
        api.intercept(move |asked, _| {
            let fails = asked.method == Method::PATCH && failures > 0;
            failures -= usize::from(fails);
            fails.then_some(StatusCode::SERVICE_UNAVAILABLE)
        });
        install(&api.client()).await;
        assert_eq!(attempts(&api), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_that_others_installed_is_used_where_installing_is_forbidden() {
        let api = api();
        api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::FORBIDDEN));
        install(&api.client()).await;
        assert_eq!(attempts(&api), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_and_definition_it_is_tried_again() {
        let api = api();
        api.intercept(|_, _| Some(StatusCode::FORBIDDEN));
        let given_up = tokio::time::timeout(Duration::from_secs(600), install(&api.client())).await;
        assert!(given_up.is_err());
        assert!((10..100).contains(&attempts(&api)), "{}", attempts(&api));
    }
}
