//! The webhook behind its Service: a replica of it ends, or is killed, while objects are created.

#![allow(clippy::print_stdout, reason = "what was measured is part of the result")]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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
use tokio::time::{Instant, sleep};

use super::{DEADLINE, Deployed, SHARDER_NAMESPACE};
use crate::Fixture;

/// The time between two creates.
const PAUSE: Duration = Duration::from_millis(20);
/// What the API server waits for the webhook at most, and as long again for a machine that does much else.
const LONGEST: Duration = Duration::from_secs(10);

/// What came of one create.
struct Answer {
    labelled: bool,
    took: Duration,
}

/// Creates nothing, but has the API server ask the webhook as if it did.
async fn ask(deployed: &Deployed) -> Answer {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let name = format!("asked-{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let (dry, start) = (PostParams { dry_run: true, ..PostParams::default() }, Instant::now());
    // Whatever becomes of the webhook, no create fails.
    let website = deployed.websites().create(&dry, &Website::new(&name, WebsiteSpec::default())).await.unwrap();
    Answer { labelled: website.labels().contains_key(&deployed.labels.shard), took: start.elapsed() }
}

async fn until_answered(deployed: &Deployed) {
    eventually("the API server reaches the webhook by its Service", DEADLINE, || async {
        if ask(deployed).await.labelled { Ok(()) } else { Err("an object without owner".to_owned()) }
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

/// What came of the creates while a replica was deleted like this, until another was ready in its place.
async fn while_it_goes(deployed: &Deployed, going: &str, how: &DeleteParams) -> Vec<Answer> {
    until_answered(deployed).await;
    let gone = AtomicBool::new(false);
    let replace = async {
        let pods: Api<Pod> = Api::namespaced(deployed.client.clone(), SHARDER_NAMESPACE);
        pods.delete(going, how).await.unwrap();
        eventually("another replica is ready", DEADLINE, || async {
            let now = ready(deployed).await;
            if now.len() == 2 && !now.contains(going) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await
        .unwrap();
        gone.store(true, Ordering::Relaxed);
    };
    let asking = async {
        let mut answers = Vec::new();
        while !gone.load(Ordering::Relaxed) {
            answers.push(ask(deployed).await);
            sleep(PAUSE).await;
        }
        answers
    };
    let (answers, ()) = tokio::join!(asking, replace);
    until_answered(deployed).await;
    answers
}

pub(crate) async fn a_replica_that_ends_or_is_killed_fails_no_create(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    for (how, ends_in_order) in [(DeleteParams::default(), true), (DeleteParams::default().grace_period(0), false)] {
        let replicas = ready(deployed).await;
        assert_eq!(replicas.len(), 2, "{replicas:?}");
        // The API server has connections to one of them, and nobody knows to which.
        let mut answers = Vec::new();
        for replica in &replicas {
            answers.extend(while_it_goes(deployed, replica, &how).await);
        }
        let (without, longest) =
            (answers.iter().filter(|one| !one.labelled).count(), answers.iter().map(|one| one.took).max().unwrap());
        println!(
            "in order: {ends_in_order}; of {} creates {without} went on without the webhook; the longest took {longest:?}",
            answers.len()
        );
        assert!(!ends_in_order || without == 0, "a replica that ends goes on answering until it is not asked any more");
        assert!(longest < LONGEST, "{longest:?}");
    }
}
