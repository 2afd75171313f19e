//! Being a shard: who we are, holding the Lease, and opening and closing the gate that all requests pass.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use kube::Client;
use ringside_ring::{
    Grace, RingKind, RingLabels, ShardName,
    labels::{
        LEASE_CONTROLLER, LEASE_GRACE, LEASE_GROUP, LEASE_INSTANCE, LEASE_RING_GENERATION, LEASE_TOKEN_POD,
        LEASE_VERSION, LEASE_WEIGHT,
    },
};
use ringside_runtime::{
    admin::Check,
    clock::SharedClock,
    lease::{Facts, LeaseHandle, LeaseParams, keep},
    shutdown::Shutdown,
};
use tokio::sync::watch;

use crate::{Config, controller::Controller, policy::RingState};
use admission::Admission;

mod admission;
pub mod gate;
pub mod identity;

#[cfg(test)]
mod tests;

pub use gate::{Gate, LeaseTerm};
pub use identity::Identity;

/// What a shard Lease is kept with.
#[derive(Debug)]
pub struct Shard {
    /// What it says about itself, and for how long. A weight or a group that was not given is not for this process to say.
    pub config: Config,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The controller behind this proxy.
    pub controller: Controller,
    /// What requests pass while it is held.
    pub gate: Gate,
    /// Whether the Lease is held.
    pub check: Check,
    /// Whether this instance may work.
    pub admitted: Check,
    /// What is known of the ring.
    pub knowledge: watch::Receiver<RingState>,
    /// The newest generation of the ring, as the Lease says.
    pub newest: watch::Sender<i64>,
}

impl Shard {
    /// The labels that name the ring. A Lease from before may be of a ring of the other kind.
    fn of_ring(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let name = |kind| (kind == self.config.ring.kind()).then(|| self.config.ring.name().to_owned());
        RingKind::ALL.into_iter().map(move |kind| (kind.names().lease_label.to_owned(), name(kind)))
    }

    fn terms(&self, identity: &Identity, facts: watch::Receiver<Facts>) -> LeaseParams {
        LeaseParams {
            namespace: self.namespace.clone(),
            name: identity.shard.to_string(),
            holder: identity.shard.to_string(),
            duration: self.config.lease_duration,
            labels: self
                .of_ring()
                // The sharder says on the ring when the API server's fence can't know this shard.
                .chain(identity.token_pod.clone().map(|pod| (LEASE_TOKEN_POD.to_owned(), Some(pod))))
                .collect(),
            annotations: BTreeMap::from([(LEASE_INSTANCE.to_owned(), identity.instance.clone())]),
            facts,
            // Who held a Lease of this name before is gone, or is about to be replaced; and shards may not watch Leases.
            prompt: false,
        }
    }

    /// What the shard says about itself. Of its weight and group nothing, where that is left to those who annotate the Lease.
    fn facts(&self) -> Facts {
        let grace = (LEASE_GRACE.to_owned(), Grace::of(self.config.drain_grace).map(|grace| grace.to_string()));
        let weight = self.config.weight.map(|weight| (LEASE_WEIGHT.to_owned(), Some(weight.to_string())));
        let controller = self.controller.said().map(|said| (LEASE_CONTROLLER.to_owned(), Some(said.to_owned())));
        let version = (LEASE_VERSION.to_owned(), Some(env!("CARGO_PKG_VERSION").to_owned()));
        let group = self.config.group.clone().map(|group| (LEASE_GROUP.to_owned(), Some(group)));
        [grace, version].into_iter().chain(weight).chain(group).chain(controller).collect()
    }

    /// Publishes the facts again with each change.
    async fn say(&self, facts: &watch::Sender<Facts>) -> Infallible {
        let mut changes = self.controller.changes();
        loop {
            let said = self.facts();
            facts.send_if_modified(|before| std::mem::replace(before, said.clone()) != said);
            if changes.changed().await.is_err() {
                // The sender lives in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Keeps the Lease, and the gate open while it is held, until `release`; then releases it.
    pub async fn hold(
        &self,
        client: Client,
        identity: &Identity,
        clock: SharedClock,
        release: Shutdown,
        tell: impl FnOnce(LeaseHandle),
    ) {
        let (facts, latest) = watch::channel(self.facts());
        let (lease_handle, keeper) = keep(client, self.terms(identity, latest), clock, release.clone());
        tell(lease_handle.clone());
        tokio::select! {
            () = keeper => {}
            () = self.publish_lease_state(&lease_handle, identity, &release) => {}
            never = self.tell_generation(lease_handle.clone()) => match never {},
            never = self.say(&facts) => match never {},
        }
        self.gate.close();
    }

    /// Tells the newest generation of the ring whenever the Lease says another.
    async fn tell_generation(&self, mut lease_handle: LeaseHandle) -> Infallible {
        loop {
            let newest = lease_handle.annotation(LEASE_RING_GENERATION).and_then(|newest| newest.parse().ok());
            if let Some(newest) = newest {
                self.newest.send_if_modified(|known| std::mem::replace(known, newest) != newest);
            }
            lease_handle.changed().await;
        }
    }

    /// Waits for the Lease, and says meanwhile why it is not held.
    async fn until_held(&self, lease_handle: &LeaseHandle, shard: &ShardName) {
        let mut news = lease_handle.clone();
        loop {
            let why = lease_handle.reason().map(|why| format!(": {why}")).unwrap_or_default();
            self.check.fail(format!("the Lease of shard '{shard}' is not held{why}"));
            tokio::select! {
                () = lease_handle.until_held() => return,
                () = news.changed() => {}
            }
        }
    }

    /// Opens the gate when the Lease is held and closes it when it is lost, over and over.
    async fn publish_lease_state(&self, lease_handle: &LeaseHandle, identity: &Identity, release: &Shutdown) {
        let shard = &identity.shard;
        let selector: Arc<str> = RingLabels::of(&self.config.ring).owned_by(shard).into();
        loop {
            self.until_held(lease_handle, shard).await;
            self.check.pass();
            let mut admission = Admission {
                instance: identity.instance.clone(),
                lease_handle: lease_handle.clone(),
                knowledge: self.knowledge.clone(),
            };
            tokio::select! {
                () = admission.until_admitted(&self.admitted) => {}
                () = lease_handle.until_lost() => continue,
            }
            let ask = admission.clone();
            self.gate
                .open(LeaseTerm::new(shard.clone(), selector.clone(), move || ask.lease_handle.held() && ask.lasts()));
            tokio::select! {
                () = lease_handle.until_lost() => {}
                () = admission.until_over() => tracing::error!(%shard, "another instance of this name is admitted"),
            }
            self.gate.close();
            if release.is_triggered() {
                // The keeper says when it is written.
                return std::future::pending().await;
            }
            tracing::error!(%shard, reason = lease_handle.reason(), "shard Lease lost, or not admitted; closed all streams except watches of main resources");
        }
    }
}
