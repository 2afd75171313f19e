//! Sees what becomes of a Lease while another holder has it, sooner than by asking now and then.

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watch_object},
    },
};

type Events = BoxStream<'static, Result<Option<Lease>, watcher::Error>>;

/// A watch on one Lease, there while it is needed.
pub(super) struct HolderWatch {
    api: Api<Lease>,
    name: String,
    /// None while no caller waits.
    events: Option<Events>,
}

impl HolderWatch {
    pub(super) fn new(api: Api<Lease>, name: String) -> Self {
        Self { api, name, events: None }
    }

    /// The Lease as it is now, at first, and after each change; none when there is none. A watch that fails is begun
    /// again: a caller that waits also reads the Lease now and then.
    pub(super) async fn next(&mut self) -> Option<Lease> {
        let begin = || watch_object(self.api.clone(), &self.name).default_backoff().boxed();
        let events = self.events.get_or_insert_with(begin);
        while let Some(event) = events.next().await {
            if let Ok(lease) = event {
                return lease;
            }
        }
        std::future::pending().await
    }

    /// Ends the watch.
    pub(super) fn rest(&mut self) {
        self.events = None;
    }
}
