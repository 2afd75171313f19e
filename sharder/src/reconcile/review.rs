//! Main objects without an available shard, listed about once an hour.
//!
//! Nothing else is listed while watches go on. An object whose event no watch has shown would stay without an owner, and no count
//! would say so.

use std::{convert::Infallible, time::Duration};

use kube::api::ListParams;
use ringside_ring::ShardName;
use ringside_runtime::explain::explain;
use tokio::time::sleep;

use super::ring::Ring;
use crate::index::{Mode, ResourceId, repair};

/// How often these objects are listed, within a fifth.
const PERIOD: Duration = Duration::from_secs(3600);

/// Lists these objects, for as long as it runs. What a list shows is decided as if a watch had shown it.
///
/// An API server may have to read all objects for it. So a list that failed waits for the next time.
pub(super) async fn review(ring: &Ring) -> Infallible {
    loop {
        sleep(PERIOD.mul_f64(rand::random_range(0.8..1.2))).await;
        list(ring).await;
    }
}

async fn list(ring: &Ring) {
    let available: Vec<_> = ring.judge.view().members.available().map(ShardName::to_string).collect();
    // Without shards nothing could be done about what a list shows.
    if available.is_empty() {
        return;
    }
    let selector = format!("{} notin ({})", ring.labels.shard, available.join(","));
    for (id, kind) in (0_u8..).map(ResourceId).zip(&ring.kinds).filter(|(_, kind)| kind.is_root) {
        let sources = ring.sources.lock().of_mode(id, Mode::All);
        for source in sources {
            let api = kind.resource.objects(ring.client(), source.scope.namespace());
            if let Err(error) = repair::list(&source, &api, ListParams::default().labels(&selector)).await {
                let (of, resource, error) = (&ring.judge.view().ring, &kind.resource.id, explain(&error));
                tracing::warn!(ring = %of, %resource, error, "can't list objects without a shard; trying again in an hour");
            }
        }
    }
}
