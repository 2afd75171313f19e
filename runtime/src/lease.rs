//! Keeps a Lease: acquires it, renews it in time, notices its loss, releases it.
//!
//! The proxy's shard Lease and the sharder's leader election are both kept by this. DESIGN, "Shard membership":
//! renewals have a timeout each, apart from the validity; validity counts from the START of the last renewal that
//! succeeded; another's Lease is judged by observed change; a conflict that the own writes don't explain is a loss.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};

use crate::{
    clock::{SharedClock, sleep_until},
    shutdown::Shutdown,
};

mod claim;
mod failure;
mod handle;
mod holder_watch;
mod keeper;
#[cfg(test)]
mod tests;

pub use handle::LeaseHandle;

/// How long the end may take after the shutdown: what is under way by then, and the release. After that the Lease runs out
/// by itself.
pub const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Annotations by key; one without value is taken off.
pub type Facts = BTreeMap<String, Option<String>>;

/// Which Lease is kept, and as whom.
#[derive(Clone, Debug)]
pub struct LeaseParams {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who holds it.
    pub holder: String,
    /// How long others wait for a renewal: whole seconds, at least one.
    pub duration: Duration,
    /// Labels that the Lease gets; `None` takes off what stood there before.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations that the Lease gets. A Lease of the same holder with other values of these belongs to
    /// another instance of the same name and is waited for like any other holder's.
    pub annotations: BTreeMap<String, String>,
    /// Annotations by which the holder says something about itself; `None` takes off what stood there before. Unlike the
    /// others they are no identity: they are written with every renewal, and taken off with the release, as who is not
    /// there says nothing. A change is written at once.
    pub facts: watch::Receiver<Facts>,
    /// Whether the Lease is watched while another holder has it: so it is taken as soon as that one releases it. Its
    /// duration counts from the last renewal, and not from when that was looked at. That takes permission to list and
    /// watch it.
    pub prompt: bool,
}

impl LeaseParams {
    /// How often the Lease is renewed, or tried to be; not before the attempt before has ended.
    pub fn renew_every(&self) -> Duration {
        self.duration / 5
    }

    /// How long a single request waits for its answer.
    ///
    /// Longer than from one renewal to the next, so that an API server that is slow all the time keeps no holder from
    /// renewing: an attempt that is given up begins again, and is as slow. And less than half of the validity, so that
    /// after an answer that never comes there is time for another attempt.
    pub fn answer_within(&self) -> Duration {
        self.duration / 3
    }

    /// How long the holder counts a renewal as valid: a fifth less than others wait,
    /// for what remains in flight when the validity ends.
    pub fn validity(&self) -> Duration {
        self.duration / 5 * 4
    }
}

/// Keeps the Lease until the shutdown, then releases it.
///
/// The future does the work and must be run; it ends after the release, or [`ENDS_WITHIN`] after the shutdown. The
/// [`LeaseHandle`] says at any time whether the Lease is held. Failures to reach the API server are logged and tried again.
pub fn keep(
    client: Client,
    terms: LeaseParams,
    clock: SharedClock,
    shutdown: Shutdown,
) -> (LeaseHandle, impl Future<Output = ()> + Send + 'static) {
    let api: Api<Lease> = Api::namespaced(client, &terms.namespace);
    let (news, latest) = watch::channel(handle::LeaseStatus::default());
    let looks = Arc::new(Notify::new());
    let lease_handle = LeaseHandle::new(latest, clock.clone(), looks.clone());
    let keeper = keeper::Keeper::new(api, terms, clock, (news, looks));
    (lease_handle, keeper.run(shutdown))
}

/// Waits for `moment`, or for the shutdown if that is earlier: `true` when it was the shutdown.
async fn wait(clock: &SharedClock, moment: ringside_ring::Moment, shutdown: &Shutdown) -> bool {
    tokio::select! {
        // Nothing is begun after the shutdown, also where the moment has come.
        biased;
        () = shutdown.wait() => true,
        () = sleep_until(&**clock, moment) => false,
    }
}
