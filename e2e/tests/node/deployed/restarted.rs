//! A controller that goes on by what it knew before a gap is restarted by the kubelet, as its proxy says.

use std::{process::Command, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Pod},
    events::v1::Event,
};
use kube::{
    ResourceExt as _,
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
    until(deployed, &name, "nothing was restarted", |proxy, controller| {
        (proxy.restart_count, controller.restart_count) == (0, 0)
    })
    .await;

    // Its proxy is another from then on, which does not know what the controller was shown.
    let proxy = process(&pod, PROXY);
    let killed = Command::new("kill").arg("-KILL").arg(proxy.file_name().unwrap()).status().unwrap();
    assert!(killed.success());
    until(deployed, &name, "the controller is restarted too", |proxy, controller| {
        (proxy.restart_count, controller.restart_count) == (1, 1) && proxy.ready && controller.ready
    })
    .await;
    until_it_works(deployed, &name, "after the gap").await;
    until(deployed, &name, "it was not restarted again, and had not ended by itself", |proxy, controller| {
        let ended = controller.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        (proxy.restart_count, controller.restart_count, ended.map(|ended| ended.exit_code)) == (1, 1, Some(0))
    })
    .await;
    let events = deployed.api::<Event>().list(&ListParams::default()).await.unwrap();
    let told = events.iter().any(|event| {
        event.regarding.as_ref().and_then(|pod| pod.name.as_deref()) == Some(&*name)
            && event.note.as_deref().is_some_and(|note| note.contains("Liveness probe failed") && note.contains("503"))
    });
    assert!(told, "{events:#?}");

    deployed.api::<Deployment>().delete(NAME, &DeleteParams::default()).await.unwrap();
    deployed.settled().await;
}

/// As the documentation says, but for its patience. The example's proxy answers probes from outside the pod.
fn probed(example: &DynamicObject) -> DynamicObject {
    let mut deployment = one_of(example, NAME);
    let pod = &mut deployment.data["spec"]["template"]["spec"];
    // Longer than the proxy takes to be back, and the controller from its start to its first request, on a slow machine.
    let asked = json!({"path": "/controllerz", "port": 6444});
    pod["containers"][0]["livenessProbe"] =
        json!({"httpGet": asked, "periodSeconds": 1, "failureThreshold": 30, "timeoutSeconds": 5});
    deployment
}

/// Waits until the pod's proxy and controller are so.
async fn until(deployed: &Deployed, pod: &str, what: &str, are: impl Fn(&ContainerStatus, &ContainerStatus) -> bool) {
    let so = eventually(what, DEADLINE, || async {
        let status =
            deployed.api::<Pod>().get(pod).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let (proxies, controllers) = (status.init_container_statuses, status.container_statuses);
        match (proxies.as_deref(), controllers.as_deref()) {
            (Some([proxy, ..]), Some([controller, ..])) if are(proxy, controller) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    so.await.unwrap();
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
