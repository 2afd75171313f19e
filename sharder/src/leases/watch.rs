//! The watch on shard Leases, in all namespaces.

use std::convert::Infallible;

use super::{Leases, merged::Merged};
use futures::{StreamExt as _, stream::select_all};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use ringside_runtime::explain::explain_watch;

/// Follows the Leases of all shards.
///
/// By list and watch, not by a streaming list: kube-rs begins that at resourceVersion 0, which a lagging API server
/// answers with the past (CONTROL-PLANE, 10), and a shard that is missing there would lose its objects without a drain.
///
/// After a restore of etcd the watch shows nothing until the API server's time has come to where it was, so it begins anew.
pub(crate) async fn follow(client: Client, leases: Leases) -> Result<(), Infallible> {
    let api: Api<Lease> = Api::all(client);
    let mut went_back = leases.went_back();
    loop {
        let watches = leases.kinds.iter().map(|kind| {
            let config = watcher::Config::default().labels(kind.names().lease_label);
            watcher(api.clone(), config).default_backoff().map(move |event| (*kind, event)).boxed()
        });
        let (mut events, mut merged) = (select_all(watches), Merged::new(leases.kinds));
        let observe = async {
            while let Some((kind, event)) = events.next().await {
                match event {
                    Ok(event) => merged.merge(kind, event).into_iter().for_each(|event| leases.observe(event)),
                    Err(error) => {
                        tracing::warn!(error = %explain_watch(&error), "can't watch the Leases of shards; trying again");
                    }
                }
            }
        };
        tokio::select! {
            () = observe => return Ok(()),
            never = leases.expire() => match never {},
            // The sender lives in `leases`, so this fails never.
            _ = went_back.changed() => {}
        }
    }
}
