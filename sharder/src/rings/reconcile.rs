//! Tells the API server and the users about a ring: its webhook configuration and its status. The leader does this.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::{api::admissionregistration::v1::MutatingWebhookConfiguration, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use ringside_ring::ClusterRing;
use serde_json::json;
use tokio::sync::watch;

use super::{
    status::status,
    webhook_configuration::{ClientConfig, webhook_configuration},
};
use crate::{FIELD_MANAGER, explain::explain, snapshot::Snapshot};

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the webhook configuration and the status of one ring.
pub(crate) async fn reconcile(
    client: Client,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    client_config: Arc<ClientConfig>,
    period: Duration,
) -> Infallible {
    let mut configured: Option<MutatingWebhookConfiguration> = None;
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        let mut problems = Vec::new();
        let wanted = webhook_configuration(&snapshot, &client_config);
        if configured.as_ref() != Some(&wanted) {
            match configure(&client, &wanted).await {
                Ok(()) => configured = Some(wanted),
                Err(error) => problems.push(format!("the webhook can't be configured: {}", explain(&error))),
            }
        }
        let mut failed = !problems.is_empty();
        if let Err(error) = report(&client, &snapshot, &problems).await {
            failed = true;
            tracing::warn!(ring = %snapshot.ring, error = %explain(&error), "can't write the status of a ring; trying again");
        }
        for problem in &problems {
            tracing::warn!(ring = %snapshot.ring, problem, "a ring can't be set up; trying again");
        }
        let pause = if failed { RETRY } else { period };
        if let Ok(changed) = tokio::time::timeout(pause, snapshots.changed()).await {
            if changed.is_err() {
                // The ring is gone: whoever started this is about to stop it.
                std::future::pending::<()>().await;
            }
        } else {
            // Once a period it is written again, in case somebody changed or deleted it.
            configured = None;
        }
    }
}

async fn configure(client: &Client, wanted: &MutatingWebhookConfiguration) -> Result<(), kube::Error> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&wanted.name_any(), &parameters, &Patch::Apply(wanted)).await.map(|_| ())
}

async fn report(client: &Client, snapshot: &Snapshot, problems: &[String]) -> Result<(), kube::Error> {
    let wanted = status(snapshot, problems, Timestamp::now());
    if snapshot.pending || snapshot.status.as_ref() == Some(&wanted) {
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
