//! Shards whose Leases run out: what is assigned anew goes past them.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use ringside_e2e::{
    eventually::eventually,
    plain_shard::{Acknowledger, PlainShard},
};
use serde_json::json;

use crate::resources::fixture::{DEADLINE, Fixture, LEASE, Objects, Ring, config_maps, entry, team};

/// Objects of each kind: enough that a third of them would go to the late shard.
const OBJECTS: usize = 12;

/// Three shards, of which the last has stopped to renew: its Lease has run out, as the sharder says.
async fn late_shard(fixture: &Fixture, name: &str) -> (Ring, Vec<PlainShard>) {
    fixture.namespace(name, name).await;
    let ring = fixture.ring(name, json!([entry(&config_maps(), &[])]), team(name)).await;
    let shards = ring.join(3).await;
    ring.until_ready_is("True", "").await;
    shards[2].pause();
    until_state(fixture, shards[2].name().as_str(), "expired").await;
    (ring, shards)
}

async fn until_state(fixture: &Fixture, shard: &str, state: &str) {
    use k8s_openapi::api::coordination::v1::Lease;
    let leases: kube::Api<Lease> = kube::Api::namespaced(fixture.client(), ringside_e2e::system::NAMESPACE);
    eventually(&format!("{shard} is {state}"), DEADLINE, || async {
        let lease = leases.get(shard).await.map_err(|error| error.to_string())?;
        let found = lease.labels().get(ringside_ring::labels::LEASE_STATE).cloned();
        if found.as_deref() == Some(state) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await
    .unwrap();
}

/// Creates objects that the webhook places, and objects that the controller does; none may be the late shard's.
async fn create_past(objects: &Objects, late: &PlainShard) {
    for i in 0..OBJECTS {
        let name = format!("o-{i}");
        objects.create(&name).await;
        assert_ne!(objects.until_owned(&name).await, late.name().as_str(), "placed by the webhook");
        let made_up = objects.generate("o-made-up-").await;
        assert_ne!(objects.until_owned(&made_up.name_any()).await, late.name().as_str(), "placed by the controller");
    }
}

/// Who has them, with their resourceVersions: what was not written to has the same.
async fn versions(objects: &Objects) -> BTreeSet<(String, Option<String>, Option<String>)> {
    let all = objects.api.list(&Default::default()).await.unwrap().items;
    let ours = all.into_iter().filter(|object| object.name_any().starts_with("o-"));
    ours.map(|object| (object.name_any(), objects.owner_of(&object).0, object.resource_version())).collect()
}

pub(crate) async fn dies(fixture: &Fixture) {
    let (ring, shards) = late_shard(fixture, "dies").await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    let objects = ring.objects(&config_maps(), Some("dies"));
    create_past(&objects, &shards[2]).await;
    let before = versions(&objects).await;
    until_state(fixture, shards[2].name().as_str(), "dead").await;
    ring.until_available(2).await;
    // What would move is drained when the shards have changed; what is created after that comes after it.
    objects.create("last").await;
    objects.until_owned("last").await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(versions(&objects).await, before, "each of them is where it belongs now");
    ring.delete().await;
}

pub(crate) async fn returns(fixture: &Fixture) {
    let (ring, mut shards) = late_shard(fixture, "returns").await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), |_| true);
    let objects = ring.objects(&config_maps(), Some("returns"));
    create_past(&objects, &shards[2]).await;
    let late = shards[2].name().to_string();
    shards[2].resume();
    // Now each is where the ring of all three places it.
    let names = versions(&objects).await.into_iter().map(|(name, ..)| name);
    let all = shards.iter().map(|shard| shard.name().clone());
    let placement = ringside_ring::HashRing::new(all, ringside_ring::placement::DEFAULT_TOKENS_PER_SHARD);
    let mut came_back = 0;
    for name in names {
        let key = ringside_ring::PartitionKey::of("", "ConfigMap", "returns", &name);
        let home = placement.owner(&key).unwrap().to_string();
        objects.until(&name, "is at home", |owner| *owner == (Some(home.clone()), None)).await;
        came_back += usize::from(home == late);
    }
    assert!(came_back > 0);
    ring.delete().await;
}
