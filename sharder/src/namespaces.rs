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
    changed: watch::Sender<()>,
}

impl Namespaces {
    /// The namespaces, and the task that follows them.
    pub(crate) fn follow(client: Client) -> (Self, impl Future<Output = Result<(), Infallible>> + Send) {
        let writer = Writer::default();
        let namespaces = Self { store: writer.as_reader(), client: client.clone(), changed: watch::Sender::new(()) };
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

    /// Tells when namespaces changed, be it their labels or anything else.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Which namespaces are selected at this moment, and which are not.
    pub(crate) fn selection(&self, selector: &Selector) -> Selection {
        let namespaces = self.store.state();
        let selected = namespaces.iter().filter_map(|namespace| {
            let labels = namespace.metadata.labels.clone().unwrap_or_default();
            Some((namespace.metadata.name.clone()?, selector.matches(&labels)))
        });
        Selection(selected.collect())
    }

    /// Whether it is known that objects in `namespace` are not selected.
    pub(crate) fn excludes(&self, selector: &Selector, namespace: Option<&str>) -> bool {
        namespace.and_then(|namespace| self.labels(namespace)).is_some_and(|known| !selector.matches(&known))
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
            Ok(event) => take_in(event, &mut writer, &namespaces),
            Err(error) => tracing::warn!(error = %explain_watch(&error), "can't watch namespaces; trying again"),
        }
    }
    Ok(())
}

/// What a list says is in the store only once it has ended, so nobody is told before.
fn take_in(event: Event<Metadata>, writer: &mut Writer<Metadata>, namespaces: &Namespaces) {
    let event = event.modify(|namespace| namespace.metadata.managed_fields = None);
    writer.apply_watcher_event(&event);
    if matches!(event, Event::Apply(_) | Event::InitDone) {
        namespaces.changed.send_replace(());
    }
}

/// The namespaces that were known at some moment, and whether a ring's selector matched each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection(BTreeMap<String, bool>);

impl Selection {
    /// Whether a namespace is selected here that was there before and was not: its objects now belong to the ring.
    /// One that is new has none that the watch does not show.
    pub(crate) fn gains_over(&self, before: &Self) -> bool {
        self.0.iter().any(|(namespace, selected)| *selected && before.0.get(namespace) == Some(&false))
    }

    /// Whether a namespace is not selected here that was before: its objects no longer belong to the ring. With one that is
    /// gone its objects are.
    pub(crate) fn loses_from(&self, before: &Self) -> bool {
        before.0.iter().any(|(namespace, selected)| *selected && self.0.get(namespace) == Some(&false))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::{fixtures::FakeApi, snapshot::tests::snapshot};

    fn namespace(name: &str, role: &str) -> Metadata {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"role": role}}})).unwrap()
    }

    /// These namespaces and no others, each with its role.
    pub(crate) fn known(api: &FakeApi, namespaces: &[(&str, &str)]) -> Namespaces {
        let mut writer = Writer::default();
        let known = Namespaces { store: writer.as_reader(), client: api.client(), changed: watch::Sender::new(()) };
        for (name, role) in namespaces {
            take_in(Event::Apply(namespace(name, role)), &mut writer, &known);
        }
        known
    }

    #[tokio::test]
    async fn only_a_known_namespace_brings_objects_to_a_ring_or_takes_them_away() {
        let mut writer = Writer::default();
        let namespaces = Namespaces {
            store: writer.as_reader(),
            client: FakeApi::default().client(),
            changed: watch::Sender::new(()),
        };
        let selector = snapshot().namespaces;
        let mut changes = namespaces.changes();
        let mut before = Selection::default();
        let mut change = |event: Event<Metadata>| {
            take_in(event, &mut writer, &namespaces);
            let now = namespaces.selection(&selector);
            let gains = now.gains_over(&before);
            let loses = now.loses_from(&before);
            before = now;
            let told = changes.has_changed().unwrap();
            changes.borrow_and_update();
            assert!(told || !(gains || loses), "it is told when it can be seen");
            (gains, loses)
        };
        let (neither, gained, lost) = ((false, false), (true, false), (false, true));
        assert_eq!(change(Event::Apply(namespace("n", "other"))), neither);
        assert_eq!(change(Event::Apply(namespace("new", "project"))), neither, "it is new");
        assert_eq!(change(Event::Apply(namespace("n", "another"))), neither, "it is still not the ring's");
        assert_eq!(change(Event::Apply(namespace("n", "project"))), gained);
        assert_eq!(change(Event::Apply(namespace("n", "project"))), neither);
        assert_eq!(change(Event::Apply(namespace("n", "other"))), lost);
        assert_eq!(change(Event::Init), neither);
        assert_eq!(change(Event::InitApply(namespace("n", "project"))), neither);
        assert_eq!(change(Event::InitDone), gained, "what a list brought; what it did not bring has no objects");
    }
}
