//! Who wrote what, as the API server noted it: no object is worked on by two replicas.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use ringside_e2e::{
    audit,
    checker::{Verdict, Writes},
    eventually::eventually,
    node::Node,
    website::Website,
};
use ringside_ring::RingLabels;
use serde_json::json;

/// Pods start and end, Leases are taken and objects move.
const DEADLINE: Duration = Duration::from_secs(180);

/// The account of the replicas.
const ACCOUNT: &str = "system:serviceaccount:default:website-controller";

/// What the replicas wrote from a moment on, judged.
pub(crate) fn verdict(node: &Node, labels: &RingLabels, since: Timestamp) -> Verdict {
    let mut writes = Writes::new();
    audit::read(&node.control_plane().audit_log(), labels, ACCOUNT, |write| {
        if write.received >= since {
            writes.record(write);
        }
    })
    .unwrap();
    writes.verdict()
}

/// Changes all Websites, and waits until each was worked on since; returns how many each replica did.
pub(crate) async fn all_are_worked_on(client: &Client, content: &str) -> BTreeMap<String, usize> {
    let websites: Api<Website> = Api::namespaced(client.clone(), "default");
    let change = kube::api::Patch::Merge(json!({"spec": {"content": content}}));
    for website in &websites.list(&ListParams::default()).await.unwrap() {
        websites.patch(&website.name_any(), &Default::default(), &change).await.unwrap();
    }
    eventually("every Website is worked on", DEADLINE, || async {
        let mut by = BTreeMap::<_, usize>::new();
        for website in websites.list(&ListParams::default()).await.map_err(|error| error.to_string())? {
            let status = website.status.clone().unwrap_or_default();
            if Some(status.observed_generation) != website.metadata.generation {
                return Err(format!("{} waits, last done by {}", website.name_any(), status.reconciled_by));
            }
            *by.entry(status.reconciled_by).or_default() += 1;
        }
        Ok(by)
    })
    .await
    .unwrap()
}
