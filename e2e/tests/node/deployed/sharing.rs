//! Each shard has its share of the Websites, and does the work on it.

use std::sync::Arc;

use kube::ResourceExt as _;

use super::{EXAMPLE, IN_CLUSTER};
use crate::Fixture;

pub(crate) async fn replicas_share_the_work(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    let shares = deployed.settled().await;
    for pod in deployed.pods(EXAMPLE).await {
        assert!(shares.contains_key(&pod.name_any()), "{} has no share: {shares:?}", pod.name_any());
    }
}

pub(crate) async fn a_controller_with_nothing_but_the_in_cluster_folder_has_its_share(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    let shares = deployed.settled().await;
    let pod = &deployed.pods(IN_CLUSTER).await[0];
    let controller = &pod.spec.as_ref().unwrap().containers[0];
    let variables: Vec<_> = controller.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(variables, ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]);
    assert!(shares.contains_key(&pod.name_any()), "it has no share: {shares:?}");
}
