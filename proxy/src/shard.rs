//! The part of the process that is a shard: finds out who it is, holds the Lease, and releases objects meanwhile.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, OnceLock},
};

use kube::Client;
use ringside_runtime::{admin::Check, clock::SharedClock, lease::LeaseHandle, shutdown::Shutdown};
use tokio::sync::watch;

use crate::{
    config::Config,
    controller::Controller,
    handover::{Drains, Handover},
    leave::{Leave, Remaining},
    membership::{self, identity},
    policy::RingState,
    stages::Shared,
};

/// What the proxy of a shard works with. In it is seen what it does.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) config: Config,
    /// What requests pass.
    pub(crate) shared: Shared,
    pub(crate) drains: Drains,
    pub(crate) controller: Controller,
    /// The hold on the Lease, once there is one.
    pub(crate) lease_handle: Arc<OnceLock<LeaseHandle>>,
    /// The clock that its validity counts on.
    pub(crate) clock: SharedClock,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("config", &self.config).finish_non_exhaustive()
    }
}

pub(crate) struct Shard {
    pub(crate) parts: Parts,
    pub(crate) namespace: String,
    /// The id of this process where it is no pod's.
    pub(crate) instance: String,
    pub(crate) client: Client,
    /// With connections of its own: a renewal waits behind nothing.
    pub(crate) lease_client: Client,
    pub(crate) check: Check,
    /// Whether this instance may work.
    pub(crate) admitted: Check,
    /// Readiness to release what is drained.
    pub(crate) drains_check: Check,
    /// Is triggered before the end when the controller has left: who was cut off may still be at work.
    pub(crate) left: Shutdown,
    pub(crate) knowledge: watch::Receiver<RingState>,
    /// Whether the shard is to give its objects away.
    pub(crate) leave: Leave,
}

impl Shard {
    /// Runs until the controller is served no longer, and returns after the Lease was released.
    pub(crate) async fn run(self, ended: Shutdown) -> Result<(), identity::IdentityError> {
        let parts = &self.parts;
        self.check.fail("the API server has not said yet which pod this is");
        let token = tokio::select! {
            token = identity::ask(&self.client) => token,
            () = ended.wait() => return Ok(()),
        };
        let identity = identity::decide(
            token,
            parts.config.shard_name.as_ref(),
            parts.config.hostname.as_deref(),
            self.instance.clone(),
        )?;
        tracing::info!(ring = %parts.config.ring, shard = %identity.shard, instance = identity.instance, "started as shard");
        let shard = membership::Shard {
            config: parts.config.clone(),
            namespace: self.namespace.clone(),
            controller: parts.controller.clone(),
            gate: parts.shared.gate.clone(),
            check: self.check.clone(),
            admitted: self.admitted.clone(),
            knowledge: self.knowledge.clone(),
            newest: parts.shared.newest.clone(),
        };
        let tell = |lease_handle| drop(parts.lease_handle.set(lease_handle));
        let release = Shutdown::new();
        let hold = shard.hold(self.lease_client.clone(), &identity, parts.clock.clone(), release.clone(), tell);
        let handover = Handover::new(
            &parts.config.ring,
            identity.shard.clone(),
            parts.shared.views.clone(),
            parts.shared.fence.clone(),
            parts.drains.clone(),
            parts.config.drain_grace,
            self.drains_check.clone(),
        );
        tokio::select! {
            () = hold => {}
            () = self.hand_over(&handover) => {}
            never = self.end(&handover, &ended, &release) => match never {},
        }
        Ok(())
    }

    /// Releases what is drained when the controller has ended, and then has the Lease released.
    async fn end(&self, handover: &Handover, ended: &Shutdown, release: &Shutdown) -> Infallible {
        ended.wait().await;
        if self.left.is_triggered() {
            handover.finish().await;
        }
        release.trigger();
        std::future::pending().await
    }

    /// Releases objects and keeps the locks of the controller's elections while the Lease is held. Without the Lease
    /// they are not ours.
    async fn hand_over(&self, handover: &Handover) {
        let parts = &self.parts;
        let remaining = Remaining {
            client: self.client.clone(),
            selector: handover.labels.naming(&handover.shard),
            knowledge: self.knowledge.clone(),
        };
        loop {
            let Ok(term) = parts.shared.gate.pass(crate::stages::admit::ADMIT_TIMEOUT).await else {
                self.leave.without_lease();
                continue;
            };
            let handover = handover.during(&term);
            tokio::select! {
                biased;
                _ = term.over() => parts.shared.lost(&term),
                () = handover.run(self.client.clone(), self.knowledge.clone()) => {}
                never = parts.shared.hold.keep(&parts.shared.locks) => match never {},
                never = self.leave.give_away(&parts.controller, &parts.drains, || remaining.is_any()) => match never {},
                never = parts.controller.judge(term.began, self.knowledge.clone()) => match never {},
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_runtime::admin::{Health, Probe};

    use super::*;
    use crate::{
        access::{Handout, Token},
        election::{Kept, hold::tests::Server},
        gap::GapDetector,
        policy,
    };

    impl Parts {
        /// Builds the parts of a proxy that has just started, with these arguments.
        pub(crate) fn of(arguments: &[&str], clock: SharedClock) -> Self {
            let (config, health) = (Config::of(arguments), Health::new());
            let folder = || Handout::to("/dev/null".into());
            let gaps = GapDetector::new(folder(), 0, health.check("gap", Probe::Controller));
            let before = (Token::of("secret"), false, gaps, Kept::new(folder()), health.check("locks", Probe::Ready));
            let of_elections = ("default", Server::default().client());
            let shared = crate::shared(before, (of_elections, &clock), &policy::ring_state(), &config);
            let controller = crate::controller(&config, &shared, false, &health);
            Self { config, shared, drains: Drains::new(), controller, lease_handle: Arc::default(), clock }
        }
    }
}
