//! A controller that goes on by what it knew before a gap is restarted by the kubelet, as its proxy says.

use std::{process::Command, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Pod},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
};
use ringside_e2e::{eventually::eventually, manifests};
use serde_json::json;

use super::{
    DEADLINE, Deployed,
    confinement::{PROXY, process},
    deploy, is_worked_on_by, one_of,
};
use crate::Fixture;

/// The example whose controller has the livenessProbe. It reads its kubeconfig once, at its start.
const NAME: &str = "restarted-controller";

pub(crate) async fn a_controller_from_before_a_gap_is_restarted_by_its_liveness_probe(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let example = manifests::read(&deploy("example/deployment.yaml")).unwrap();
    manifests::apply(&deployed.client, &[probed(&example[0])]).await.unwrap();
    deployed.rolled_out("default", NAME).await.unwrap();
    let pod = deployed.pods(NAME).await.remove(0);
    let name = pod.name_any();
    until_it_works(deployed, &name, "before the gap").await;
    restart_by_gap(&deployed.api(), &pod).await;
    until_it_works(deployed, &name, "after the gap").await;
    until(&deployed.api(), &name, "it was not restarted again, and had not ended by itself", |proxy, controller| {
        let ended = controller.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        (proxy.restart_count, controller.restart_count, ended.map(|ended| ended.exit_code)) == (1, 1, Some(0))
    })
    .await;
    was_told(&deployed.api(), &name, &["Liveness probe failed", "503"]).await;

    deployed.api::<Deployment>().delete(NAME, &DeleteParams::default()).await.unwrap();
    deployed.settled().await;
}

/// As the documentation says, but for its patience.
pub(super) fn probed(example: &DynamicObject) -> DynamicObject {
    let mut deployment = one_of(example, NAME);
    let pod = &mut deployment.data["spec"]["template"]["spec"];
    let listen = json!({"name": "RINGSIDE_ADMIN_LISTEN", "value": "0.0.0.0:6444"});
    pod["initContainers"][0]["env"].as_array_mut().unwrap().push(listen);
    // Longer than the proxy takes to be back, and the controller from its start to its first request.
    let asked = json!({"path": "/controllerz", "port": 6444});
    pod["containers"][0]["livenessProbe"] =
        json!({"httpGet": asked, "periodSeconds": 1, "failureThreshold": 10, "timeoutSeconds": 5});
    deployment
}

/// Kills the proxy of a pod: it is another from then on, which does not know what the controller was shown. Waits until the
/// kubelet has started both again.
pub(super) async fn restart_by_gap(pods: &Api<Pod>, pod: &Pod) {
    let name = pod.name_any();
    until(pods, &name, "nothing was restarted", |proxy, controller| {
        (proxy.restart_count, controller.restart_count) == (0, 0)
    })
    .await;
    let proxy = process(pod, PROXY);
    let killed = Command::new("kill").arg("-KILL").arg(proxy.file_name().unwrap()).status().unwrap();
    assert!(killed.success());
    until(pods, &name, "the controller is restarted too", |proxy, controller| {
        let restarts = (proxy.restart_count, controller.restart_count);
        restarts == (1, 1) && proxy.ready && controller.ready
    })
    .await;
}

/// Asserts that an event of the pod has all these words.
pub(super) async fn was_told(events: &Api<Event>, pod: &str, words: &[&str]) {
    let events = events.list(&ListParams::default()).await.unwrap();
    let told = events.iter().any(|event| {
        event.regarding.as_ref().and_then(|pod| pod.name.as_deref()) == Some(pod)
            && event.note.as_deref().is_some_and(|note| words.iter().all(|word| note.contains(word)))
    });
    assert!(told, "{words:?} was not told of {pod}: {events:#?}");
}

/// Waits until the pod's proxy and controller are so.
async fn until(pods: &Api<Pod>, pod: &str, what: &str, are: impl Fn(&ContainerStatus, &ContainerStatus) -> bool) {
    let so = eventually(what, DEADLINE, || async {
        let pod = pods.get(pod).await.map_err(|error| error.to_string())?;
        let (proxy, controller) = containers(&pod).ok_or("there are none yet")?;
        if are(proxy, controller) { Ok(()) } else { Err(format!("{proxy:?} {controller:?}")) }
    });
    so.await.unwrap();
}

fn containers(pod: &Pod) -> Option<(&ContainerStatus, &ContainerStatus)> {
    let status = pod.status.as_ref()?;
    Some((status.init_container_statuses.as_ref()?.first()?, status.container_statuses.as_ref()?.first()?))
}

/// Changes all Websites, and waits until it has worked on one of them after that.
async fn until_it_works(deployed: &Deployed, pod: &str, content: &str) {
    deployed.change_all(content).await;
    let works = eventually("it works", DEADLINE, || async {
        let all = deployed.websites().list(&Default::default()).await.map_err(|error| error.to_string())?;
        if all.iter().any(|website| is_worked_on_by(website, pod)) { Ok(()) } else { Err("not yet".to_owned()) }
    });
    works.await.unwrap();
}
