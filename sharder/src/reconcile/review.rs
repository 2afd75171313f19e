//! Main objects without an available shard, listed about once an hour.
//!
//! Nothing else is listed while watches go on. An object whose event a watch never showed would have no owner unnoticed.

use std::{convert::Infallible, time::Duration};

use ringside_ring::ShardName;
use ringside_runtime::explain::explain;
use tokio::time::sleep;

use super::ring::Ring;
use crate::index::{ResourceId, repair};

/// How often it is listed, within a fifth.
const PERIOD: Duration = Duration::from_secs(3600);
/// How soon a list that failed is made again.
const AGAIN: Duration = Duration::from_secs(30);

/// Lists them, for as long as it runs. What they show is decided as if a watch had shown it.
pub(super) async fn review(ring: &Ring) -> Infallible {
    let mut pause = PERIOD;
    loop {
        sleep(pause.mul_f64(rand::random_range(0.8..1.2))).await;
        pause = if list(ring).await { PERIOD } else { AGAIN };
    }
}

/// Returns whether all could be listed.
async fn list(ring: &Ring) -> bool {
    let available: Vec<_> = ring.judge.view().members.available().map(ShardName::to_string).collect();
    if available.is_empty() {
        return true;
    }
    let (selector, mut is_whole) = (format!("{} notin ({})", ring.labels.shard, available.join(",")), true);
    for (id, kind) in (0_u8..).map(ResourceId).zip(&ring.kinds).filter(|(_, kind)| kind.is_root) {
        let sources = ring.sources.lock().of(id, None);
        for source in sources {
            let api = kind.resource.objects(ring.client(), source.scope.namespace());
            if let Err(error) = repair::list(&source, &api, &selector).await {
                let (of, resource, error) = (&ring.judge.view().ring, &kind.resource.id, explain(&error));
                tracing::warn!(ring = %of, %resource, error, "can't list objects without a shard; trying again");
                is_whole = false;
            }
        }
    }
    is_whole
}
