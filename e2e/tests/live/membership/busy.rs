//! How long the objects of a shard that was killed are without an owner while others keep the API server busy.

use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::{eventually, in_time},
    system::NAMESPACE,
};
use ringside_ring::lease::{SHARDER_HOLDER, holder};
use tokio_util::task::AbortOnDropHandle;

use super::fixture::{DEADLINE, Fixture, LEASE};

const NAME: &str = "busy";
const HEIRS: [&str; 2] = ["busy-heir-0", "busy-heir-1"];
/// Of three shards, so that the killed one has some 200.
const OBJECTS: usize = 600;
/// What is promised, from the acquisition of the Lease on.
const BOUND: Duration = Duration::from_secs(30);
/// Clients that list without a pause, and what: some 3 MB.
const CLIENTS: usize = 8;
const LISTED: usize = 300;

pub(crate) async fn bound(fixture: &Fixture) {
    let (ring, shards) = fixture.ring_with_heirs(NAME, HEIRS, OBJECTS, LEASE).await;
    let client = fixture.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAME);
    for number in 0..LISTED {
        let metadata = ObjectMeta { name: Some(format!("large-{number}")), ..ObjectMeta::default() };
        let data = Some([("text".to_owned(), "x".repeat(10_000))].into());
        maps.create(&PostParams::default(), &ConfigMap { metadata, data, ..ConfigMap::default() }).await.unwrap();
    }
    shards[0].pause();
    let _busy: Vec<_> = (0..CLIENTS).map(|_| list_always(&client)).collect();
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the sharder holds the Lease", DEADLINE, || async {
        let lease = leases.get(NAME).await.map_err(|error| error.to_string())?;
        let held = holder(lease.spec.as_ref());
        if held == Some(SHARDER_HOLDER) { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await
    .unwrap();
    let acquired = Instant::now();
    fixture.until_owned(&ring, OBJECTS, |owners| owners.keys().all(|owner| HEIRS.contains(&&**owner))).await;
    let took = acquired.elapsed();
    println!("the last object had an owner {took:?} after the acquisition");
    in_time("owners on a busy API server", took, BOUND);
}

/// Asks for what costs the API server much, and this program little.
fn list_always(client: &Client) -> AbortOnDropHandle<()> {
    let client = client.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let path = format!("/api/v1/namespaces/{NAME}/configmaps");
            let _ = client.request_text(Request::get(path).body(Vec::new()).unwrap()).await;
        }
    }))
}
