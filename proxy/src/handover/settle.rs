//! Waits until no view of the controller can show a drained object, and sees to it that none keeps it for long that never
//! did, or that its client does not read.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{Handover, acknowledge::Acknowledge, ask::Shown, drains::UnderWay};
use crate::views::{BlockingView, DrainingObject};

/// How long a drain waits before the API server is asked about the watches that hold it. Not at once: each watch has its
/// `DELETED` by then that gets one.
pub(super) const ASK_AFTER: Duration = Duration::from_secs(1);
/// How long it waits before those watches are ended of which no question tells anything. To list again costs much, and a
/// bookmark may come.
pub(super) const CUT_AFTER: Duration = Duration::from_secs(10);

/// Returns once no view holds the object any more.
pub(super) async fn settle(
    handover: &Handover,
    object: &Arc<DrainingObject>,
    acknowledge: &impl Acknowledge,
    under_way: &UnderWay,
) {
    let (began, mut asked, mut taken) = (Instant::now(), HashSet::new(), HashMap::new());
    while timeout(ASK_AFTER, handover.views.wait_delivered(object)).await.is_err() {
        for watch in handover.views.open_blocking(object) {
            let (pieces, since) = taken.entry(watch.id).or_insert((watch.pieces(), began.max(watch.opened)));
            if *pieces != watch.pieces() {
                (*pieces, *since) = (watch.pieces(), Instant::now());
            }
            if !watch.is_idle() && watch.pieces() > 0 {
                under_way.waits_for_reader(&watch);
                let deadline = handover.drains.deadline();
                if !deadline.is_zero() && since.elapsed() >= deadline / 2 {
                    close(object, &watch);
                }
                continue;
            }
            if !watch.is_idle() || !watch.is_watch {
                continue;
            }
            let is_exact = object.is_exact && watch.is_placed;
            // One that has just begun has yet to say where it is: its initial events end with a bookmark.
            let is_young = watch.opened.elapsed() < ASK_AFTER;
            if !is_exact && !is_young && began.elapsed() >= CUT_AFTER {
                cut(object, &watch, "it is not known what the watch began with, or when the object was drained");
            } else if is_exact && watch.scope.fields.is_undecided() && asked.insert(watch.id) {
                let _seat = handover.seats.acquire().await;
                match acknowledge.shown(&watch.scope, object).await {
                    Shown::Yes => {}
                    Shown::No => object.prove_not_shown(watch.id),
                    Shown::Compacted => cut(object, &watch, "the state right before the drain is forgotten already"),
                    Shown::Unanswered(error) => {
                        tracing::warn!(resource = %object.resource, error, "can't ask what a watch has shown");
                        asked.remove(&watch.id);
                    }
                }
            }
        }
    }
}

/// Of a client that took nothing for half of the drain's deadline.
fn close(object: &DrainingObject, watch: &BlockingView) {
    if watch.close() {
        let (user_agent, waiting_bytes) = watch.client();
        tracing::warn!(
            resource = %object.resource,
            user_agent,
            waiting_bytes,
            "closed a stream that its client does not read, as drained objects wait for it"
        );
    }
}

fn cut(object: &DrainingObject, watch: &BlockingView, reason: &str) {
    if watch.cut() {
        tracing::info!(resource = %object.resource, reason, "closed a watch so that its client lists again");
    }
}
