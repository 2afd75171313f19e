//! Leaves the ring in order: the shard gives its objects away while its controller still works on them.
//!
//! When a Pod is deleted, Kubernetes runs the hooks of all its containers, and each container ends after its own. The proxy's hook
//! (`ringside-proxy leave`) asks here, and the controller's waits here (`/left`). So the controller works until nothing is left. What
//! is left when time is over is taken over once the Lease is released.

use std::{convert::Infallible, fmt, future::pending, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, header};
use ringside_ring::doing::{LEAVE, LEFT};
use ringside_runtime::shutdown::Shutdown;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    access::{Token, credentials::bearer},
    controller::Controller,
    handover::Drains,
};

mod remaining;
#[cfg(test)]
mod tests;

pub(crate) use remaining::Remaining;

/// How long the controller's hook waits for the proxy's to begin: both run at once, and this one starts a process.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);
/// How often it is looked whether objects are left.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// After how long without a drain no further one is expected: the sharder asks as soon as it sees the Lease.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// How far the shard is with leaving. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Leave {
    stage: Arc<watch::Sender<Stage>>,
    /// How long an object rests before it is released.
    grace: Duration,
    /// Is triggered when the pod ends: little time is left then to wait for a controller that stays connected.
    hurry: Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It was not asked to leave.
    Stays,
    /// It gives its objects away until then.
    Leaves { until: Instant },
    /// It does so no longer.
    Left(Outcome),
}

/// What came of leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All objects were handed over.
    Empty,
    /// Some are left, and the sharder does not ask for them.
    NotAskedFor,
    /// Some are left, and time is over.
    OutOfTime,
    /// The grace leaves no time to hand any over.
    GraceTooLong,
    /// The shard has none, as it is without its Lease.
    WithoutLease,
    /// The shard was not asked to leave.
    Stays,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "all objects are handed over",
            Self::NotAskedFor => {
                "the sharder asks for none of what is left: does another replica work, and a sharder run?"
            }
            Self::OutOfTime => "time is over: what is left is taken over when this replica has ended",
            Self::GraceTooLong => {
                "the drain grace leaves no time to hand objects over: inject with a longer terminationGracePeriodSeconds"
            }
            Self::WithoutLease => "this replica is without its Lease, and so without objects",
            Self::Stays => "this replica was not asked to leave",
        })
    }
}

impl Leave {
    /// Of a shard that keeps objects for this grace.
    pub(crate) fn new(grace: Duration) -> Self {
        Self { stage: Arc::new(watch::Sender::new(Stage::Stays)), grace, hurry: Shutdown::new() }
    }

    /// Is triggered when the pod ends.
    pub(crate) fn hurry(&self) -> Shutdown {
        self.hurry.clone()
    }

    /// Has the shard leave within that time, unless it does already. Returns when that is over.
    async fn begin(&self, within: Duration) -> Outcome {
        let leaves = Stage::Leaves { until: Instant::now() + within };
        let begins = if self.grace < within { leaves } else { Stage::Left(Outcome::GraceTooLong) };
        self.stage.send_if_modified(|stage| {
            let stays = *stage == Stage::Stays;
            if stays {
                *stage = begins;
            }
            stays
        });
        self.hurry.trigger();
        self.ended().await
    }

    /// Waits for a shard that leaves. One that does not begin soon stays.
    async fn ended(&self) -> Outcome {
        let mut stage = self.stage_when(Instant::now() + BEGINS_WITHIN, |stage| *stage != Stage::Stays).await;
        if let Stage::Leaves { until } = stage {
            stage = self.stage_when(until, |stage| matches!(stage, Stage::Left(_))).await;
        }
        match stage {
            Stage::Stays => Outcome::Stays,
            Stage::Leaves { .. } => Outcome::OutOfTime,
            Stage::Left(outcome) => outcome,
        }
    }

    /// The stage as soon as this holds of it, or else at that moment.
    async fn stage_when(&self, until: Instant, holds: impl FnMut(&Stage) -> bool) -> Stage {
        let mut stage = self.stage.subscribe();
        // The sender is in `self`.
        let _ = timeout_at(until, stage.wait_for(holds)).await;
        *self.stage.borrow()
    }

    /// Gives the objects away once the shard is to leave, for as long as it is polled, which is while the Lease is held.
    pub(crate) async fn give_away<Answer: Future<Output = bool>>(
        &self,
        controller: &Controller,
        drains: &Drains,
        is_any_left: impl Fn() -> Answer,
    ) -> Infallible {
        let mut stage = self.stage.subscribe();
        let begun = stage.wait_for(|stage| matches!(stage, Stage::Leaves { .. })).await.map(|stage| *stage);
        if let Ok(Stage::Leaves { until }) = begun {
            tracing::info!("this replica ends: giving its objects away while its controller works");
            controller.leave();
            let outcome = timeout_at(until, until_gone(drains, is_any_left)).await.unwrap_or(Outcome::OutOfTime);
            tracing::info!(%outcome, "the controller is ended now");
            self.stage.send_replace(Stage::Left(outcome));
        }
        pending().await
    }

    /// The Lease has not been held for a while: nothing is waited for.
    pub(crate) fn without_lease(&self) {
        self.stage.send_if_modified(|stage| {
            let leaves = matches!(stage, Stage::Leaves { .. });
            if leaves {
                *stage = Stage::Left(Outcome::WithoutLease);
            }
            leaves
        });
    }

    /// Where the hooks ask. Who has the local token can have the shard leave; others may wait for it.
    pub(crate) fn routes(&self, token: Arc<Token>) -> Router {
        let left = async |State((leave, _)): State<(Self, Arc<Token>)>| format!("{}\n", leave.ended().await);
        Router::new()
            .route(&format!("{LEAVE}/{{seconds}}"), post(leave))
            .route(LEFT, get(left))
            .with_state((self.clone(), token))
    }
}

async fn leave(
    State((leave, token)): State<(Leave, Arc<Token>)>,
    Path(seconds): Path<u32>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let offered = headers.get(header::AUTHORIZATION).and_then(bearer);
    if offered.and_then(|offered| token.generation_of(offered.as_bytes())).is_none() {
        return (StatusCode::UNAUTHORIZED, "it takes the token of the access folder\n".to_owned());
    }
    let outcome = leave.begin(Duration::from_secs(seconds.into())).await;
    // A hook that fails is an Event on the Pod.
    let status = if outcome == Outcome::Empty { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{outcome}\n"))
}

/// Returns when no object is left, or none was asked for in a while.
async fn until_gone<Answer: Future<Output = bool>>(drains: &Drains, is_any_left: impl Fn() -> Answer) -> Outcome {
    let (mut begun, mut since) = (drains.begun(), Instant::now());
    loop {
        drains.none().await;
        if !is_any_left().await {
            return Outcome::Empty;
        }
        let now = drains.begun();
        if now != begun {
            (begun, since) = (now, Instant::now());
        } else if since.elapsed() >= ASKED_WITHIN {
            return Outcome::NotAskedFor;
        }
        sleep(LOOKS_EVERY).await;
    }
}
