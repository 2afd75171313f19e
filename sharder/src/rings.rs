//! The rings as users configured them: a watch on each kind.

use std::{convert::Infallible, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, future::join_all};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        reflector::{Store, store::Writer},
        watcher::{self, watcher},
    },
};
use ringside_ring::{Ring, RingKind};
use tokio::sync::watch;

use ringside_runtime::explain::{code, explain_watch};

/// The rings of all kinds that are served, as they were seen; clones share them.
#[derive(Clone)]
pub(crate) struct Rings(Vec<Store<Ring>>);

impl Rings {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Ring>> {
        self.0.iter().flat_map(Store::state).collect()
    }

    /// Waits until all rings have been seen. It never ends once the watch is gone: the process ends then.
    pub(crate) async fn seen(&self) {
        for of_kind in &self.0 {
            if of_kind.wait_until_ready().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Follows the rings of these kinds; the receiver tells when they change.
pub(crate) fn follow(
    client: &Client,
    kinds: &[RingKind],
) -> (Rings, watch::Receiver<()>, impl Future<Output = Result<(), Infallible>> + Send + use<>) {
    let (changed, changes) = watch::channel(());
    let (stores, tasks): (Vec<_>, Vec<_>) = kinds
        .iter()
        .map(|kind| {
            let writer = Writer::new(*kind);
            (writer.as_reader(), follow_kind(client.clone(), *kind, writer, changed.clone()))
        })
        .unzip();
    (Rings(stores), changes, join_all(tasks).map(|_| Ok(())))
}

/// By list and watch, so that a ring's spec never goes back in time: see `leases::follow`.
async fn follow_kind(client: Client, kind: RingKind, mut writer: Writer<Ring>, changed: watch::Sender<()>) {
    let api: Api<Ring> = Api::all_with(client, &kind);
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut is_seen = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                is_seen |= matches!(event, watcher::Event::InitDone);
                let complete = !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                writer.apply_watcher_event(&event);
                if complete {
                    changed.send_replace(());
                }
            }
            Err(error) => {
                tracing::warn!(%kind, error = explain(kind, &error), "can't watch rings; trying again");
                // ClusterRings do not wait for the definition of others.
                if kind == RingKind::ControllerRing && is_undefined(&error) && !std::mem::replace(&mut is_seen, true) {
                    writer.apply_watcher_event(&watcher::Event::Init);
                    writer.apply_watcher_event(&watcher::Event::InitDone);
                    changed.send_replace(());
                }
            }
        }
    }
}

/// What helps where the API server has no such resource: it belongs to the install, and a sharder must not replace a newer one.
fn explain(kind: RingKind, error: &watcher::Error) -> String {
    let from = match kind {
        RingKind::ClusterRing => "-k deploy/kustomize/base/crd",
        RingKind::ControllerRing => "-f deploy/kustomize/components/controller-rings/controllerring.yaml",
    };
    if is_undefined(error) {
        return format!("there is no {kind} resource; install it: kubectl apply --server-side {from}");
    }
    explain_watch(error)
}

fn is_undefined(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => code(error) == Some(404),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    use http::StatusCode;
    use kube::core::Status;
    use serde_json::json;
    use tokio::time::timeout;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::fixtures::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_is_not_asked_for() {
        for (kinds, names) in
            [(&RingKind::ALL[..1], &["example"][..]), (&RingKind::ALL, &["example", "controllerring/example"])]
        {
            let api = FakeApi::live();
            for kind in RingKind::ALL {
                let names = kind.names();
                let ring = json!({"kind": names.kind, "metadata": {"name": "example"}, "spec": {"resources": []}});
                api.put(&format!("/apis/sharding.timebertt.dev/v1alpha1/{}/example", names.plural), ring);
            }
            let (rings, _changes, task) = follow(&api.client(), kinds);
            let _task = AbortOnDropHandle::new(tokio::spawn(task));
            rings.seen().await;
            let seen: Vec<_> = rings.all().iter().map(|ring| ring.name().unwrap().to_string()).collect();
            assert_eq!(seen, names);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_rings_do_not_wait_for_the_definition_of_the_other_kind() {
        let (api, is_defined) = (FakeApi::live(), Arc::new(AtomicBool::new(false)));
        let of = |kind: RingKind| {
            let names = kind.names();
            let ring = json!({"kind": names.kind, "metadata": {"name": "example"}, "spec": {"resources": []}});
            api.put(&format!("/apis/sharding.timebertt.dev/v1alpha1/{}/example", names.plural), ring);
        };
        of(RingKind::ClusterRing);
        let defined = Arc::clone(&is_defined);
        api.intercept(move |asked, _| {
            let is_asked = asked.path.ends_with("/controllerrings") && !defined.load(Ordering::Relaxed);
            is_asked.then_some(StatusCode::NOT_FOUND)
        });
        let (rings, mut changes, task) = follow(&api.client(), &RingKind::ALL);
        let _task = AbortOnDropHandle::new(tokio::spawn(task));
        timeout(Duration::from_secs(600), rings.seen()).await.expect("the one kind waits for the other");
        assert_eq!(rings.all().len(), 1);
        is_defined.store(true, Ordering::Relaxed);
        of(RingKind::ControllerRing);
        while rings.all().len() < 2 {
            changes.changed().await.unwrap();
        }
    }

    #[test]
    fn missing_definition_is_named_with_its_command() {
        let status =
            |code| Status::failure("the server could not find the requested resource", "").with_code(code).boxed();
        let said =
            |code| explain(RingKind::ClusterRing, &watcher::Error::InitialListFailed(kube::Error::Api(status(code))));
        assert!(said(404).ends_with("kubectl apply --server-side -k deploy/kustomize/base/crd"), "{}", said(404));
        assert!(said(403).starts_with("missing permission"), "{}", said(403));
    }
}
