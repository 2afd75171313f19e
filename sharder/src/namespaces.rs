//! The labels of namespaces, for the namespace selectors of rings.

pub(crate) mod selector;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

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

use ringside_runtime::explain::explain_watch;

type Labels = BTreeMap<String, String>;
type Metadata = PartialObjectMeta<Namespace>;

/// The namespaces and their labels.
#[derive(Clone)]
pub(crate) struct Namespaces {
    store: Store<Metadata>,
    changed: watch::Sender<()>,
}

impl Namespaces {
    /// The namespaces, and the task that follows them.
    pub(crate) fn follow(client: Client) -> (Self, impl Future<Output = Result<(), Infallible>> + Send) {
        let writer = Writer::default();
        let namespaces = Self::of(&writer);
        let task = follow(client, writer, namespaces.clone());
        (namespaces, task)
    }

    fn of(writer: &Writer<Metadata>) -> Self {
        Self { store: writer.as_reader(), changed: watch::Sender::new(()) }
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

    /// The names of those that are selected at this moment.
    pub(crate) fn selected(&self, selector: &Selector) -> BTreeSet<String> {
        let selected = self
            .store
            .state()
            .into_iter()
            .filter(|namespace| selector.matches(namespace.metadata.labels.as_ref().unwrap_or(&Labels::new())));
        selected.filter_map(|namespace| namespace.metadata.name.clone()).collect()
    }

    /// Whether objects in `namespace` are selected, as far as that is known.
    pub(crate) fn is_selected(&self, selector: &Selector, namespace: &str) -> Option<bool> {
        let known = self.store.get(&ObjectRef::new(namespace))?;
        Some(selector.matches(known.metadata.labels.as_ref().unwrap_or(&Labels::new())))
    }

    /// What an annotation of a namespace says, as far as is known here.
    pub(crate) fn annotation(&self, namespace: &str, key: &str) -> Option<String> {
        self.store.get(&ObjectRef::new(namespace))?.metadata.annotations.as_ref()?.get(key).cloned()
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

/// A list is in the store only once it has ended, so receivers are told then.
fn take_in(event: Event<Metadata>, writer: &mut Writer<Metadata>, namespaces: &Namespaces) {
    let event = event.modify(|namespace| namespace.metadata.managed_fields = None);
    writer.apply_watcher_event(&event);
    if matches!(event, Event::Apply(_) | Event::InitDone) {
        namespaces.changed.send_replace(());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn namespace(name: &str, role: &str) -> Metadata {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"role": role}}})).unwrap()
    }

    /// These namespaces and no others, each with its role.
    pub(crate) fn known(namespaces: &[(&str, &str)]) -> (Namespaces, Roles) {
        let writer = Writer::default();
        let known = Namespaces::of(&writer);
        let mut roles = Roles { writer, namespaces: known.clone() };
        namespaces.iter().for_each(|(name, role)| roles.set(name, role));
        (known, roles)
    }

    /// What the watch on namespaces shows.
    pub(crate) struct Roles {
        writer: Writer<Metadata>,
        namespaces: Namespaces,
    }

    impl Roles {
        pub(crate) fn set(&mut self, name: &str, role: &str) {
            take_in(Event::Apply(namespace(name, role)), &mut self.writer, &self.namespaces);
        }
    }

    /// One namespace, with this annotation.
    pub(crate) fn annotated(name: &str, key: &str, value: &str) -> Namespaces {
        with(name, json!({"annotations": {key: value}}))
    }

    /// One namespace, with this metadata.
    pub(crate) fn with(name: &str, mut metadata: serde_json::Value) -> Namespaces {
        let mut writer = Writer::default();
        let known = Namespaces::of(&writer);
        metadata["name"] = name.into();
        let namespace: Metadata = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        for event in [Event::Init, Event::InitApply(namespace), Event::InitDone] {
            take_in(event, &mut writer, &known);
        }
        known
    }
}
