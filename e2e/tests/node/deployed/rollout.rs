//! From one leader to shards and back, as a Deployment is changed: old and new pods are there at once, under load, and
//! no user scales to zero between.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::{ResourceExt, api::Patch};
use ringside_e2e::{
    audit::{events, pod},
    eventually::eventually,
    node::Node,
};
use serde_json::{Value, json};

use super::{DEADLINE, Deployed, EXAMPLE, IN_CLUSTER};
use crate::Fixture;

/// So many writes show that some pod is at work.
const WORKS: usize = 20;

/// Each look reads the whole log, beside those who work.
const LOOKS: Duration = Duration::from_millis(500);

/// Changes to Websites come so often.
const INTERVAL: Duration = Duration::from_millis(50);

pub(crate) async fn from_one_leader_to_shards_and_back_no_pod_works_beside_another(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let example = deployed.api::<Deployment>().get(EXAMPLE).await.unwrap();
    // Its shards take part in the same election.
    change(deployed, IN_CLUSTER, &json!({"replicas": 0})).await;
    let there_and_back = async {
        at_work(&fixture, deployed, Timestamp::now()).await;

        let begun = Timestamp::now();
        change(deployed, EXAMPLE, &json!({"template": plain(&example)})).await;
        let (plain, leader) = at_work(&fixture, deployed, begun).await;
        assert_eq!(leader.len(), 1, "one leads");
        nobody_worked_beside(&fixture, begun, &plain);

        let begun = Timestamp::now();
        change(deployed, EXAMPLE, &json!({"template": sharded(&example)})).await;
        let (shards, _) = at_work(&fixture, deployed, begun).await;
        nobody_worked_beside(&fixture, begun, &shards);
    };
    tokio::select! {
        never = load(deployed) => match never {},
        () = there_and_back => {}
    }
    change(deployed, IN_CLUSTER, &json!({"replicas": 1})).await;
    deployed.settled().await;
}

/// Changes one Website after another.
async fn load(deployed: &Deployed) -> Infallible {
    let names: Vec<_> =
        deployed.websites().list(&Default::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    for (change, name) in names.iter().cycle().enumerate() {
        let change = Patch::Merge(json!({"spec": {"content": format!("under load: {change}")}}));
        deployed.websites().patch(name, &Default::default(), &change).await.unwrap();
        tokio::time::sleep(INTERVAL).await;
    }
    unreachable!("there are Websites")
}

/// Changes a Deployment, and waits until its pods are those that it asks for.
async fn change(deployed: &Deployed, deployment: &str, spec: &Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    deployed.api::<Deployment>().patch(deployment, &Default::default(), &patch).await.unwrap();
    deployed.rolled_out("default", deployment).await.unwrap();
}

/// The template of before there was a sidecar.
fn plain(example: &Deployment) -> Value {
    let mut template = sharded(example);
    let spec = &mut template["spec"];
    // Merged: what is not named stays.
    spec["initContainers"] = Value::Null;
    spec["volumes"] = Value::Null;
    let controller = spec["containers"][0].as_object_mut().unwrap();
    controller.remove("env");
    controller.remove("volumeMounts");
    template
}

fn sharded(example: &Deployment) -> Value {
    json!(example.spec.as_ref().unwrap().template)
}

/// The pods of the Deployment as it is, when some of them have worked since then; and which.
async fn at_work(fixture: &Fixture, deployed: &Deployed, since: Timestamp) -> (BTreeSet<String>, BTreeSet<String>) {
    let pods: BTreeSet<_> = deployed.pods(EXAMPLE).await.iter().map(ResourceExt::name_any).collect();
    let what = format!("some of {pods:?} are at work");
    let at_work = eventually(&what, DEADLINE, || async {
        tokio::time::sleep(LOOKS).await;
        let works = works(&fixture.node).into_iter().filter(|work| work.asked >= since && pods.contains(&work.pod));
        let by: Vec<_> = works.map(|work| work.pod).collect();
        if by.len() >= WORKS { Ok(by.into_iter().collect()) } else { Err(format!("{} writes", by.len())) }
    });
    let at_work = at_work.await.unwrap();
    (pods, at_work)
}

/// Asserts that all who worked before had ended when the first of those after began.
fn nobody_worked_beside(fixture: &Fixture, begun: Timestamp, after: &BTreeSet<String>) {
    let works = works(&fixture.node).into_iter().filter(|work| work.answered >= begun);
    let (after, before): (Vec<_>, Vec<_>) = works.partition(|work| after.contains(&work.pod));
    let (last, first) = (before.iter().max_by_key(|work| work.answered), after.iter().min_by_key(|work| work.asked));
    assert!(last.unwrap().answered < first.unwrap().asked, "{last:?} beside {first:?}");
}

/// A write to the status of a Website: who works on one says so there at the end.
#[derive(Debug)]
struct Work {
    /// Whose token it came by.
    pod: String,
    asked: Timestamp,
    answered: Timestamp,
}

/// What the API server wrote down about work.
fn works(node: &Node) -> Vec<Work> {
    let work = |event: Value| {
        let about = &event["objectRef"];
        let is_work =
            event["stage"] == "ResponseComplete" && about["resource"] == "websites" && about["subresource"] == "status";
        let time = |name: &str| event[name].as_str()?.parse::<Timestamp>().ok();
        Some(Work {
            pod: pod(&event).filter(|_| is_work)?.to_owned(),
            asked: time("requestReceivedTimestamp")?,
            answered: time("stageTimestamp")?,
        })
    };
    events(&node.control_plane().audit_log(), "/status").unwrap().into_iter().filter_map(work).collect()
}
