//! A shard whose Lease runs out: what is assigned again goes past it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use ringside_e2e::{eventually::eventually, plain_shard::PlainShard, system::NAMESPACE};
use ringside_ring::labels::LEASE_STATE;
use serde_json::json;

use crate::resources::fixture::{DEADLINE, Fixture, config_maps, entry, home};

/// Objects of each kind, all of which would be the late shard's.
const OBJECTS: usize = 4;
/// Of the late shard: it is expired for as long again before it is given up.
const LEASE: Duration = Duration::from_secs(10);

pub(crate) async fn what_went_past_a_late_shard_moves_once_when_it_is_back(fixture: &Fixture) {
    let (ring, mut shards) = fixture.ready("returns", json!([entry(&config_maps(), &[])]), 2).await;
    let _acknowledger = ring.start_acknowledger(&config_maps());
    let name = "returns-2".parse().unwrap();
    let late = PlainShard::join(&fixture.client(), NAMESPACE, &ring.name, &name, LEASE).await.unwrap();
    shards.push(late);
    ring.until_available(3).await;
    shards[2].pause();
    let leases: Api<Lease> = Api::namespaced(fixture.client(), NAMESPACE);
    eventually("its Lease has run out", DEADLINE, || async {
        let lease = leases.get(name.as_str()).await.map_err(|error| error.to_string())?;
        let state = lease.labels().get(LEASE_STATE).cloned();
        if state.as_deref() == Some("expired") { Ok(()) } else { Err(format!("{state:?}")) }
    })
    .await
    .unwrap();

    let objects = ring.own(&config_maps());
    let is_late = |object: &String| home(&shards, "returns", object) == name.as_str();
    let mut names: Vec<_> = (0..).map(|i| format!("o-{i}")).filter(is_late).take(OBJECTS).collect();
    for object in &names {
        objects.create(object).await;
        assert_ne!(objects.until_owned(object).await, name.as_str(), "placed by the webhook");
    }
    for _ in 0..OBJECTS {
        let (object, shard) = objects.generate("o-made-up-").await;
        assert_ne!(shard, name.as_str(), "placed by the controller");
        names.push(object);
    }
    shards[2].resume();
    // Now each is where the ring of all three places it.
    for object in names {
        objects.until_with(&object, &home(&shards, "returns", &object)).await;
    }
    ring.delete().await;
}
