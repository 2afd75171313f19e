//! Looks for children without label while the API server does not reach the webhook.
//!
//! The webhook labels a child in the write that creates it. Where it is not asked nobody does: children are not watched, and
//! the owner's shard, which sees only what has its label, would create the child once more and be refused. The next pass
//! over all children can be minutes away.

use std::{convert::Infallible, time::Duration};

use ringside_runtime::explain::explain;
use tokio::time::{Instant, sleep};

use super::{RETRY, children::bring_selected};
use crate::assign::Scope;

/// The time between two looks while the webhook is away, at least: a child has its label within a second, as its owner has.
const PAUSE: Duration = Duration::from_millis(500);
/// And while it is asked, where an object came without label all the same: such as one whose name the API server made up.
const SELDOM: Duration = Duration::from_secs(10);
/// A look costs what there is without label, be it of the ring or not. So much of the time at most is spent on it.
const SHARE: u32 = 10;

/// How long to wait after such a look that took so long, while the webhook is asked.
pub(super) fn pause(took: Duration) -> Duration {
    SELDOM.max(took * SHARE)
}

/// Labels the children without label whose owners are the ring's.
pub(super) async fn label(scope: &Scope) -> Result<(), kube::Error> {
    let ring = &scope.snapshot.ring;
    for (resource, objects) in bring_selected(scope, &format!("!{}", scope.snapshot.labels.shard)).await? {
        tracing::info!(%ring, %resource, objects, "labelled children that the webhook was not asked about");
    }
    Ok(())
}

/// Looks for as long as the webhook is not reached, and once more when it is.
pub(crate) async fn look_for_unlabelled(scope: &Scope) -> Infallible {
    let mut reach = scope.reach.subscribe();
    loop {
        // The sender lives in the scope.
        let _ = reach.wait_for(|reach| matches!(reach, Some(Err(_)))).await;
        while matches!(*reach.borrow_and_update(), Some(Err(_))) {
            let pause = look(scope).await;
            // Why it is not reached may change at any time.
            tokio::select! {
                () = sleep(pause) => {}
                _ = reach.wait_for(|reach| !matches!(reach, Some(Err(_)))) => {}
            }
        }
        look(scope).await;
    }
}

/// Returns how long to wait before the next one.
async fn look(scope: &Scope) -> Duration {
    let (ring, begun) = (&scope.snapshot.ring, Instant::now());
    let pause = match label(scope).await {
        Ok(()) => PAUSE,
        Err(error) => {
            let error = explain(&error);
            tracing::warn!(%ring, error, "can't look for children that the webhook was not asked about; trying again");
            RETRY
        }
    };
    pause.max(begun.elapsed() * SHARE)
}
