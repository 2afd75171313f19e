//! The labels of namespaces, for the namespace selectors of rings.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    core::{PartialObjectMeta, Selector, SelectorExt},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use parking_lot::Mutex;
use tokio::sync::watch;

use ringside_runtime::explain::{code, explain_watch};

type Labels = BTreeMap<String, String>;
type Metadata = PartialObjectMeta<Namespace>;

/// Which namespace that is: another one may come under the same name.
fn which(metadata: &ObjectMeta) -> String {
    metadata.uid.clone().or_else(|| metadata.name.clone()).unwrap_or_default()
}

/// The namespaces and their labels.
#[derive(Clone)]
pub(crate) struct Namespaces {
    store: Store<Metadata>,
    client: Client,
    changed: watch::Sender<()>,
    /// Those of whose objects one was passed over before the watch had shown them, when the API server was asked.
    passed_over: Arc<Mutex<BTreeSet<String>>>,
}

impl Namespaces {
    /// The namespaces, and the task that follows them.
    pub(crate) fn follow(client: Client) -> (Self, impl Future<Output = Result<(), Infallible>> + Send) {
        let writer = Writer::default();
        let namespaces = Self::of(&writer, client.clone());
        let task = follow(client, writer, namespaces.clone());
        (namespaces, task)
    }

    fn of(writer: &Writer<Metadata>, client: Client) -> Self {
        let (changed, passed_over) = (watch::Sender::new(()), Arc::default());
        Self { store: writer.as_reader(), client, changed, passed_over }
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
        let selected = namespaces.iter().map(|namespace| {
            let labels = namespace.metadata.labels.clone().unwrap_or_default();
            (which(&namespace.metadata), selector.matches(&labels))
        });
        Selection { selected: selected.collect(), passed_over: self.passed_over.lock().clone() }
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
            Ok(found) => {
                if selector.matches(found.metadata.labels.as_ref().unwrap_or(&Labels::new())) {
                    return Ok(true);
                }
                self.passed_over.lock().insert(which(&found.metadata));
                // Shown meanwhile, it may have been selected by then.
                Ok(self.labels(namespace).is_some_and(|known| selector.matches(&known)))
            }
            Err(error) if code(&error) == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What an annotation of a namespace says, as far as is known here.
    pub(crate) fn annotation(&self, namespace: &str, key: &str) -> Option<String> {
        self.store.get(&ObjectRef::new(namespace))?.metadata.annotations.as_ref()?.get(key).cloned()
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
    if let Event::Delete(gone) = &event {
        namespaces.passed_over.lock().remove(&which(&gone.metadata));
    }
    if matches!(event, Event::Apply(_) | Event::InitDone) {
        namespaces.changed.send_replace(());
    }
}

/// The namespaces that were known at some moment, and whether a ring's selector matched each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    selected: BTreeMap<String, bool>,
    /// Those of whose objects one may have been passed over before they were known.
    passed_over: BTreeSet<String>,
}

impl Selection {
    /// Whether a namespace is selected here that was there before and was not: its objects now belong to the ring.
    /// One that is new has none that the watch on objects does not show, but for those that were passed over.
    pub(crate) fn gains_over(&self, before: &Self) -> bool {
        let had_others = |namespace| match before.selected.get(namespace) {
            Some(selected) => !selected,
            None => self.passed_over.contains(namespace),
        };
        self.selected.iter().any(|(namespace, selected)| *selected && had_others(namespace))
    }

    /// Whether a namespace is not selected here that was before: its objects no longer belong to the ring. With one that is
    /// gone its objects are.
    pub(crate) fn loses_from(&self, before: &Self) -> bool {
        let is_lost = |namespace| self.selected.get(namespace) == Some(&false);
        before.selected.iter().any(|(namespace, selected)| *selected && is_lost(namespace))
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
        let known = Namespaces::of(&writer, api.client());
        for (name, role) in namespaces {
            take_in(Event::Apply(namespace(name, role)), &mut writer, &known);
        }
        known
    }

    /// One namespace, with this annotation.
    pub(crate) fn annotated(api: &FakeApi, name: &str, key: &str, value: &str) -> Namespaces {
        let mut writer = Writer::default();
        let known = Namespaces::of(&writer, api.client());
        let metadata = json!({"name": name, "annotations": {key: value}});
        take_in(Event::Apply(serde_json::from_value(json!({"metadata": metadata})).unwrap()), &mut writer, &known);
        known
    }

    #[tokio::test]
    async fn only_a_known_namespace_brings_objects_to_a_ring_or_takes_them_away() {
        let mut writer = Writer::default();
        let namespaces = Namespaces::of(&writer, FakeApi::default().client());
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

    #[tokio::test]
    async fn a_namespace_that_was_asked_for_before_it_was_selected_brings_the_object_that_was_passed_over() {
        let (api, mut writer, selector) = (FakeApi::default(), Writer::default(), snapshot().namespaces);
        let namespaces = Namespaces::of(&writer, api.client());
        api.put("/api/v1/namespaces/n", json!({"metadata": {"name": "n", "labels": {"role": "other"}}}));
        let before = namespaces.selection(&selector);
        assert!(!namespaces.selects(&selector, Some("n")).await.unwrap());
        take_in(Event::Apply(namespace("n", "project")), &mut writer, &namespaces);
        assert!(namespaces.selection(&selector).gains_over(&before));
        let mut another = namespace("n", "project");
        another.metadata.uid = Some("another".to_owned());
        take_in(Event::Apply(another), &mut writer, &namespaces);
        assert!(
            !namespaces.selection(&selector).gains_over(&before),
            "another one of this name, whose objects are shown"
        );
    }
}
