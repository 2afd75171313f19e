//! Deployments of shards that roll: which shards are about to be replaced, for who places objects.
//!
//! An object that is given to such a shard moves again soon, and so does one that leaves its shard for the first newcomer
//! while others are to come (`Members::may_receive` and `Members::are_replaced` in `ring/`). Every replica reads the metadata of
//! the Pod that a shard's Lease names once, when the shard comes: a Pod's template never changes, so nothing is watched.
//!
//! What is not known changes nothing: a Pod that is not there, or may not be read, counts as one that stays. A shard is
//! counted when its Lease is seen, which may be a moment before its Pod is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use crate::lock::Mutex;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use ringside_ring::{
    Moment, RingName, ShardName,
    generation::{Generation, Roll, roll},
};
use ringside_runtime::{
    clock::{SharedClock, told_or_at},
    explain::explain,
};
use tokio::sync::watch;

use crate::{
    leases::{Leases, Place},
    pauses::Pauses,
};

/// How long a roll may make no progress before its shards count like all others: as long as a Deployment waits by default
/// (`progressDeadlineSeconds`). One that hangs, or is paused, would keep objects from where they belong for ever.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(600);
/// Reads at once: many shards are unknown together only when the sharder starts.
const PARALLEL_READS: usize = 8;

/// The rolls of all rings; clones share them.
#[derive(Clone)]
pub(crate) struct Rolls {
    known: Arc<Mutex<Known>>,
    clock: SharedClock,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Known {
    /// Of the shards that hold their Leases what their Pods are; none where no Deployment made the Pod, or there is none.
    pods: BTreeMap<(RingName, Place), Option<Generation>>,
    progress: BTreeMap<RingName, Progress>,
    /// The shards that are about to be replaced, as it is told.
    outgoing: BTreeMap<RingName, BTreeSet<ShardName>>,
}

/// How far a roll has come. Kept when it seems to be over: a newcomer that comes and goes begins no other.
struct Progress {
    towards: BTreeMap<String, String>,
    /// The fewest shards that were to be replaced.
    left: usize,
    /// Since when it has been so.
    since: Moment,
}

impl Progress {
    /// That of a roll as it is seen at `now`.
    fn at(now: Moment, roll: &Roll, before: Option<Self>) -> Self {
        let left = roll.outgoing.len();
        match before.filter(|before| before.towards == roll.towards && before.left <= left) {
            Some(before) => before,
            None => Self { towards: roll.towards.clone(), left, since: now },
        }
    }
}

impl Rolls {
    /// None known yet.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { known: Arc::default(), clock, changed: watch::Sender::new(()) }
    }

    /// The rolls of a ring as they are now, for who does not follow them.
    pub(crate) async fn look(client: &Client, leases: &Leases, clock: SharedClock) -> Result<Self, kube::Error> {
        let rolls = Self::new(clock);
        rolls.learn(client, leases).await?;
        rolls.judge();
        Ok(rolls)
    }

    /// The shards of a ring that are about to be replaced.
    pub(crate) fn outgoing(&self, ring: &RingName) -> BTreeSet<ShardName> {
        self.known.lock().outgoing.get(ring).cloned().unwrap_or_default()
    }

    /// Tells when others are about to be replaced.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Reads the Pods of the shards that were not known yet, as far as that is possible; returns the first failure.
    async fn learn(&self, client: &Client, leases: &Leases) -> Result<(), kube::Error> {
        let rings = leases.members().unwrap_or_default().into_keys();
        let places = rings.flat_map(|ring| leases.places(&ring).into_iter().map(move |place| (ring.clone(), place)));
        let places: BTreeSet<_> = places.collect();
        let unknown: Vec<_> = {
            let mut known = self.known.lock();
            known.pods.retain(|place, _| places.contains(place));
            places.into_iter().filter(|place| !known.pods.contains_key(place)).collect()
        };
        let mut read = stream::iter(unknown)
            .map(|(ring, place)| async move {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &place.namespace);
                let pod = pods.get_metadata_opt(&place.shard).await?;
                Ok(((ring, place), pod.and_then(|pod| Generation::of(&pod.metadata))))
            })
            .buffer_unordered(PARALLEL_READS);
        let mut failure = None;
        while let Some(outcome) = read.next().await {
            match outcome {
                Ok((place, generation)) => drop(self.known.lock().pods.insert(place, generation)),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Finds out who is about to be replaced; returns when that ends by itself.
    fn judge(&self) -> Option<Moment> {
        let now = self.clock.now();
        let mut known = self.known.lock();
        let mut rings: BTreeMap<RingName, BTreeMap<ShardName, Generation>> = BTreeMap::new();
        for ((ring, place), generation) in &known.pods {
            let shards = rings.entry(ring.clone()).or_default();
            shards.extend(place.shard.parse().ok().zip(generation.clone()));
        }
        known.progress.retain(|ring, _| rings.contains_key(ring));
        let (mut outgoing, mut next) = (BTreeMap::new(), None);
        for (ring, shards) in rings {
            let roll = roll(&shards);
            if roll.outgoing.is_empty() {
                continue;
            }
            let progress = Progress::at(now, &roll, known.progress.remove(&ring));
            let end = progress.since + PROGRESS_TIMEOUT;
            known.progress.insert(ring.clone(), progress);
            if now < end {
                next = next.into_iter().chain([end]).min();
                outgoing.insert(ring, roll.outgoing);
            }
        }
        if known.outgoing != outgoing {
            for (ring, shards) in &outgoing {
                tracing::info!(%ring, shards = shards.len(), "a rollout replaces shards; objects stay until it ends");
            }
            known.outgoing = outgoing;
            self.changed.send_replace(());
        }
        next
    }
}

/// Follows the rolls of all rings.
pub(crate) async fn follow(client: Client, leases: Leases, rolls: Rolls) -> Result<(), Infallible> {
    let mut membership = leases.membership();
    let mut pauses = Pauses::new();
    loop {
        membership.borrow_and_update();
        let read = rolls.learn(&client, &leases).await;
        if read.is_ok() {
            pauses = Pauses::new();
        }
        let next = rolls.judge();
        let again = async {
            match &read {
                Ok(()) => std::future::pending().await,
                Err(error) => {
                    tracing::warn!(error = %explain(error), "can't read the Pods of shards, so objects may move twice while they are replaced; trying again");
                    pauses.next().await;
                }
            }
        };
        tokio::select! {
            // Its sender lives in `leases`.
            () = told_or_at(&mut membership, &*rolls.clock, next) => {}
            () = again => {}
        }
    }
}

#[cfg(test)]
mod tests;
