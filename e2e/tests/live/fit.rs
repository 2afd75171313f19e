//! `ringside check` and `ringside ring init`, for controllers in a cluster: what is found, and what is drafted.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, PostParams},
};
use ringside_e2e::{
    case,
    live::Group,
    manifests::{apply, parse},
    website::{Website, child},
};
use ringside_ring::ClusterRing;

use crate::{
    command::ringside,
    planes::{Keeps, plane},
};

const NAMESPACE: &str = "fit";

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("fit", vec![case!(a_controller_in_the_cluster_is_judged_and_gets_a_ring)])
}

/// A controller with its rights. `MORE` is more of its pods' spec, `RULES` are more of its rules.
const CONTROLLER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME, namespace: fit}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fit-NAME}
rules:
- {apiGroups: [web.example.com], resources: [websites], verbs: [get, list, watch]}
- {apiGroups: [web.example.com], resources: [websites/status], verbs: [update]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
- RULE
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fit-NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fit-NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: fit}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: fit}
spec:
  replicas: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {serviceAccountName: NAMEMORE, containers: [{name: c, image: "website-controller:1.0.0", args: [--leader-elect]}]}
"#;

fn controller(name: &str, more: &str, rule: &str) -> Vec<DynamicObject> {
    let text = CONTROLLER.replace("RULE", rule).replace("NAMEMORE", &format!("{name}{more}")).replace("NAME", name);
    parse(&text).unwrap()
}

/// Two Websites, of which one has a label; its Deployment has that in its pods as well.
async fn copied_labels(client: &Client) {
    let websites: Api<Website> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    for (name, label) in [("red", "team: blue"), ("plain", "other: x")] {
        let site = format!(
            "{{apiVersion: web.example.com/v1, kind: Website, metadata: {{name: {name}, namespace: fit, labels: {{{label}}}}}, spec: {{}}}}"
        );
        apply(client, &parse(&site).unwrap()).await.unwrap();
        let site = websites.get(name).await.unwrap();
        maps.create(&PostParams::default(), &child(&site, name)).await.unwrap();
        let (uid, pods) = (site.uid().unwrap(), if name == "red" { ", team: blue" } else { "" });
        let text = format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: site-{name}, namespace: fit, ownerReferences: \
             [{{apiVersion: web.example.com/v1, kind: Website, name: {name}, uid: {uid}, controller: true}}]}}, \
             spec: {{replicas: 0, selector: {{matchLabels: {{site: {name}}}}}, template: {{metadata: {{labels: {{site: {name}{pods}}}}}, \
             spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
        );
        apply(client, &parse(&text).unwrap()).await.unwrap();
    }
}

async fn a_controller_in_the_cluster_is_judged_and_gets_a_ring() {
    let plane = plane(Keeps::Nothing).await;
    let (client, kubeconfig) = (plane.control_plane().client(), plane.control_plane().kubeconfig_path());
    let namespace = parse("{apiVersion: v1, kind: Namespace, metadata: {name: fit}}").unwrap();
    apply(&client, &namespace).await.unwrap();
    let maps = r#"{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create]}"#;
    let deployments = "{apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create]}";
    apply(&client, &controller("good", "", maps)).await.unwrap();
    apply(&client, &controller("bad", ", hostNetwork: true", deployments)).await.unwrap();
    copied_labels(&client).await;

    let judged = [
        ("fit/good", 0, &["√ R01 elects a leader", "fit/good: fit; "][..]),
        ("-n fit bad", 2, &["× R05 ", "label team of Website fit/red", "fit/bad: not fit until R05, R14 is solved"]),
        ("fit/bad --accept=r05,R14 -o json", 0, &[]),
        ("fit/none", 1, &["there is no Deployment fit/none: `kubectl get deployments -A`"]),
    ];
    for (arguments, expected, parts) in judged {
        let arguments: Vec<_> = ["check"].into_iter().chain(arguments.split(' ')).collect();
        let (code, text) = ringside(&kubeconfig, &arguments).await;
        assert!(code == expected && parts.iter().all(|part| text.contains(part)), "{code}: {text}");
        assert!(!text.contains("not looked at"), "{text}");
    }
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (name, resource) in [("good", "configmaps"), ("bad", "deployments")] {
        let (code, text) = ringside(&kubeconfig, &["ring", "init", &format!("fit/{name}"), "--name=fit"]).await;
        assert_eq!(code, 0, "{text}");
        let drafted = parse(&text).unwrap();
        let ring: ClusterRing = serde_json::from_value(serde_json::to_value(&drafted[0]).unwrap()).unwrap();
        let [main] = &ring.spec.resources[..] else { panic!("{text}") };
        assert_eq!((&*main.resource, &*main.controlled_resources[0].resource), ("websites", resource), "{text}");
        Api::<ClusterRing>::all(client.clone()).create(&dry_run, &ring).await.unwrap();
    }
}
