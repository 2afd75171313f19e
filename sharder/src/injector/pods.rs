//! Pods that ask for the proxy of a ring and run without it, as those that came up while the API server did not reach the webhook.
//!
//! Nothing else tells of them: they have no Lease, and their controllers may work on all objects.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use futures::TryStreamExt as _;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::ListParams,
    core::{Expression, Selector},
    discovery::ApiResource,
};
use ringside_inject::INJECTED;
use ringside_ring::RingName;
use ringside_runtime::explain::explain;
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use super::{DISABLED, ENABLED, LABEL};
use crate::{
    injector::ring::{RINGS, accounts_of, ring_of},
    leases::Leases,
    namespaces::Namespaces,
    news::tell,
    pages::pages_with,
    resources::Object,
    snapshot::Snapshot,
};

/// How often they are looked for.
const LOOK: Duration = Duration::from_secs(60);
/// A Pod that has ended works on nothing.
const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uninjected {
    /// The Pods, as `NAMESPACE/NAME`.
    pub(crate) pods: BTreeSet<String>,
    /// The namespaces that can't be looked at, with the reason.
    pub(crate) unread: BTreeSet<String>,
}

/// Looks for them again and again, for as long as this replica leads.
pub(crate) async fn look(
    client: &Client,
    (leases, namespaces): (&Leases, &Namespaces),
    snapshots: &watch::Receiver<Arc<Snapshot>>,
    found: &watch::Sender<Option<Uninjected>>,
) -> Infallible {
    namespaces.synced().await;
    loop {
        let snapshot = snapshots.borrow().clone();
        let mut now = Uninjected::default();
        for (namespace, of_namespace) in places(&snapshot, leases, namespaces) {
            match in_namespace(client, &snapshot, &namespace, &of_namespace).await {
                Ok(pods) => now.pods.extend(pods),
                Err(error) => drop(now.unread.insert(format!("{namespace}: {}", explain(&error)))),
            }
        }
        tell(found, Some(now));
        sleep(LOOK).await;
    }
}

/// The namespaces where the ring has or may have shards, each with the accounts whose Pods get the proxy without asking.
fn places(snapshot: &Snapshot, leases: &Leases, namespaces: &Namespaces) -> Vec<(String, String)> {
    let asking: Selector = [Expression::Equal(LABEL.to_owned(), ENABLED.to_owned())].into_iter().collect();
    let asking = namespaces.selected(&asking);
    let accounts = |namespace: &String| match asking.contains(namespace) {
        true => namespaces.annotation(namespace, RINGS).unwrap_or_default(),
        false => String::new(),
    };
    let names_ring = |of_namespace: &str| accounts_of(of_namespace).any(|(_, ring)| ring == snapshot.ring.to_string());
    let of_ring = asking.iter().filter(|namespace| names_ring(&accounts(namespace))).cloned();
    let of_shards = leases.places(&snapshot.ring).into_iter().map(|place| place.namespace);
    let all: BTreeSet<String> =
        of_ring.chain(of_shards).chain(snapshot.spec.shard_namespaces.iter().cloned()).collect();
    all.into_iter().map(|namespace| (namespace.clone(), accounts(&namespace))).collect()
}

/// The Pods of a namespace that lack it. Each way to ask for it is a list of its own, which shows only Pods that do.
async fn in_namespace(
    client: &Client,
    snapshot: &Snapshot,
    namespace: &str,
    of_namespace: &str,
) -> Result<Vec<String>, kube::Error> {
    let pods: Api<Object> = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
    let by_label = ListParams::default().labels(&format!("{LABEL},{LABEL}!={DISABLED}")).fields(RUNNING);
    let by_account = accounts_of(of_namespace).map(|(account, _)| {
        let fields = format!("{RUNNING},spec.serviceAccountName={account}");
        (ListParams::default().labels(&format!("!{LABEL}")).fields(&fields), account.to_owned())
    });
    let mut without = Vec::new();
    for (asked, account) in std::iter::once((by_label, String::new())).chain(by_account) {
        let name = |pod: &ObjectMeta| {
            let lacks = lacks_proxy(pod, &account, of_namespace, snapshot);
            pod.name.as_deref().filter(|_| lacks).map(|name| format!("{namespace}/{name}"))
        };
        let mut pages = std::pin::pin!(pages_with(pods.clone(), asked, name));
        while let Some(page) = pages.try_next().await? {
            without.extend(page.into_iter().flatten());
        }
    }
    Ok(without)
}

/// Whether a Pod of this account asks for the ring's proxy and has none.
fn lacks_proxy(pod: &ObjectMeta, account: &str, of_namespace: &str, snapshot: &Snapshot) -> bool {
    let is_injected = pod.annotations.as_ref().is_some_and(|all| all.contains_key(INJECTED));
    let asks = ring_of(&json!({"metadata": pod, "spec": {"serviceAccountName": account}}), of_namespace);
    !is_injected && asks.and_then(|ring| ring.parse::<RingName>().ok()).is_some_and(|ring| ring == snapshot.ring)
}

#[cfg(test)]
mod tests;
