//! The ring that `ringside ring init` prints for a published controller: that of the scenario, without an edit.

use kube::Api;
use ringside_e2e::{
    manifests::{apply, parse},
    system::{RING, System},
};
use ringside_ring::ClusterRing;

use crate::command::ringside;

/// The controller's Deployment, of which no pods come: no controller manager runs.
const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {serviceAccountName: website-controller, containers: [{name: controller, image: NAME}]}
";

/// While there are objects of it.
pub(super) async fn is_the_ring_of(system: &System, name: &str) {
    let (client, kubeconfig) = (system.control_plane().client(), system.control_plane().kubeconfig_path());
    apply(&client, &parse(&DEPLOYMENT.replace("NAME", name)).unwrap()).await.unwrap();
    let (code, text) = ringside(&kubeconfig, &["ring", "init", &format!("default/{name}")]).await;
    assert!(code == 0 && !text.contains("QUESTION"), "{text}");
    let drafted: ClusterRing =
        serde_json::from_value(serde_json::to_value(&parse(&text).unwrap()[0]).unwrap()).unwrap();
    let ring = Api::<ClusterRing>::all(client).get(RING).await.unwrap();
    assert_eq!(drafted.spec.resources, ring.spec.resources, "{text}");
}
