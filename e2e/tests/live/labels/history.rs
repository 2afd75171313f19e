//! Who had each object, as a watch tells it, change by change.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};
use ringside_ring::RingLabels;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::labels::fixture::Labelled;

/// Shard and drain of an object.
type Ownership = (Option<String>, Option<String>);

/// Follows all objects of a resource until it is dropped.
pub(crate) struct History {
    /// From whom, and how.
    lost: Arc<Mutex<Vec<(String, String)>>>,
    task: JoinHandle<()>,
}

impl History {
    /// Returns once it has seen all that is there.
    pub(crate) async fn follow<K: Labelled + Send + 'static>(client: &Client, labels: &RingLabels) -> Self {
        let (lost, labels, api) =
            (Arc::<Mutex<Vec<(String, String)>>>::default(), labels.clone(), Api::<K>::all(client.clone()));
        let (complete, listed) = oneshot::channel();
        let told = lost.clone();
        let task = tokio::spawn(async move {
            let mut complete = Some(complete);
            let mut owners: HashMap<String, Ownership> = HashMap::new();
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    Event::Apply(object) | Event::InitApply(object) => {
                        let ownership = labels.ownership(object.meta().labels.as_ref());
                        let now = (ownership.shard.map(str::to_owned), ownership.drain.map(str::to_owned));
                        let before = owners.insert(object.uid().unwrap(), now.clone());
                        if let Some((Some(shard), None)) = &before
                            && Some(shard) != now.0.as_ref()
                        {
                            let version = object.resource_version().unwrap();
                            let change = format!("{} at {version}: {before:?} → {now:?}", object.name_any());
                            told.lock().unwrap().push((shard.clone(), change));
                        }
                    }
                    Event::InitDone => complete.take().unwrap().send(()).unwrap(),
                    Event::Init | Event::Delete(_) => {}
                }
            }
        });
        listed.await.unwrap();
        Self { lost, task }
    }

    /// The changes that took an object from one of these shards, which was not asked to release it.
    pub(crate) fn lost(&self, shards: &BTreeSet<&str>) -> Vec<String> {
        assert!(!self.task.is_finished(), "the watch broke");
        let lost = self.lost.lock().unwrap();
        lost.iter().filter(|(from, _)| shards.contains(&**from)).map(|(_, change)| change.clone()).collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}
