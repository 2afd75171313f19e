//! A client of the usual kind: kube's watcher with a store, which recovers by itself or not at all.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use ringside_e2e::eventually::eventually;
use tokio_util::task::AbortOnDropHandle;

use super::fixture::PATIENCE;

pub(crate) struct Follower {
    store: Store<ConfigMap>,
    _task: AbortOnDropHandle<()>,
}

impl Follower {
    /// Follows all that `api` shows, and returns when it has a picture.
    pub(crate) async fn start(api: Api<ConfigMap>) -> Self {
        let (store, writer) = reflector::store();
        let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        let task = tokio::spawn(events.for_each(|_| std::future::ready(())));
        tokio::time::timeout(PATIENCE, store.wait_until_ready()).await.expect("no picture").unwrap();
        Self { store, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) async fn until_seen(&self, name: &str, within: Duration) {
        let seen = eventually("an object is seen", within, || async {
            let found = self.store.state().iter().any(|object| object.name_any() == name);
            found.then_some(()).ok_or_else(|| format!("{} others", self.store.len()))
        });
        seen.await.unwrap();
    }
}
