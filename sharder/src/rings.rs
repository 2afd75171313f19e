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

mod additions;
mod announce;
mod figures;
mod label_policy;
mod reconcile;
mod report;
mod status;
mod webhook_configuration;

pub(crate) use additions::{keep_foreign, noted};
pub(crate) use label_policy::{Support, bindings_of, follow as follow_support};
pub(crate) use reconcile::{Told, reconcile};
pub(crate) use webhook_configuration::{ClientConfig, SERVICE_NAME, Trust, WEBHOOK_PATH};

use ringside_runtime::explain::{code, explain_watch};

/// What helps where the API server has no such resource: it belongs to the install, and a sharder must not replace a newer one.
const NOT_DEFINED: &str =
    "there is no ClusterRing resource; install it: kubectl apply --server-side -k deploy/kustomize/base/crd";

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
                Err(error) => tracing::warn!(error = explain(&error), "can't watch ClusterRings; trying again"),
            }
        }
        Ok(())
    };
    (store, changes, task)
}

fn explain(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)
            if code(error) == Some(404) =>
        {
            NOT_DEFINED.to_owned()
        }
        error => explain_watch(error),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn missing_definition_is_named_with_its_command() {
        let status =
            |code| Status::failure("the server could not find the requested resource", "").with_code(code).boxed();
        let said = |code| explain(&watcher::Error::InitialListFailed(kube::Error::Api(status(code))));
        assert!(said(404).ends_with("kubectl apply --server-side -k deploy/kustomize/base/crd"), "{}", said(404));
        assert!(said(403).starts_with("missing permission"), "{}", said(403));
    }
}
