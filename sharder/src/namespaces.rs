//! The labels of namespaces, for the namespace selectors of rings.

use std::{collections::BTreeMap, convert::Infallible};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    core::{PartialObjectMeta, Selector, SelectorExt},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::watch;

use ringside_runtime::explain::{code, explain_watch};

type Labels = BTreeMap<String, String>;
type Metadata = PartialObjectMeta<Namespace>;

/// The namespaces and their labels.
#[derive(Clone)]
pub(crate) struct Namespaces {
    store: Store<Metadata>,
    client: Client,
    relabelled: watch::Sender<()>,
}

impl Namespaces {
    /// The namespaces, and the task that follows them.
    pub(crate) fn follow(client: Client) -> (Self, impl Future<Output = Result<(), Infallible>> + Send) {
        let writer = Writer::default();
        let namespaces = Self { store: writer.as_reader(), client: client.clone(), relabelled: watch::Sender::new(()) };
        let task = follow(client, writer, namespaces.clone());
        (namespaces, task)
    }

    /// Returns once all namespaces have been seen.
    pub(crate) async fn synced(&self) {
        // Fails only when the follower is gone, and then the process ends.
        if self.store.wait_until_ready().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Tells of namespaces whose labels change, whose objects may now belong to a ring: new ones don't count.
    pub(crate) fn relabelled(&self) -> watch::Receiver<()> {
        self.relabelled.subscribe()
    }

    /// Whether objects in `namespace` are selected; those without a namespace are.
    ///
    /// An object may be seen before its new namespace is, so an unknown namespace is asked for.
    pub(crate) async fn selects(&self, selector: &Selector, namespace: Option<&str>) -> Result<bool, kube::Error> {
        let Some(namespace) = namespace else { return Ok(true) };
        if let Some(known) = self.labels(namespace) {
            return Ok(selector.matches(&known));
        }
        let api: Api<Metadata> = Api::all(self.client.clone());
        match api.get(namespace).await {
            Ok(found) => Ok(selector.matches(&found.metadata.labels.unwrap_or_default())),
            Err(error) if code(&error) == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn labels(&self, namespace: &str) -> Option<Labels> {
        let known = self.store.get(&ObjectRef::new(namespace))?;
        Some(known.metadata.labels.clone().unwrap_or_default())
    }
}

async fn follow(client: Client, mut writer: Writer<Metadata>, namespaces: Namespaces) -> Result<(), Infallible> {
    let api: Api<Metadata> = Api::all(client);
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let event = event.modify(|namespace| namespace.metadata.managed_fields = None);
                let relabelled = changes_labels(&event, &namespaces);
                writer.apply_watcher_event(&event);
                if relabelled {
                    namespaces.relabelled.send_replace(());
                }
            }
            Err(error) => tracing::warn!(error = %explain_watch(&error), "can't watch namespaces; trying again"),
        }
    }
    Ok(())
}

fn changes_labels(event: &Event<Metadata>, known: &Namespaces) -> bool {
    let (Event::Apply(new) | Event::InitApply(new)) = event else { return false };
    let before = new.metadata.name.as_deref().and_then(|name| known.labels(name));
    before.is_some_and(|before| before != new.metadata.labels.clone().unwrap_or_default())
}
