//! A controller that serves the conversion webhook of its own resource: its proxy has to let it start before that answers.

use std::{net::Ipv4Addr, process::Command, time::Duration};

use k8s_openapi::{ByteString, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    manifests,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
};
use ringside_ring::ClusterRing;
use ringside_runtime::{admin::Probe, probe};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{DEADLINE, World, elsewhere::NAMESPACE};

const GROUP: &str = "starting.example.com";
const SHARD: &str = "shard-starting";
const ANSWERS: Duration = Duration::from_secs(5);

/// What a shard of gadgets may do, and its ring.
const SETTING: &str = "
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: starting}
spec:
  resources: [{group: starting.example.com, resource: gadgets}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: starting}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: starting}
rules: [{apiGroups: [starting.example.com], resources: [gadgets], verbs: [list, watch, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: starting}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: starting}
subjects: [{kind: ServiceAccount, name: website-controller, namespace: elsewhere}]
";

fn definition(conversion: &Value) -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1beta1", "schema": schema});
    let definition = json!({
        "metadata": {"name": format!("gadgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Cluster", "versions": [version("v1beta1"), version("v1")], "conversion": conversion,
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// What is stored in one version can't be listed in the other, which the API server prefers.
pub(crate) async fn before_its_conversion_answers(world: &World) {
    let (control_plane, dir) = (world.system.control_plane(), world.system.dir());
    let client = control_plane.client();
    let gadgets = |version: &str| {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, "Gadget"), "gadgets");
        (Api::<DynamicObject>::all_with(client.clone(), &resource), resource)
    };
    let ((stored, resource), (preferred, _)) = (gadgets("v1beta1"), gadgets("v1"));
    manifests::define(&client, &definition(&json!({"strategy": "None"}))).await.unwrap();
    stored.create(&PostParams::default(), &DynamicObject::new("old", &resource)).await.unwrap();
    let authority = ByteString(std::fs::read(control_plane.ca_path()).unwrap());
    // Nothing listens there.
    let config = json!({"url": "https://127.0.0.1:9/", "caBundle": authority});
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": config});
    manifests::define(&client, &definition(&json!({"strategy": "Webhook", "webhook": webhook}))).await.unwrap();
    eventually("it can't be listed any more", DEADLINE, || async {
        // The client waits for as long as the API server asks for.
        match timeout(ANSWERS, preferred.list(&ListParams::default())).await {
            Ok(Ok(_)) => Err("it can".to_owned()),
            _ => Ok(()),
        }
    })
    .await
    .unwrap();

    manifests::apply(&client, &manifests::parse(SETTING).unwrap()).await.unwrap();
    let ring = Api::<ClusterRing>::all(client.clone()).get("starting").await.unwrap();
    world.system.allow(&ring, &[NAMESPACE]).await.unwrap();
    let identity = ShardIdentity::create(control_plane, NAMESPACE, "website-controller", SHARD, dir).await.unwrap();
    let mut command = Command::new(toolchain::ringside(&Environment::of_process()).unwrap().proxy);
    command.arg("--kubeconfig").arg(identity.kubeconfig());
    let shard = Identity { ring: "starting", shard: SHARD, namespace: NAMESPACE };
    let proxy = Proxy::start(command, shard, dir).unwrap();
    eventually("the controller may start", DEADLINE, || async {
        let address = (Ipv4Addr::LOCALHOST, proxy.admin_port).into();
        probe::ask(address, Probe::Started, ANSWERS).await.map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    proxy.until_ready().await.unwrap();
}
