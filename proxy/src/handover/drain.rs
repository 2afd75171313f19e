//! One drained object: wait until the controller can't be working on it, then acknowledge.

use std::{sync::Arc, time::Duration};

use ringside_ring::Grace;
use tokio::time::Instant;

use super::{
    Handover,
    acknowledge::{Acknowledge, Attempt},
    drains::Phase,
    settle::settle,
};
use crate::{fence::DrainGuard, views::DrainingObject};

/// How long to wait before the first retry of an acknowledgement, and at most.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);

impl Handover {
    /// Has the fence know of a drained object, from this moment on.
    pub(super) fn guard(&self, object: &Arc<DrainingObject>) -> DrainGuard {
        // The sharder may rely on what this shard promised when it was drained, by a proxy that has been restarted since.
        let asked = Grace::asked(&object.drain).map_or(Duration::ZERO, Grace::duration);
        self.fence.drained(object.clone(), self.grace.max(asked), self.term)
    }
}

/// Releases one object. Polled for as long as our own watch shows it with this drain.
///
/// What others write (a kubelet, another controller) holds nothing: the fence knows what the controller sends.
pub(super) async fn let_go(
    handover: Handover,
    object: Arc<DrainingObject>,
    fence: DrainGuard,
    acknowledge: impl Acknowledge,
) {
    let under_way = handover.drains.begin(object.clone(), Instant::now());
    let DrainingObject { resource, namespace, name, .. } = &*object;
    handover.views.leaves(&object);
    let (uid, mut pause) = (&*object.uid, FIRST_RETRY);
    loop {
        under_way.phase(Phase::Views);
        settle(&handover, &object, &acknowledge, &under_way).await;
        under_way.phase(Phase::Grace);
        fence.wait_idle().await;
        under_way.phase(Phase::Acknowledgement);
        loop {
            // The semaphore is never closed.
            let seat = handover.seats.acquire().await;
            // First, so that no page of an old list is asked for after the look at the views.
            handover.views.gone(&object);
            // Looked at with the seat in hand, since waiting for one may take long: a watch that was opened
            // meanwhile, from before the drain, may have brought the object back.
            if handover.views.count_blocking(&object) > 0 || !fence.close() {
                break;
            }
            // The fence is closed from here on, however the attempt ends. One without answer may have been carried out.
            let Attempt::Again(error) = acknowledge.attempt(&object).await else { return };
            drop(seat);
            tracing::warn!(%resource, namespace, name, uid, error, retry_in = ?pause, "can't acknowledge a drain");
            under_way.refused(error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }
}
