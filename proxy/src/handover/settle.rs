//! Waits until no view of the controller can show a drained object, and sees to it that none keeps it for long that never
//! did.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};

use super::{Handover, acknowledge::Acknowledge, ask::Shown, drain::Drained};
use crate::views::{Holding, Leaving};

/// How long a drain waits before the API server is asked about the watches that hold it. Not at once: each watch has its
/// `DELETED` by then that gets one.
pub(super) const ASK_AFTER: Duration = Duration::from_secs(1);
/// How long it waits before those watches are ended of which no question tells anything. To list again costs much, and a
/// bookmark may come.
pub(super) const CUT_AFTER: Duration = Duration::from_secs(10);

/// Returns once no view holds the object any more.
pub(super) async fn settle(
    handover: &Handover,
    object: &Drained,
    leaving: &Arc<Leaving>,
    acknowledge: &impl Acknowledge,
) {
    let (began, mut asked) = (Instant::now(), HashSet::new());
    while timeout(ASK_AFTER, handover.views.past(leaving)).await.is_err() {
        for watch in handover.views.idle_behind(leaving) {
            let is_exact = object.is_exact && watch.is_placed;
            // One that has just begun has yet to say where it is: its initial events end with a bookmark.
            let is_young = watch.opened.elapsed() < ASK_AFTER;
            if !is_exact && !is_young && began.elapsed() >= CUT_AFTER {
                cut(object, &watch, "it is not known what the watch began with, or when the object was drained");
            } else if is_exact && watch.scope.fields.is_undecided() && asked.insert(watch.id) {
                let _seat = handover.seats.acquire().await;
                match acknowledge.shown(&watch.scope, object).await {
                    Shown::Yes => {}
                    Shown::No => leaving.excuse(watch.id),
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

fn cut(object: &Drained, watch: &Holding, reason: &str) {
    if watch.cut() {
        tracing::info!(resource = %object.resource, reason, "a watch is ended for its client to list again");
    }
}
