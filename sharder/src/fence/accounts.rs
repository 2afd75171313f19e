//! Which service accounts the shards of a ring use.
//!
//! The API server's fence must tell the pods of shards from all others, which write objects of a ring as well, and may.
//! A shard is known by its Lease, that names a Pod in its namespace, and a Pod says whose token it has. Whether the
//! shard uses that token only itself can know, so it has to say it (`ringside.dev/token-pod`). A shard that writes with
//! another account would go on after its objects were taken.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use ringside_ring::labels::LEASE_TOKEN_POD;
use ringside_runtime::explain::explain;

use crate::leases::Place;

/// Reads at once: many shards are unknown together only when the sharder starts.
const PARALLEL_READS: usize = 8;
/// The account of Pods that name none.
const DEFAULT: &str = "default";

/// The account of each shard, or why the fence does not hold it.
pub(super) type Told = BTreeMap<String, Result<String, String>>;

/// The accounts of one ring's shards.
#[derive(Default)]
pub(super) struct Accounts {
    /// By the place of the Lease and who holds it. Those that are there no longer are not kept: a Pod that comes back under
    /// its name may have another account.
    of: BTreeMap<Place, Option<String>>,
    /// All that were ever known: a shard that is gone may still have a write on its way.
    ever: BTreeSet<String>,
}

impl Accounts {
    /// All that this ring's shards have or had.
    pub(super) fn all(&self) -> &BTreeSet<String> {
        &self.ever
    }

    /// These were known to others.
    pub(super) fn add(&mut self, accounts: BTreeSet<String>) {
        self.ever.extend(accounts);
    }

    /// Reads the Pods of the shards that were not known yet; returns what is known of each, and whether each Pod could be read.
    /// One that can't be read concerns its shard alone.
    pub(super) async fn learn(&mut self, client: &Client, shards: &[Place]) -> (Told, bool) {
        self.of.retain(|place, account| account.is_some() && shards.contains(place));
        let unknown: Vec<_> = shards.iter().filter(|place| !self.of.contains_key(*place)).cloned().collect();
        let mut read = stream::iter(unknown)
            .map(|place| async move { (account(client, &place).await, place) })
            .buffer_unordered(PARALLEL_READS);
        let mut unread = Vec::new();
        while let Some((account, place)) = read.next().await {
            match account {
                Ok(account) => {
                    self.ever.extend(account.clone());
                    self.of.insert(place, account);
                }
                Err(error) => {
                    let Place { namespace, shard, .. } = place;
                    let fault = format!(
                        "its Pod '{namespace}/{shard}' can't be read, so its writes can't be told from those of others: {}",
                        explain(&error)
                    );
                    unread.push((shard, Err(fault)));
                }
            }
        }
        drop(read);
        let all_read = unread.is_empty();
        // Of several Pods of one name the fence has to hold each: one that it does not hold is told last.
        let known = self.of.iter().map(|(place, account)| (place.shard.clone(), told(place, account.as_deref())));
        let mut all: Vec<_> = known.chain(unread).collect();
        all.sort_by_key(|(_, told)| told.is_err());
        (all.into_iter().collect(), all_read)
    }
}

/// The account of a shard, or why the fence does not hold it.
fn told(place: &Place, account: Option<&str>) -> Result<String, String> {
    let Place { namespace, shard, token_pod, .. } = place;
    match (account, token_pod.as_deref()) {
        (None, _) => Err(format!(
            "there is no Pod '{namespace}/{shard}', so its writes can't be told from those of others; run the shard in a pod of its name"
        )),
        (Some(account), Some("")) => Err(format!(
            "its token of '{account}' names no pod, so the API server refuses what it writes to objects with an owner; give it the token that the kubelet mounts, which is bound to its pod"
        )),
        (Some(account), Some(pod)) if pod == shard => Ok(account.to_owned()),
        (Some(account), Some(pod)) => Err(format!(
            "its token of '{account}' is that of the pod '{pod}', so the API server refuses what it writes to objects with an owner; give it the token that the kubelet mounts in its own pod"
        )),
        (Some(_), None) => Err(format!(
            "it does not say which pod its token is bound to, so its writes can't be told from those of others; have it set the label {LEASE_TOKEN_POD} on its Lease"
        )),
    }
}

async fn account(client: &Client, place: &Place) -> Result<Option<String>, kube::Error> {
    let pod = Api::<Pod>::namespaced(client.clone(), &place.namespace).get_opt(&place.shard).await?;
    let name = pod.map(|pod| pod.spec.and_then(|spec| spec.service_account_name).unwrap_or_else(|| DEFAULT.to_owned()));
    Ok(name.map(|name| format!("system:serviceaccount:{}:{name}", place.namespace)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::fixtures::FakeApi;

    const POD: &str = "/api/v1/namespaces/default/pods/a";

    fn place(token_pod: Option<&str>, instance: &str) -> Place {
        let (namespace, shard) = ("default".to_owned(), "a".to_owned());
        Place { namespace, shard, token_pod: token_pod.map(str::to_owned), instance: Some(instance.to_owned()) }
    }

    fn pod(account: &str) -> serde_json::Value {
        json!({"metadata": {"name": "a"}, "spec": {"serviceAccountName": account, "containers": []}})
    }

    #[tokio::test]
    async fn only_who_says_that_its_token_is_its_pods_is_held() {
        let api = FakeApi::default();
        api.put(POD, pod("x"));
        for (token_pod, held, words) in [
            (Some("a"), true, "system:serviceaccount:default:x"),
            (Some("b"), false, "that of the pod 'b'"),
            (Some(""), false, "names no pod"),
            (None, false, "ringside.dev/token-pod"),
        ] {
            let told = Accounts::default().learn(&api.client(), &[place(token_pod, "1")]).await.0;
            let (Ok(said) | Err(said)) = &told["a"];
            assert!(told["a"].is_ok() == held && said.contains(words), "{token_pod:?}: {said}");
        }
    }

    #[tokio::test]
    async fn shared_name_is_held_only_where_each_of_its_pods_is() {
        // By their order as well: those that come first and last are the ones without Pod.
        for elsewhere in ["a-first", "other"] {
            let api = FakeApi::default();
            api.put(POD, pod("x"));
            let place = place(Some("a"), "1");
            let places = [Place { namespace: elsewhere.to_owned(), ..place.clone() }, place];
            let told = Accounts::default().learn(&api.client(), &places).await.0;
            assert!(told["a"].as_ref().unwrap_err().contains("there is no Pod"), "{elsewhere}");
            api.put(&format!("/api/v1/namespaces/{elsewhere}/pods/a"), pod("y"));
            assert!(Accounts::default().learn(&api.client(), &places).await.0["a"].is_ok(), "{elsewhere}");
        }
    }

    #[tokio::test]
    async fn a_pod_that_comes_back_under_its_name_is_read_anew() {
        let (api, mut accounts) = (FakeApi::default(), Accounts::default());
        for (instance, account) in [("1", "x"), ("2", "y")] {
            api.put(POD, pod(account));
            let (told, _) = accounts.learn(&api.client(), &[place(Some("a"), instance)]).await;
            assert_eq!(told["a"].as_deref(), Ok(format!("system:serviceaccount:default:{account}").as_str()));
        }
        assert_eq!(accounts.all().len(), 2, "the former one may have a write on its way");
    }

    #[tokio::test]
    async fn a_pod_that_cannot_be_read_concerns_its_shard_alone() {
        let (api, mut accounts) = (FakeApi::default(), Accounts::default());
        api.put(POD, pod("x"));
        api.intercept(|asked, _| asked.path.contains("/foreign/").then_some(http::StatusCode::FORBIDDEN));
        let foreign = Place { namespace: "foreign".to_owned(), shard: "b".to_owned(), ..place(Some("b"), "2") };
        let (told, all_read) = accounts.learn(&api.client(), &[foreign, place(Some("a"), "1")]).await;
        assert_eq!(told["a"].as_deref(), Ok("system:serviceaccount:default:x"));
        assert!(!all_read && told["b"].as_ref().unwrap_err().contains("'foreign/b' can't be read"), "{told:?}");
    }
}
