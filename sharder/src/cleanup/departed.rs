//! The rings that have gone since this replica started, and what the leader does about them.
//!
//! Every replica remembers them, so that the next leader goes on where one left off. A new leader finds nothing left to
//! do where it was done already.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use kube::Client;
use ringside_ring::RingName;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Cleanup, Scope, Tallies,
    belongings::{self, Outcome},
};
use crate::{
    queue::limiter::Priority,
    snapshot::{Snapshot, Snapshots},
    writes::{AllWrites, Writes},
};

/// With growing pauses these are some minutes: enough for an API server that restarts.
const ATTEMPTS: usize = 12;

/// The rings that have gone, each with every resource that it named while this replica knew it; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departed(watch::Sender<BTreeMap<RingName, Scope>>);

impl Departed {
    /// Notes which rings go, and which come back.
    pub(crate) async fn follow(&self, mut snapshots: watch::Receiver<Option<Arc<Snapshots>>>) -> Infallible {
        let mut known: BTreeMap<RingName, Scope> = BTreeMap::new();
        loop {
            let now = snapshots.borrow_and_update().clone().unwrap_or_default();
            let (here, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
                known.into_iter().partition(|(ring, _)| now.contains_key(ring));
            known = here;
            for (ring, snapshot) in now.iter() {
                remember(known.entry(ring.clone()).or_default(), snapshot);
            }
            self.0.send_if_modified(|departed| {
                let before = departed.len();
                departed.retain(|ring, _| !now.contains_key(ring));
                let changed = !gone.is_empty() || departed.len() != before;
                departed.extend(gone);
                changed
            });
            if snapshots.changed().await.is_err() {
                // Its sender ends only with the process.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Tells which rings have gone.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeMap<RingName, Scope>> {
        self.0.subscribe()
    }

    fn done(&self, ring: &RingName) {
        self.0.send_if_modified(|departed| departed.remove(ring).is_some());
    }
}

fn remember(scope: &mut Scope, snapshot: &Snapshot) {
    scope.roots.extend(snapshot.mains.iter().map(|main| main.resource.id.clone()));
    let children = snapshot.mains.iter().flat_map(|main| &main.controlled);
    // And what it names no more, but may have left labels on.
    let departing = snapshot.departing.values().filter_map(|resource| resource.as_ref().ok());
    let now = snapshot.mains.iter().map(|main| &main.resource).chain(children).chain(departing).cloned();
    // What it names now comes first; what it named before stays among them.
    let before = std::mem::take(&mut scope.resources);
    for resource in now.chain(before) {
        if !scope.resources.iter().any(|known| known.id == resource.id) {
            scope.resources.push(resource);
        }
    }
}

/// The cleaning up after one ring; it stops when this is dropped.
pub(crate) struct Leaving {
    task: AbortOnDropHandle<()>,
    writes: Writes,
}

impl Leaving {
    /// Begins to clean up.
    pub(crate) fn begin(
        client: &Client,
        all_writes: &AllWrites,
        departed: &Departed,
        (ring, scope): (&RingName, &Scope),
    ) -> Self {
        let writes = Writes::among(all_writes).with_priority(Priority::Repair);
        let cleanup =
            Cleanup { client: client.clone(), ring: ring.clone(), writes: writes.clone(), attempts: ATTEMPTS };
        let (departed, scope) = (departed.clone(), scope.clone());
        let task = tokio::spawn(async move {
            clean(&cleanup, &scope).await;
            departed.done(&cleanup.ring);
        });
        Self { task: AbortOnDropHandle::new(task), writes }
    }

    /// Stops, because there is a ring of that name again: what it sets from now on must stay.
    pub(crate) async fn stop(self) {
        self.task.abort();
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            // A bug must not leave labels behind silently: the process ends.
            std::panic::resume_unwind(error.into_panic());
        }
        self.writes.ended().await;
    }
}

async fn clean(cleanup: &Cleanup, scope: &Scope) {
    let ring = &cleanup.ring;
    tracing::info!(%ring, "a ring is gone; taking its labels off");
    for belonging in belongings::remove(&cleanup.client, ring, false).await {
        if let Outcome::Failed(fault) = belonging.outcome {
            tracing::warn!(%ring, resource = %belonging.resource, name = belonging.name, fault, "can't remove what was made for a ring");
        }
    }
    tell(ring, &cleanup.take_labels_off(&scope.resources, scope).await);
}

fn tell(ring: &RingName, tallies: &Tallies) {
    for (resource, tally) in tallies {
        let (taken, left, copies) = (tally.taken, tally.left, &tally.copies);
        match &tally.fault {
            None => tracing::info!(%ring, %resource, taken, ?copies, "took the labels of a ring off"),
            Some(fault) => tracing::warn!(
                %ring, %resource, taken, left, ?copies, fault,
                "can't take all labels of a ring off; mend that and run `ringside cleanup {ring}`"
            ),
        }
    }
    let total: usize = tallies.values().map(|tally| tally.taken).sum();
    tracing::info!(%ring, objects = total, "cleaned up after a ring");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use ringside_ring::lease::ShardState::Ready;
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::{
        cleanup::SETTLED,
        fixtures::FakeApi,
        reconcile::tests::{CONFIG_MAPS, path},
        snapshot::tests::{example_spec, resource, ring, snapshot_of},
    };

    fn snapshots(spec: Option<&Value>) -> Option<Arc<Snapshots>> {
        let snapshot = spec.map(|spec| Arc::new(snapshot_of(&ring(spec), &[("a", Ready)])));
        Some(Arc::new(snapshot.map(|snapshot| (snapshot.ring.clone(), snapshot)).into_iter().collect()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_ring_that_goes_is_remembered_with_all_that_it_named_until_it_is_back() {
        let departed = Departed::default();
        let (sender, receiver) = watch::channel(None);
        let follower = departed.clone();
        let task = tokio::spawn(async move { follower.follow(receiver).await });
        let mut changes = departed.changes();
        let deployments = json!({"resources": [{"group": "apps", "resource": "deployments"}]});
        for spec in [&deployments, &example_spec()] {
            sender.send_replace(snapshots(Some(spec)));
            sleep(Duration::from_secs(1)).await;
        }
        sender.send_replace(snapshots(None));
        sleep(Duration::from_secs(1)).await;
        let gone = changes.borrow_and_update().clone();
        let names: Vec<_> =
            gone.values().flat_map(|scope| &scope.resources).map(|resource| &*resource.id.resource).collect();
        assert_eq!(names, ["configmaps", "secrets", "deployments"], "owners before what they control");
        sender.send_replace(snapshots(Some(&example_spec())));
        sleep(Duration::from_secs(1)).await;
        assert!(changes.borrow_and_update().is_empty());
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn before_a_ring_is_taken_up_again_nothing_is_taken_off_any_more() {
        let api = FakeApi::default();
        let name: RingName = "example".parse().unwrap();
        let key = ringside_ring::RingLabels::of(&name).shard;
        let object = path(CONFIG_MAPS, "o");
        api.put(
            &object,
            json!({"metadata": {"name": "o", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "labels": {&key: "a"}}}),
        );
        api.slow_writes(Duration::from_secs(1));
        let scope = Scope { resources: vec![resource("", "ConfigMap", CONFIG_MAPS)], ..Scope::default() };
        let leaving = Leaving::begin(&api.client(), &AllWrites::default(), &Departed::default(), (&name, &scope));
        sleep(SETTLED + Duration::from_millis(500)).await;
        leaving.stop().await;
        let labels = || api.get(&object).unwrap()["metadata"]["labels"].clone();
        let then = labels();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(labels(), then, "a write that was under way");
        assert_eq!(then, json!({}));
    }
}
