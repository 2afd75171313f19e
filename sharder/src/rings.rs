//! Rings: what users configured, and what they are told about it.

use std::convert::Infallible;

use futures::StreamExt;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        reflector::{Store, store::Writer},
        watcher::{self, watcher},
    },
};
use ringside_ring::ClusterRing;
use tokio::sync::watch;

mod announce;
mod figures;
mod label_policy;
mod reconcile;
mod status;
mod webhook_configuration;

pub(crate) use label_policy::{Support, bindings_of, follow as follow_support};
pub(crate) use reconcile::{Told, reconcile};
pub(crate) use webhook_configuration::{ClientConfig, Trust, WEBHOOK_PATH};

use ringside_runtime::explain::explain_watch;

/// Follows the rings; the receiver tells when they change.
///
/// Nothing is told before all of them have been seen.
pub(crate) fn follow(
    client: Client,
) -> (Store<ClusterRing>, watch::Receiver<()>, impl Future<Output = Result<(), Infallible>> + Send) {
    let mut writer = Writer::default();
    let store = writer.as_reader();
    let (changed, changes) = watch::channel(());
    let task = async move {
        // By list and watch, so that a ring's spec never goes back in time: see `leases::follow`.
        let api: Api<ClusterRing> = Api::all(client);
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let complete = !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                    writer.apply_watcher_event(&event);
                    if complete {
                        changed.send_replace(());
                    }
                }
                Err(error) => tracing::warn!(error = %explain_watch(&error), "can't watch ClusterRings; trying again"),
            }
        }
        Ok(())
    };
    (store, changes, task)
}
