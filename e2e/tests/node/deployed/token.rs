//! The kubelet renews a pod's token; the proxy goes on with the new one.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::Arc};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::ResourceExt as _;
use ringside_e2e::{eventually::eventually, node::Node};

use super::{DEADLINE, IN_CLUSTER};
use crate::{Fixture, audit};

/// Renewals of the Lease, one every few seconds, that show that the old token is not used any more.
const RENEWALS: usize = 3;

pub(crate) async fn a_rotated_token_is_used_and_the_lease_kept(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    let pod = deployed.pods(IN_CLUSTER).await.remove(0);
    let name = pod.name_any();
    let lease = deployed.api::<Lease>().get(&name).await.unwrap().spec.unwrap();
    let before = audit::credentials_of(&fixture.node, &name);
    assert_eq!(before.len(), 1, "{before:?}");
    let token = token_file(&fixture.node, &pod);
    let first = fs::read(&token).unwrap();
    {
        // A token lives for 10 minutes at least. A kubelet that starts anew knows of none, and fetches one.
        let _alone = fixture.kubelet.write().await;
        fixture.node.restart_kubelet().await.unwrap();
        eventually("another token", DEADLINE, || async {
            let now = fs::read(&token).map_err(|error| error.to_string())?;
            if now == first { Err("it is the first one".to_owned()) } else { Ok(()) }
        })
        .await
        .unwrap();
    }
    eventually("the new token, and only it", DEADLINE, || async {
        let renewals: Vec<_> = audit::requests_of(&fixture.node, &name)
            .into_iter()
            .filter(|request| request.verb == "update" && request.resource == "leases")
            .collect();
        let last: BTreeSet<_> =
            renewals.iter().rev().take(RENEWALS).map(|renewal| renewal.credential.clone()).collect();
        if last.is_disjoint(&before) { Ok(()) } else { Err(format!("{last:?} of {before:?}")) }
    })
    .await
    .unwrap();
    // Neither was it lost meanwhile, nor did a container start anew.
    let now = deployed.api::<Lease>().get(&name).await.unwrap().spec.unwrap();
    assert_eq!((&now.holder_identity, &now.acquire_time), (&lease.holder_identity, &lease.acquire_time));
    let status = deployed.api::<Pod>().get(&name).await.unwrap().status.unwrap();
    let containers =
        status.init_container_statuses.into_iter().flatten().chain(status.container_statuses.into_iter().flatten());
    assert!(containers.map(|container| container.restart_count).all(|count| count == 0));
    deployed.change_all("with the new token").await;
    assert!(deployed.settled().await.contains_key(&name));
}

/// Where the kubelet keeps the pod's token.
fn token_file(node: &Node, pod: &Pod) -> PathBuf {
    let volumes = node.dir().join("kubelet/pods").join(pod.uid().unwrap()).join("volumes/kubernetes.io~projected");
    let folder = fs::read_dir(node.outside(&volumes)).unwrap().next().unwrap().unwrap();
    folder.path().join("token")
}
