//! The webhook behind its Service: a replica of it ends, or is killed, while objects are created.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    website::{Website, WebsiteSpec},
};
use tokio::time::sleep;

use super::{DEADLINE, Deployed, SHARDER_NAMESPACE};
use crate::Fixture;

/// The time between two creates.
const PAUSE: Duration = Duration::from_millis(20);

/// Creates nothing, but has the API server ask the webhook as if it did, which no create fails by; returns whether it answered.
async fn is_labelled(deployed: &Deployed) -> bool {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let name = format!("asked-{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let website = deployed.websites().create(&dry, &Website::new(&name, WebsiteSpec::default())).await.unwrap();
    website.labels().contains_key(&deployed.labels.shard)
}

async fn until_answered(deployed: &Deployed) {
    eventually("the API server reaches the webhook by its Service", DEADLINE, || async {
        if is_labelled(deployed).await { Ok(()) } else { Err("an object without owner".to_owned()) }
    })
    .await
    .unwrap();
}

/// The replicas that are ready.
async fn ready(deployed: &Deployed) -> BTreeSet<String> {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    deployed.sharders().await.iter().filter(|pod| is_ready(pod)).map(ResourceExt::name_any).collect()
}

/// Which creates the webhook answered while a replica was deleted like this, until another was ready in its place.
async fn while_it_goes(deployed: &Deployed, going: &str, how: &DeleteParams) -> Vec<bool> {
    until_answered(deployed).await;
    let replaced = async {
        let pods: Api<Pod> = Api::namespaced(deployed.client.clone(), SHARDER_NAMESPACE);
        pods.delete(going, how).await.unwrap();
        eventually("another replica is ready", DEADLINE, || async {
            let now = ready(deployed).await;
            if now.len() == 2 && !now.contains(going) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await
        .unwrap();
    };
    let mut labelled = Vec::new();
    let creating = async {
        loop {
            labelled.push(is_labelled(deployed).await);
            sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = replaced => {}
        () = creating => {}
    }
    until_answered(deployed).await;
    labelled
}

pub(crate) async fn a_replica_that_ends_or_is_killed_fails_no_create(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    for (how, ends_in_order) in [(DeleteParams::default(), true), (DeleteParams::default().grace_period(0), false)] {
        let replicas = ready(deployed).await;
        assert_eq!(replicas.len(), 2, "{replicas:?}");
        // The API server has connections to one of them, and does not say to which.
        for replica in &replicas {
            let labelled = while_it_goes(deployed, replica, &how).await;
            let missed = labelled.iter().filter(|labelled| !**labelled).count();
            assert!(
                !ends_in_order || missed == 0,
                "of {} creates {missed} went on without the webhook",
                labelled.len()
            );
        }
    }
}
