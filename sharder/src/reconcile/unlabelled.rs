//! Children without label of resources of which the ring has few objects, so that only labelled ones are watched.
//!
//! The webhook labels a child in the write that creates it. One that was created before its root had a shard has no label, and
//! no watch shows it. So a while after a root got its first shard, and from time to time, what has no label is listed.

use std::{convert::Infallible, time::Duration};

use ringside_runtime::explain::explain;
use tokio::time::{Instant, sleep, sleep_until};

use super::ring::Ring;
use crate::index::{Mode, ResourceId, repair};

/// How long after a root got its first shard its children are looked for: more may come meanwhile.
const SOON: Duration = Duration::from_secs(10);
/// How often it is looked at least, within a fifth.
const SELDOM: Duration = Duration::from_secs(3600);
/// How soon a look that failed is made again.
const AGAIN: Duration = Duration::from_secs(30);
/// A look costs what there is without label: so much of the time at most is spent on it.
const SHARE: u32 = 10;

/// Looks for them, for as long as it runs.
pub(super) async fn look(ring: &Ring) -> Infallible {
    let mut due = ring.first_shards.subscribe();
    let mut is_whole = true;
    loop {
        let pause = if is_whole { SELDOM.mul_f64(rand::random_range(0.8..1.2)) } else { AGAIN };
        let seldom = Instant::now() + pause;
        tokio::select! {
            // The sender lives in the ring.
            _ = due.changed() => sleep(SOON).await,
            () = sleep_until(seldom) => {}
        }
        due.borrow_and_update();
        let began = Instant::now();
        is_whole = list(ring).await;
        sleep(began.elapsed() * SHARE).await;
    }
}

/// Returns whether all could be listed.
async fn list(ring: &Ring) -> bool {
    let mut is_whole = true;
    for (id, kind) in (0_u8..).map(ResourceId).zip(&ring.kinds) {
        let sources = ring.sources.lock().of_mode(id, Mode::Labelled);
        for source in sources {
            let api = kind.resource.objects(ring.client(), source.scope.namespace());
            if let Err(error) = repair::list_unlabelled(&source, &api, &ring.labels.shard).await {
                let (of, resource, error) = (&ring.judge.view().ring, &kind.resource.id, explain(&error));
                tracing::warn!(ring = %of, %resource, error, "can't list children without label; looking again later");
                is_whole = false;
            }
        }
    }
    is_whole
}
