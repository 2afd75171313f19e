//! The part of the process that is a shard: finds out who it is, holds the Lease, and lets go of objects meanwhile.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use kube::Client;
use ringside_runtime::{admin::Check, clock::SharedClock, lease::Tenure, shutdown::Shutdown};
use tokio::sync::watch;

use crate::{
    config::Config,
    controller::Controller,
    handover::{Drains, Handover},
    leave::{Leave, Remaining},
    membership::{self, identity},
    policy::Knowledge,
    stages::Shared,
};

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
    /// Whether this instance may work.
    pub(crate) admitted: Check,
    /// Readiness to let go of what is drained.
    pub(crate) drains_check: Check,
    /// Is triggered before the end when the controller has left: who was cut off may still be at work.
    pub(crate) left: Shutdown,
    pub(crate) tenure: Arc<OnceLock<Tenure>>,
    pub(crate) knowledge: watch::Receiver<Knowledge>,
    pub(crate) drains: Drains,
    pub(crate) controller: Controller,
    /// Whether the shard is to give its objects away.
    pub(crate) leave: Leave,
    /// What requests pass.
    pub(crate) shared: Shared,
}

impl Shard {
    /// Runs until the controller is served no longer, and returns after the Lease was released.
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
        tracing::info!(ring = %self.config.ring, shard = %identity.shard, instance = identity.instance, "started as shard");
        let shard = membership::Shard {
            ring: self.config.ring.clone(),
            namespace: self.namespace.clone(),
            lease_duration: self.config.lease_duration,
            grace: self.config.drain_grace,
            weight: self.config.weight,
            group: self.config.group.clone(),
            controller: self.controller.clone(),
            gate: self.shared.gate.clone(),
            check: self.check.clone(),
            admitted: self.admitted.clone(),
            knowledge: self.knowledge.clone(),
            newest: self.shared.newest.clone(),
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
            never = self.end(&handover, &ended, &release) => match never {},
        }
        Ok(())
    }

    /// Lets go of what is drained when the controller has ended, and has the Lease released then.
    async fn end(&self, handover: &Handover, ended: &Shutdown, release: &Shutdown) -> Infallible {
        ended.wait().await;
        if self.left.is_triggered() {
            handover.finish().await;
        }
        release.trigger();
        std::future::pending().await
    }

    /// Lets go of objects and keeps the locks of the controller's elections while the Lease is held: without it they are not
    /// ours.
    async fn hand_over(&self, handover: &Handover) {
        let remaining = Remaining {
            client: self.client.clone(),
            selector: handover.labels.naming(&handover.shard),
            knowledge: self.knowledge.clone(),
        };
        loop {
            let Ok(term) = self.shared.gate.pass(crate::stages::admit::ADMIT_TIMEOUT).await else {
                self.leave.without_lease();
                continue;
            };
            let handover = handover.during(&term);
            tokio::select! {
                biased;
                _ = term.over() => self.shared.lost(&term),
                () = handover.run(self.client.clone(), self.knowledge.clone()) => {}
                never = self.shared.hold.keep(&self.shared.locks) => match never {},
                never = self.leave.give_away(&self.controller, &self.drains, || remaining.is_any()) => match never {},
                never = self.controller.judge(term.began, self.knowledge.clone()) => match never {},
            }
        }
    }
}
