//! Tells the API server and the users about a ring: what belongs to it in the cluster, and its status. The leader does this.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::{api::admissionregistration::v1::MutatingWebhookConfiguration, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    discovery::ApiResource,
};
use ringside_ring::{
    ClusterRing,
    cluster_ring::{ClusterRingStatus, Fence},
    labels::webhook_configuration_name,
};
use serde_json::json;
use tokio::sync::watch;

use super::{
    keep::{Kept, Standing},
    label_policy::Protection,
    status::{fenced_by, status},
    webhook_configuration::{ClientConfig, webhook_configuration},
};
use crate::{
    faults::Faults,
    fence::{Fences, Report},
    metrics::Metrics,
    snapshot::Snapshot,
};
use ringside_runtime::explain::explain;

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What telling about a ring needs.
pub(crate) struct Told {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) client_config: Arc<ClientConfig>,
    /// What is refused to those who distribute the objects.
    pub(crate) faults: Faults,
    pub(crate) fences: Fences,
    pub(crate) metrics: Metrics,
    pub(crate) period: Duration,
}

/// Keeps what belongs to one ring, and its status.
pub(crate) async fn reconcile(told: Told, snapshots: watch::Receiver<Arc<Snapshot>>) -> Infallible {
    let name = webhook_configuration_name(&snapshots.borrow().ring);
    let clients = (&told.client, &told.watches);
    let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let (webhook, keeper) = Kept::new(clients, &kind, name.clone(), told.period);
    let (protection, protector) = Protection::new(clients, name, told.period);
    tokio::select! {
        never = keeper.run() => never,
        never = protector.run() => never,
        never = tell(&told, &webhook, &protection, snapshots) => never,
    }
}

/// Says how everything should be, and reports how it stands.
async fn tell(
    told: &Told,
    webhook: &Kept,
    protection: &Protection,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
) -> Infallible {
    let (mut refused, mut fenced) = (told.faults.changes(), told.fences.changes());
    let (mut webhook_stands, mut labels_stand) = (webhook.changes(), protection.changes());
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        refused.borrow_and_update();
        fenced.borrow_and_update();
        webhook_stands.borrow_and_update();
        labels_stand.borrow_and_update();
        webhook.want(Some(webhook_configuration(&snapshot, &told.client_config)));
        protection.want(&snapshot);
        let pause = match (webhook.standing(), protection.finding()) {
            (Standing::Pending, _) | (_, None) => None,
            (standing, Some(protected)) => {
                let mut problems = Vec::new();
                if let Standing::Refused(why) = standing {
                    problems.push(format!("the webhook can't be configured: {why}"));
                }
                problems.extend(told.faults.of(&snapshot));
                let asked = snapshot.spec.fence == Fence::ApiServer;
                let fence = told.fences.report(&snapshot.ring, asked, &snapshot.named);
                if let Report::Impossible(fault) = &fence {
                    problems.push(fault.clone());
                }
                let findings = [Some(protected), fenced_by(&fence)];
                let status = status(&snapshot, &problems, findings.into_iter().flatten(), Timestamp::now());
                Some(report(told, &snapshot, &status).await)
            }
        };
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                // The ring is gone: whoever started this is about to stop it.
                std::future::pending::<()>().await;
            },
            // The senders live in `told`, `webhook` and `protection`, so these fail never.
            _ = refused.changed() => {}
            _ = fenced.changed() => {}
            _ = webhook_stands.changed() => {}
            _ = labels_stand.changed() => {}
            () = tokio::time::sleep(pause.unwrap_or(told.period)) => {}
        }
    }
}

/// Writes the status if it is another one; returns when to look again.
async fn report(told: &Told, snapshot: &Snapshot, status: &ClusterRingStatus) -> Duration {
    told.metrics.status(&snapshot.ring, status.shards, status.available_shards);
    match write(&told.client, snapshot, status).await {
        Ok(()) => told.period,
        Err(error) => {
            tracing::warn!(ring = %snapshot.ring, error = %explain(&error), "can't write the status of a ring; trying again");
            RETRY
        }
    }
}

async fn write(client: &Client, snapshot: &Snapshot, wanted: &ClusterRingStatus) -> Result<(), kube::Error> {
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
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{}",
            webhook_configuration_name(&snapshot.ring)
        );
        api.put(&path, serde_json::to_value(&wanted).unwrap());
        let faults = Faults::default();
        let told = Told {
            client: api.client(),
            watches: api.client(),
            client_config: Arc::new(client_config),
            faults: faults.clone(),
            fences: crate::fence::follow(api.client()).0,
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
