//! Watches the objects and the shard Leases of a ring, for the checker and for people.

mod objects;
mod shards;
mod versions;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use ringside_ring::{RingLabels, RingName};
use tokio::task::JoinHandle;

pub use self::versions::Versions;
use self::{objects::Objects, shards::Shards};
use crate::{collector::Recorder, website::Website};

/// What is there now.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The shards that have a Lease, with the state that the sharder wrote on it.
    pub shards: BTreeMap<String, String>,
    /// How many objects each shard owns.
    pub owned: BTreeMap<String, usize>,
    /// How many objects each shard was asked to let go of.
    pub draining: BTreeMap<String, usize>,
    /// How many objects have no owner.
    pub unassigned: usize,
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    watches: JoinHandle<()>,
}

#[derive(Debug)]
struct Seen {
    objects: Objects,
    shards: Shards,
}

/// An event of either watch.
enum Change {
    Object(Event<PartialObjectMeta<Website>>),
    Lease(Event<Lease>),
}

impl Observer {
    /// Starts to watch, with metadata alone where that is enough, and records what it sees.
    ///
    /// Of the objects in `namespace` alone, where it names one.
    pub fn start(client: &Client, ring: &RingName, namespace: Option<&str>, recorder: Recorder) -> Self {
        let seen =
            Arc::new(Mutex::new(Seen { objects: Objects::new(RingLabels::of(ring)), shards: Shards::default() }));
        let changes = changes(client, ring, namespace);
        let watches = tokio::spawn(follow(changes, Arc::clone(&seen), recorder));
        Self { seen, watches }
    }

    /// Whether it still watches: it ends only by a panic.
    pub fn is_running(&self) -> bool {
        !self.watches.is_finished()
    }

    /// What is there now.
    pub fn picture(&self) -> Picture {
        let seen = lock(&self.seen);
        let mut picture = Picture { shards: seen.shards.states(), ..Picture::default() };
        seen.objects.count(&mut picture);
        picture
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.abort();
    }
}

fn changes(
    client: &Client,
    ring: &RingName,
    namespace: Option<&str>,
) -> impl Stream<Item = watcher::Result<Change>> + Send + use<> {
    let objects: Api<PartialObjectMeta<Website>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let leases: Api<Lease> = Api::all(client.clone());
    let of_the_ring = watcher::Config::default().labels(&ring.lease_selector());
    let objects = watcher(objects, watcher::Config::default()).default_backoff().map(|event| event.map(Change::Object));
    let leases = watcher(leases, of_the_ring).default_backoff().map(|event| event.map(Change::Lease));
    stream::select(leases.boxed(), objects.boxed())
}

async fn follow(
    mut changes: impl Stream<Item = watcher::Result<Change>> + Unpin,
    seen: Arc<Mutex<Seen>>,
    recorder: Recorder,
) {
    while let Some(change) = changes.next().await {
        let mut seen = lock(&seen);
        let events = match change {
            Ok(Change::Object(event)) => seen.objects.apply(event),
            Ok(Change::Lease(event)) => seen.shards.apply(event),
            Err(error) => {
                tracing::warn!(%error, "a watch of the observer was interrupted");
                continue;
            }
        };
        for event in events {
            recorder.record(event);
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
