//! Leases with the ring's label that are no shard's: one in a namespace that the ring does not name, and an election lock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use ringside_e2e::plain_shard::LEASE_RING;
use ringside_e2e::{eventually::eventually, plain_shard::PlainShard, system::NAMESPACE};
use ringside_ring::{ClusterRing, labels::LEASE_STATE, lease::SHARDER_HOLDER};
use serde_json::json;

use super::fixture::{DEADLINE, Fixture, USUAL};

const NAME: &str = "foreign";
const SHARD: &str = "foreign-shard";
const ELSEWHERE: &str = "foreign-elsewhere";
const LOCK: &str = "foreign-lock";
const DYING: &str = "foreign-dying";
/// How long the lock and the Lease of a shard that stands still last.
const BRIEF: Duration = Duration::from_secs(2);

/// The ring's namespace of objects is not that of its shards.
pub(crate) async fn are_left_alone(fixture: &Fixture) {
    let (ring, client) = (fixture.ring(NAME).await, fixture.client());
    let rings: Api<ClusterRing> = Api::all(client.clone());
    let named = Patch::Merge(json!({"spec": {"shardNamespaces": [NAMESPACE]}}));
    rings.patch(NAME, &PatchParams::default(), &named).await.unwrap();
    let locks: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lock = json!({
        "metadata": {"name": LOCK, "labels": {LEASE_RING: NAME}},
        "spec": {"holderIdentity": "operator-0_uuid", "leaseDurationSeconds": BRIEF.as_secs()},
    });
    let lock = locks.create(&PostParams::default(), &serde_json::from_value(lock).unwrap()).await.unwrap();
    let _elsewhere = PlainShard::join(&client, NAME, &ring, &ELSEWHERE.parse().unwrap(), USUAL).await.unwrap();
    let _shard = fixture.plain(&ring, SHARD, USUAL).await;
    fixture.plain(&ring, DYING, BRIEF).await.pause();
    eventually("the ring names both", DEADLINE, || async {
        let status = rings.get(NAME).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let told = status.conditions.iter().find(|it| it.type_ == "LeasesValid").ok_or("it does not")?;
        let named = [format!("{NAME}/{ELSEWHERE}"), format!("{NAMESPACE}/{LOCK}")];
        let names_both = named.iter().all(|lease| told.message.contains(lease)) && told.status == "False";
        if names_both && status.shards == 2 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await
    .unwrap();
    // It is younger than the lock, and as brief. It is deleted a while after.
    eventually("the Lease of a shard that stands still is acquired", DEADLINE, || async {
        let Some(dying) = locks.get_opt(DYING).await.map_err(|error| error.to_string())? else { return Ok(()) };
        let spec = dying.spec.unwrap_or_default();
        let acquired = spec.holder_identity.as_deref() == Some(SHARDER_HOLDER);
        if acquired { Ok(()) } else { Err(format!("{spec:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(locks.get(LOCK).await.unwrap(), lock, "nothing was written to it");
    let elsewhere = Api::<Lease>::namespaced(client, NAME).get(ELSEWHERE).await.unwrap();
    assert!(!elsewhere.metadata.labels.unwrap().contains_key(LEASE_STATE));
    let state = locks.get(SHARD).await.unwrap().metadata.labels.unwrap().remove(LEASE_STATE);
    assert_eq!(state.as_deref(), Some("ready"));
}
