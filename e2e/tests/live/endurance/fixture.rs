//! What the cases stand on: proxies of one ring, and objects that are theirs.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::proxy::Proxy;

use crate::proxies::{NAMESPACE, Proxies, labels};

/// For what a machine that runs other tests beside may take its time for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// For what hangs where it does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// What is promised of a peer that says nothing any more.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// So much is left of the time since then in which the proxy notices it, and nothing else does.
pub(crate) fn left(since: Instant) -> Duration {
    NOTICED_WITHIN.saturating_sub(since.elapsed())
}

/// So long that it is not the Lease that ends the streams.
pub(crate) const LONG_LEASE: &[&str] = &["--lease-duration=120s"];

pub(crate) async fn start() -> Proxies {
    let controlled = "controlledResources: [{group: '', resource: configmaps}]";
    Proxies::start(&format!("{{resources: [{{group: web.example.com, resource: websites, {controlled}}}]}}")).await
}

/// Creates an object of that shard, without a proxy.
pub(crate) async fn create(proxies: &Proxies, shard: &str, name: &str, bytes: usize) {
    let objects = Api::namespaced(proxies.control_plane.client(), NAMESPACE);
    objects.create(&PostParams::default(), &config_map(shard, name, bytes)).await.unwrap();
}

/// An object that is that shard's.
pub(crate) fn config_map(shard: &str, name: &str, bytes: usize) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(labels().shard, shard.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("data".to_owned(), "x".repeat(bytes))].into()),
        ..ConfigMap::default()
    }
}

/// The objects that a proxy shows.
pub(crate) async fn objects_by(proxy: &Proxy) -> Api<ConfigMap> {
    Api::namespaced(proxy.client().await.unwrap(), NAMESPACE)
}
