//! Which service accounts the shards of a ring use.
//!
//! The API server's fence must tell the pods of shards from all others, which write objects of a ring as well, and may. A
//! shard is known by its Lease, that names a Pod in its namespace, and a Pod says whose token it has.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

use crate::leases::Place;

/// Reads at once: many shards are unknown together only when the sharder starts.
const PARALLEL_READS: usize = 8;
/// The account of Pods that name none.
const DEFAULT: &str = "default";

/// The accounts of one ring's shards.
#[derive(Default)]
pub(super) struct Accounts {
    /// By the place of the Lease. Those that are there no longer are not kept: a Pod that comes back under its name may have
    /// another account.
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

    /// Reads the Pods of the shards that were not known yet; returns what is known of each.
    pub(super) async fn learn(
        &mut self,
        client: &Client,
        shards: &[Place],
    ) -> Result<BTreeMap<String, Result<String, String>>, kube::Error> {
        self.of.retain(|place, account| account.is_some() && shards.contains(place));
        let unknown: Vec<_> = shards.iter().filter(|place| !self.of.contains_key(*place)).cloned().collect();
        let mut read = stream::iter(unknown)
            .map(|place| async move { account(client, &place).await.map(|account| (place, account)) })
            .buffer_unordered(PARALLEL_READS);
        while let Some((place, account)) = read.try_next().await? {
            self.ever.extend(account.clone());
            self.of.insert(place, account);
        }
        drop(read);
        Ok(self.of.iter().map(|(place, account)| (place.shard.clone(), told(place, account.as_deref()))).collect())
    }
}

/// The account of a shard, or why the fence does not hold it.
fn told(place: &Place, account: Option<&str>) -> Result<String, String> {
    let Place { namespace, shard, token_pod } = place;
    match (account, token_pod.as_deref()) {
        (None, _) => Err(format!(
            "there is no Pod '{namespace}/{shard}', so nobody can tell which writes are its own; run the shard in a pod of its name"
        )),
        (Some(account), Some("")) => Err(format!(
            "its token of '{account}' names no pod, so the API server refuses what it writes to objects with an owner; give it the token that the kubelet mounts, which is bound to its pod"
        )),
        (Some(account), _) => Ok(account.to_owned()),
    }
}

async fn account(client: &Client, place: &Place) -> Result<Option<String>, kube::Error> {
    let pod = Api::<Pod>::namespaced(client.clone(), &place.namespace).get_opt(&place.shard).await?;
    let name = pod.map(|pod| pod.spec.and_then(|spec| spec.service_account_name).unwrap_or_else(|| DEFAULT.to_owned()));
    Ok(name.map(|name| format!("system:serviceaccount:{}:{name}", place.namespace)))
}
