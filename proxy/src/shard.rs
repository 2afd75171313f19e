//! The part of the process that is a shard: finds out who it is, holds the Lease, and lets go of objects meanwhile.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kube::Client;
use ringside_runtime::{admin::Check, clock::SharedClock, lease::Tenure, shutdown::Shutdown};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    config::Config,
    handover::{Drains, Handover},
    membership::{self, identity},
    policy::Knowledge,
    stages::Shared,
};

/// How long the Lease is kept at the end to let go of what is drained. Its next instance, or the sharder, sees to what is left.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) struct Shard {
    pub(crate) config: Config,
    pub(crate) namespace: String,
    /// The id of this process where it is no pod's.
    pub(crate) instance: String,
    pub(crate) client: Client,
    /// With connections of its own: a renewal waits behind nothing.
    pub(crate) lease_client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) check: Check,
    /// Readiness to let go of what is drained.
    pub(crate) drains_check: Check,
    pub(crate) tenure: Arc<OnceLock<Tenure>>,
    pub(crate) knowledge: watch::Receiver<Knowledge>,
    pub(crate) drains: Drains,
    /// What requests pass.
    pub(crate) shared: Shared,
}

/// Lets go of what is drained when the controller has ended, and has the Lease released then.
async fn end(handover: &Handover, ended: &Shutdown, release: &Shutdown) -> Infallible {
    ended.wait().await;
    if timeout(LAST_WORDS, handover.finish()).await.is_err() {
        let (drained, _) = handover.drains.all(Instant::now());
        tracing::info!(drained, "the Lease is released before all that is drained was let go");
    }
    release.trigger();
    std::future::pending().await
}

impl Shard {
    /// Runs until the controller has ended, and returns after the Lease was released.
    pub(crate) async fn run(self, ended: Shutdown) -> Result<(), identity::IdentityError> {
        self.check.fail("the API server has not said yet which pod this is");
        let token = tokio::select! {
            token = identity::ask(&self.client) => token,
            () = ended.wait() => return Ok(()),
        };
        let identity = identity::decide(
            token,
            self.config.shard_name.as_ref(),
            self.config.hostname.as_deref(),
            self.instance.clone(),
        )?;
        tracing::info!(ring = %self.config.ring, shard = %identity.shard, instance = identity.instance, "this is the shard");
        let shard = membership::Shard {
            ring: self.config.ring.clone(),
            namespace: self.namespace.clone(),
            lease_duration: self.config.lease_duration,
            grace: self.config.drain_grace,
            weight: self.config.weight,
            gate: self.shared.gate.clone(),
            check: self.check.clone(),
        };
        let tell = |tenure| drop(self.tenure.set(tenure));
        let release = Shutdown::new();
        let hold = shard.hold(self.lease_client.clone(), &identity, self.clock.clone(), release.clone(), tell);
        let handover = Handover::new(
            &self.config.ring,
            identity.shard.clone(),
            self.shared.views.clone(),
            self.shared.fence.clone(),
            self.drains.clone(),
            self.config.drain_grace,
            self.drains_check.clone(),
        );
        tokio::select! {
            () = hold => {}
            () = self.hand_over(&handover) => {}
            never = end(&handover, &ended, &release) => match never {},
        }
        Ok(())
    }

    /// Lets go of objects and keeps the locks of the controller's elections while the Lease is held: without it they are not
    /// ours.
    async fn hand_over(&self, handover: &Handover) {
        loop {
            let Ok(term) = self.shared.gate.pass(crate::stages::admit::PATIENCE).await else { continue };
            tokio::select! {
                biased;
                _ = term.over() => {
                    self.shared.hold.knows_nothing();
                    self.shared.gaps.begins();
                }
                () = handover.run(self.client.clone(), self.knowledge.clone()) => {}
                never = self.shared.hold.keep(&self.shared.locks) => match never {},
            }
        }
    }
}
