//! A client of the usual kind: kube's watcher with a store, which recovers by itself or not at all.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use ringside_e2e::eventually::eventually;
use tokio::task::JoinHandle;

use super::fixture::DEADLINE;

pub(crate) struct Follower {
    store: Store<ConfigMap>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Follows all that `api` shows, and returns when it has a picture.
    pub(crate) async fn start(api: Api<ConfigMap>) -> Self {
        let (store, writer) = reflector::store();
        let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        let task = tokio::spawn(async move {
            pin_mut!(events);
            while events.next().await.is_some() {}
        });
        tokio::time::timeout(DEADLINE, store.wait_until_ready()).await.expect("no picture").unwrap();
        Self { store, task }
    }

    pub(crate) async fn until_seen(&self, name: &str, within: Duration) {
        let seen = eventually("an object is seen", within, || async {
            let found = self.store.state().iter().any(|object| object.name_any() == name);
            found.then_some(()).ok_or_else(|| format!("{} others", self.store.len()))
        });
        seen.await.unwrap();
    }

    /// Waits until the store is what the API server has with those labels.
    pub(crate) async fn until_equal(&self, truth: &Api<ConfigMap>, labels: &str, within: Duration) {
        let same = eventually("the store is what the API server has", within, || async {
            let truth = truth.list(&ListParams::default().labels(labels)).await.map_err(|error| error.to_string())?;
            let version = |object: &ConfigMap| (object.name_any(), object.resource_version().unwrap_or_default());
            let truth: BTreeMap<_, _> = truth.iter().map(version).collect();
            let seen: BTreeMap<_, _> = self.store.state().iter().map(|object| version(object)).collect();
            if truth == seen { Ok(()) } else { Err(format!("{} there, {} seen", truth.len(), seen.len())) }
        });
        same.await.unwrap();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}
