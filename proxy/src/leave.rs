//! Leaves the ring in order: the shard gives its objects away while its controller still works on them.
//!
//! When a Pod is deleted, Kubernetes runs the hooks of all its containers, and each container ends after its own. The proxy's hook
//! (`ringside-proxy leave`) asks here, and the controller's waits here (`/left`). So the controller works until nothing is left. What
//! is left when time is over is taken over once the Lease is released.

use std::{convert::Infallible, fmt, future::pending, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use ringside_runtime::admin::Peer;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{controller::Controller, handover::Drains};

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
pub(crate) struct Leave(Arc<watch::Sender<Stage>>);

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
    /// The shard was not asked to leave.
    Stays,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "all objects are handed over",
            Self::NotAskedFor => {
                "the sharder does not ask for what is left: no other replica works, or no sharder runs"
            }
            Self::OutOfTime => "time is over: what is left is taken over when this replica has ended",
            Self::Stays => "this replica was not asked to leave",
        })
    }
}

impl Leave {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Stage::Stays)))
    }

    /// Has the shard leave within that time, unless it does already. Returns when that is over.
    async fn begin(&self, within: Duration) -> Outcome {
        let until = Instant::now() + within;
        self.0.send_if_modified(|stage| match stage {
            Stage::Stays => {
                *stage = Stage::Leaves { until };
                true
            }
            Stage::Leaves { .. } | Stage::Left(_) => false,
        });
        self.ended().await
    }

    /// Waits for a shard that leaves. One that does not begin soon stays.
    async fn ended(&self) -> Outcome {
        let mut stage = self.0.subscribe();
        let begun = timeout(BEGINS_WITHIN, stage.wait_for(|stage| *stage != Stage::Stays)).await;
        match begun.map(|stage| stage.map(|stage| *stage)) {
            Ok(Ok(Stage::Leaves { until })) => {
                let ended = timeout_at(until, stage.wait_for(|stage| matches!(stage, Stage::Left(_)))).await;
                match ended.map(|stage| stage.map(|stage| *stage)) {
                    Ok(Ok(Stage::Left(outcome))) => outcome,
                    _ => Outcome::OutOfTime,
                }
            }
            Ok(Ok(Stage::Left(outcome))) => outcome,
            _ => Outcome::Stays,
        }
    }

    /// Gives the objects away once the shard is to leave, for as long as it is polled, which is while the Lease is held.
    pub(crate) async fn give_away<Answer: Future<Output = bool>>(
        &self,
        controller: &Controller,
        drains: &Drains,
        is_any_left: impl Fn() -> Answer,
    ) -> Infallible {
        let mut stage = self.0.subscribe();
        let begun = stage.wait_for(|stage| matches!(stage, Stage::Leaves { .. })).await.map(|stage| *stage);
        if let Ok(Stage::Leaves { until }) = begun {
            tracing::info!("this replica ends: giving its objects away while its controller works");
            controller.leave();
            let outcome = timeout_at(until, until_gone(drains, is_any_left)).await.unwrap_or(Outcome::OutOfTime);
            tracing::info!(%outcome, "the controller is ended now");
            self.0.send_replace(Stage::Left(outcome));
        }
        pending().await
    }

    /// Where the hooks ask. Only the pod itself can have the shard leave.
    pub(crate) fn routes(&self) -> Router {
        let left = async |State(leave): State<Self>| format!("{}\n", leave.ended().await);
        Router::new().route("/leave/{seconds}", post(leave)).route("/left", get(left)).with_state(self.clone())
    }
}

async fn leave(
    State(leave): State<Leave>,
    Extension(Peer(peer)): Extension<Peer>,
    Path(seconds): Path<u32>,
) -> (StatusCode, String) {
    if !is_local(peer) {
        return (StatusCode::FORBIDDEN, "only the pod itself can have its replica leave\n".to_owned());
    }
    let outcome = leave.begin(Duration::from_secs(seconds.into())).await;
    // A hook that fails is an Event on the Pod.
    let status = if outcome == Outcome::Empty { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{outcome}\n"))
}

fn is_local(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
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
