//! What a user may do who has the role `edit` in another namespace.

use anyhow::{Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::chaos::run::Run;

/// A namespace in which nothing of a ring was granted.
const NAMESPACE: &str = "strangers";

/// A name that no shard has.
fn ghost(shard: &str) -> String {
    format!("ghost-of-{shard}")
}

/// Makes a Lease of a shard's name and one of a new name, both of the ring and held. Returns how many.
pub(super) async fn make_leases(run: &Run, shard: &str) -> Result<usize> {
    let params = PatchParams::apply("chaos").force();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    Api::<Namespace>::all(run.client.clone()).patch(NAMESPACE, &params, &Patch::Apply(namespace)).await?;
    let label = "alpha.sharding.timebertt.dev/clusterring";
    for name in [shard, &ghost(shard)] {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "labels": {label: run.ring.name()}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 60},
        });
        leases(run).patch(name, &params, &Patch::Apply(lease)).await?;
    }
    Ok(2)
}

/// Deletes them. Fails where the new name had got objects by then.
pub(super) async fn delete_leases(run: &Run, shard: &str) -> Result<usize> {
    let ghost = ghost(shard);
    let of_ghost = ListParams::default().labels(&format!("{}={ghost}", run.labels.shard));
    let taken = run.workload.api(&run.client).list_metadata(&of_ghost).await?.items.len();
    for name in [shard, &ghost] {
        leases(run).delete(name, &DeleteParams::default()).await?;
    }
    ensure!(taken == 0, "a Lease in the namespace {NAMESPACE} got {taken} objects");
    Ok(2)
}

fn leases(run: &Run) -> Api<Lease> {
    Api::namespaced(run.client.clone(), NAMESPACE)
}
