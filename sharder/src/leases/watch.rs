//! The watch on shard Leases, in all namespaces.

use std::{convert::Infallible, pin::pin};

use super::Leases;
use futures::{Stream, StreamExt as _, future::join_all};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use ringside_ring::RingKind;
use ringside_runtime::explain::explain_watch;

/// Follows the Leases of all shards.
///
/// By list and watch, not by a streaming list: kube-rs begins that at resourceVersion 0, which a lagging API server
/// answers with the past (CONTROL-PLANE, 10), and a shard that is missing there would lose its objects without a drain.
///
/// After a restore of etcd the API server's time has gone back. The watch shows nothing until that time has caught up,
/// so it begins again.
pub(crate) async fn follow(client: Client, leases: Leases) -> Result<(), Infallible> {
    let api: Api<Lease> = Api::all(client);
    let mut went_back = leases.went_back();
    loop {
        let watches = leases.kinds.iter().map(|kind| {
            let config = watcher::Config::default().labels(kind.names().lease_label);
            observe(&leases, *kind, watcher(api.clone(), config).default_backoff())
        });
        tokio::select! {
            _ = join_all(watches) => return Ok(()),
            never = leases.expire() => match never {},
            // The sender lives in `leases`, so this fails never.
            _ = went_back.changed() => {}
        }
    }
}

/// Takes in what the watch on the Leases of a kind of ring shows.
async fn observe(leases: &Leases, kind: RingKind, events: impl Stream<Item = watcher::Result<Event<Lease>>>) {
    let (mut events, mut list) = (pin!(events), Vec::new());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => list.clear(),
            Ok(Event::InitApply(lease)) => list.push(lease),
            Ok(Event::InitDone) => leases.listed(kind, std::mem::take(&mut list)),
            Ok(Event::Apply(lease)) => leases.see(lease),
            Ok(Event::Delete(lease)) => leases.gone(kind, &lease),
            Err(error) => {
                tracing::warn!(error = %explain_watch(&error), "can't watch the Leases of shards; trying again");
            }
        }
    }
}
