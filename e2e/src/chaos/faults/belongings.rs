//! The ring, and what the sharder keeps for it in the cluster.

use std::time::Duration;

use anyhow::Result;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use ringside_ring::ClusterRing;
use serde_json::json;

use crate::{chaos::run::Run, ring_status};

/// Long enough for a machine that does much else; what is promised is seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// Its patience with drains, in seconds.
pub(in crate::chaos) const DRAIN_DEADLINES: [u16; 2] = [45, 60];

const POLICIES: [&str; 2] = ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"];

/// The ring also names a resource that no API server serves, or no longer does. Returns how many rings changed.
pub(super) async fn edit_ring(run: &mut Run) -> Result<usize> {
    let rings: Api<ClusterRing> = Api::all(run.client.clone());
    let before = rings.get(run.ring.name()).await?;
    let mut resources = before.spec.resources.clone();
    let [shorter, longer] = DRAIN_DEADLINES;
    let deadline = if resources.len() > 1 { longer } else { shorter };
    resources.truncate(1);
    let mut resources = json!(resources);
    if let (true, Some(resources)) = (deadline == shorter, resources.as_array_mut()) {
        resources.push(json!({"group": "no.example.com", "resource": "things"}));
    }
    let spec = json!({"spec": {"resources": resources, "drainDeadlineSeconds": deadline}});
    let after = rings.patch(run.ring.name(), &PatchParams::default(), &Patch::Merge(spec)).await?;
    Ok(usize::from(before.metadata.generation != after.metadata.generation))
}

/// Returns when the webhook's configuration is there again.
pub(super) async fn delete_webhook(run: &mut Run) -> Result<usize> {
    delete(run, "MutatingWebhookConfiguration").await.map(|()| 1)
}

/// Returns when the policies are in place again: what is judged meanwhile, no fence stands around.
pub(super) async fn delete_policies(run: &mut Run) -> Result<usize> {
    // What is held up would land while there is no fence.
    run.end_all().await?;
    for policy in POLICIES {
        delete(run, policy).await?;
    }
    until_condition(run, "Fenced", "False").await?;
    until_condition(run, "Fenced", "True").await?;
    until_condition(run, "LabelsProtected", "True").await?;
    Ok(POLICIES.len())
}

/// Deletes what has the ring's name, and waits until there is another.
async fn delete(run: &mut Run, kind: &str) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    let api: Api<DynamicObject> = Api::all_with(run.client.clone(), &resource);
    let name = run.ring.made_for();
    let before = api.get(&name).await?.uid();
    api.delete(&name, &DeleteParams::default()).await?;
    run.until(&format!("the {kind} is there again"), DEADLINE, || async {
        let now = api.get_opt(&name).await.map_err(|error| error.to_string())?.ok_or("it is gone")?;
        if now.uid() == before { Err("it is there still".to_owned()) } else { Ok(()) }
    })
    .await
}

/// Waits until the ring says so.
pub(super) async fn until_condition(run: &mut Run, type_: &str, status: &str) -> Result<()> {
    let (client, ring) = (run.client.clone(), run.ring.clone());
    run.until(&format!("{type_} is {status}"), DEADLINE, || async {
        let shown = ring_status::status(&client, &ring).await?;
        let found = ring_status::condition(&shown, type_)?;
        if found.status == status { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await
}
