//! What a sidecar may cost: it stands beside every replica.

use std::time::Duration;

use futures::{StreamExt, future::join_all, stream::BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{WatchEvent, WatchParams},
};
use ringside_e2e::{case, live::Group};
use ringside_e2e::{
    control_plane::client_of,
    eventually::eventually,
    system::{NAMESPACE, Settings, System},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("footprint", vec![case!(a_proxy_at_rest_with_ten_watches_is_small).costs("a proxy at rest, measured")])
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
