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
use crate::{FIELD_MANAGER, metrics::Metrics, snapshot::Snapshot};
use ringside_runtime::explain::explain;

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the webhook configuration and the status of one ring.
pub(crate) async fn reconcile(
    client: Client,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    client_config: Arc<ClientConfig>,
    metrics: Metrics,
    period: Duration,
) -> Infallible {
    let mut configured: Option<(MutatingWebhookConfiguration, Instant)> = None;
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
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
        let status = status(&snapshot, &problems, Timestamp::now());
        metrics.status(&snapshot.ring, status.shards, status.available_shards);
        if let Err(error) = report(&client, &snapshot, &status).await {
            failed = true;
            tracing::warn!(ring = %snapshot.ring, error = %explain(&error), "can't write the status of a ring; trying again");
        }
        for problem in &problems {
            tracing::warn!(ring = %snapshot.ring, problem, "a ring can't be set up; trying again");
        }
        let pause = if failed { RETRY } else { period };
        if let Ok(Err(_)) = tokio::time::timeout(pause, snapshots.changed()).await {
            // The ring is gone: whoever started this is about to stop it.
            std::future::pending::<()>().await;
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
