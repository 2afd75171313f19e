//! What a sidecar may cost, which stands beside every replica; and what Leases may cost the sharder.

use std::time::Duration;

use futures::{StreamExt, future::join_all, stream::BoxStream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};
use ringside_e2e::{
    case,
    control_plane::client_of,
    eventually::eventually,
    live::Group,
    plain_shard::LEASE_RING,
    ring_status::{condition, until_status},
    system::{NAMESPACE, RING, Settings, System},
};
use serde_json::json;

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        case!(a_proxy_at_rest_with_ten_watches_is_small).costs("a proxy at rest, measured"),
        case!(leases_beyond_the_bound_end_no_sharder).costs("four million tokens, several times, in a debug build"),
    ];
    Group::new("footprint", cases)
}

/// More than a ring may have of weight 10, which are 100.
const LEASES: usize = 600;
/// The limit in the sharder's manifest.
const SHARDER_LIMIT: u64 = 256 << 20;

async fn leases_beyond_the_bound_end_no_sharder() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    for number in 0..LEASES {
        let name = format!("fake-{number:03}");
        let metadata =
            json!({"name": name, "labels": {LEASE_RING: RING}, "annotations": {"ringside.dev/weight": "10"}});
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 120});
        let lease = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
    // For as long as the Leases last. One that counted before an older one of its second was seen is named until it is dead.
    let (client, ring, lasts) = (system.control_plane().client(), RING.parse().unwrap(), Duration::from_secs(100));
    until_status(&client, &ring, "the youngest make no shards", lasts, |status| {
        let told = &condition(status, "LeasesValid")?.message;
        let is_told = told.contains("the youngest Leases make no shards") && told.contains("and 495 more");
        let is_bounded = usize::try_from(status.shards).is_ok_and(|shards| shards < LEASES);
        if is_told && is_bounded { Ok(()) } else { Err(format!("{} shards, {told}", status.shards)) }
    })
    .await
    .unwrap();
    let sharder = system.sharders().next().unwrap().process();
    let of_process = std::fs::read_to_string(format!("/proc/{}/status", sharder.id())).unwrap();
    let most = of_process.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    let most = most.trim().parse::<u64>().unwrap() << 10;
    eprintln!("the sharder had {} MiB resident at most", most >> 20);
    assert!(most < SHARDER_LIMIT, "{most}");
    system.check().unwrap();
}

const WATCHES: usize = 10;
/// Of the 20 MB that a sidecar may have resident, what is left beside the pages of a release build's executable.
const LIMIT: u64 = 8_000_000;

/// A watch that has shown all there is.
async fn watch(client: Client) -> BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>> {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let mut events = api.watch(&WatchParams::default().initial_events(), "0").await.unwrap().boxed();
    while !matches!(events.next().await.unwrap().unwrap(), WatchEvent::Bookmark(_)) {}
    events
}

async fn a_proxy_at_rest_with_ten_watches_is_small() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    system.add_shard("shard-0").await.unwrap();
    let shard = system.shards().next().unwrap();
    let client = client_of(&shard.kubeconfig()).await.unwrap();
    let watches = join_all((0..WATCHES).map(|_| watch(client.clone()))).await;
    // The start and the opening of watches need memory that the allocator gives back in its own time.
    eventually("a small footprint", Duration::from_secs(30), || async {
        let resident = shard.proxy().own_resident_bytes().map_err(|error| error.to_string())?;
        if resident < LIMIT { Ok(()) } else { Err(format!("{resident} bytes of its own resident")) }
    })
    .await
    .unwrap();
    assert_eq!(watches.len(), WATCHES);
}
