//! Tells the API server and the users about a ring: its webhook configuration and its status. The leader does this.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::{api::admissionregistration::v1::MutatingWebhookConfiguration, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use ringside_ring::{ClusterRing, cluster_ring::ClusterRingStatus};
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{
    status::status,
    webhook_configuration::{ClientConfig, webhook_configuration},
};
use crate::{FIELD_MANAGER, faults::Faults, metrics::Metrics, snapshot::Snapshot};
use ringside_runtime::explain::explain;

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What telling about a ring needs.
pub(crate) struct Told {
    pub(crate) client: Client,
    pub(crate) client_config: Arc<ClientConfig>,
    /// What is refused to those who distribute the objects.
    pub(crate) faults: Faults,
    pub(crate) metrics: Metrics,
    pub(crate) period: Duration,
}

/// Keeps the webhook configuration and the status of one ring.
pub(crate) async fn reconcile(told: Told, mut snapshots: watch::Receiver<Arc<Snapshot>>) -> Infallible {
    let Told { client, client_config, faults, metrics, period } = told;
    let mut refused = faults.changes();
    let mut configured: Option<(MutatingWebhookConfiguration, Instant)> = None;
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        refused.borrow_and_update();
        let mut problems = Vec::new();
        let wanted = webhook_configuration(&snapshot, &client_config);
        // Once a period it is written again, in case somebody changed or deleted it.
        if configured.as_ref().is_none_or(|(written, at)| *written != wanted || at.elapsed() >= period) {
            match configure(&client, &wanted).await {
                Ok(()) => configured = Some((wanted, Instant::now())),
                Err(error) => problems.push(format!("the webhook can't be configured: {}", explain(&error))),
            }
        }
        let mut failed = !problems.is_empty();
        for problem in &problems {
            tracing::warn!(ring = %snapshot.ring, problem, "a ring can't be set up; trying again");
        }
        // They are logged where they happen.
        problems.extend(faults.of(&snapshot));
        let status = status(&snapshot, &problems, Timestamp::now());
        metrics.status(&snapshot.ring, status.shards, status.available_shards);
        if let Err(error) = report(&client, &snapshot, &status).await {
            failed = true;
            tracing::warn!(ring = %snapshot.ring, error = %explain(&error), "can't write the status of a ring; trying again");
        }
        let pause = if failed { RETRY } else { period };
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                // The ring is gone: whoever started this is about to stop it.
                std::future::pending::<()>().await;
            },
            // The sender lives in `faults`, so this fails never.
            _ = refused.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn configure(client: &Client, wanted: &MutatingWebhookConfiguration) -> Result<(), kube::Error> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&wanted.name_any(), &parameters, &Patch::Apply(wanted)).await.map(|_| ())
}

async fn report(client: &Client, snapshot: &Snapshot, wanted: &ClusterRingStatus) -> Result<(), kube::Error> {
    if snapshot.pending || snapshot.status.as_ref() == Some(wanted) {
        return Ok(());
    }
    let api: Api<ClusterRing> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"uid": snapshot.uid}, "status": wanted}));
    api.patch_status(snapshot.ring.as_str(), &PatchParams::default(), &patch).await?;
    tracing::info!(
        ring = %snapshot.ring, shards = wanted.shards, available = wanted.available_shards,
        problems = ?snapshot.problems, "reported the status of a ring"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::core::Status;

    use super::*;
    use crate::{faults::Task, fixtures::FakeApi, snapshot::tests::snapshot};

    const STATUS: &str = "/apis/sharding.timebertt.dev/v1alpha1/clusterrings/example/status";

    #[tokio::test(start_paused = true)]
    async fn a_ring_is_not_ready_while_its_objects_are_refused() {
        let api = FakeApi::default();
        let ring = json!({"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": "example"}, "spec": {}});
        api.put(STATUS, ring);
        let client_config = ClientConfig { namespace: "sharding-system".into(), url: None, ca_bundle: Vec::new() };
        let snapshot = Arc::new(snapshot());
        let wanted = webhook_configuration(&snapshot, &client_config);
        let path = format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{}", wanted.name_any());
        api.put(&path, serde_json::to_value(&wanted).unwrap());
        let faults = Faults::default();
        let told = Told {
            client: api.client(),
            client_config: Arc::new(client_config),
            faults: faults.clone(),
            metrics: Metrics::default(),
            period: Duration::from_secs(300),
        };
        let (_sender, snapshots) = watch::channel(snapshot.clone());
        let task = tokio::spawn(async move { reconcile(told, snapshots).await });
        let ready = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let condition = api.get(STATUS).unwrap()["status"]["conditions"][0].clone();
            (condition["status"].as_str().unwrap().to_owned(), condition["message"].as_str().unwrap().to_owned())
        };
        assert_eq!(ready().await.0, "True");
        let main = &snapshot.mains[0].resource.id;
        let forbidden = kube::Error::Api(Status::failure("cannot watch", "Forbidden").with_code(403).boxed());
        faults.failed(main, Task::Watch, &forbidden);
        let message = "objects of 'configmaps' can't be watched: missing permission: cannot watch";
        assert_eq!(ready().await, ("False".to_owned(), message.to_owned()));
        task.abort();
    }
}
