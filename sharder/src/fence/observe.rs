//! Watches the policies of all rings, and their bindings. Every replica does: the webhook relies on them too.

use std::{convert::Infallible, fmt::Debug, hash::Hash};

use futures::StreamExt;
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};
use ringside_runtime::explain::{code, explain_watch};
use serde::de::DeserializeOwned;

use super::{Fences, keep::impossible};
use crate::belonging::MANAGED;

/// Follows what is stored of all fences.
pub(crate) fn follow(client: Client) -> (Fences, impl Future<Output = Result<(), Infallible>> + Send) {
    let (fences, policies, bindings) = Fences::new();
    let this = fences.clone();
    let task = async move {
        tokio::select! {
            never = each(&this, client.clone(), policies, "policies") => match never {},
            never = each(&this, client, bindings, "bindings") => match never {},
        }
    };
    (fences, task)
}

async fn each<K>(fences: &Fences, client: Client, mut writer: Writer<K>, what: &'static str) -> Infallible
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    let config = watcher::Config::default().labels(&format!("{}={}", MANAGED.0, MANAGED.1));
    // By list and watch, so that what is stored never goes back in time: see `leases::follow`.
    let mut events = std::pin::pin!(watcher(Api::<K>::all(client), config).default_backoff());
    loop {
        let Some(event) = events.next().await else { return std::future::pending().await };
        match event {
            Ok(event) => {
                let complete = !matches!(event, Event::Init | Event::InitApply(_));
                writer.apply_watcher_event(&event);
                if complete {
                    fences.seen(what);
                }
            }
            Err(error) => fences.unseen(what, &error),
        }
    }
}

impl Fences {
    fn seen(&self, what: &'static str) {
        self.known.lock().blind.remove(what);
        self.changed.send_replace(());
    }

    /// What has been seen stays valid while the API server is away; one that refuses has changed its mind.
    fn unseen(&self, what: &'static str, error: &watcher::Error) {
        let text = explain_watch(error);
        let refused = match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => code(error),
            _ => None,
        };
        let Some(fault) = refused.and_then(|code| impossible(code, &text)) else {
            return tracing::debug!(error = text, "can't watch ValidatingAdmissionPolicies; trying again");
        };
        if self.known.lock().blind.insert(what, fault.clone()).as_ref() != Some(&fault) {
            // Only rings that ask for the fence miss it, and their status says so.
            tracing::debug!(fault, "can't watch ValidatingAdmissionPolicies; trying again");
            self.changed.send_replace(());
        }
    }
}
