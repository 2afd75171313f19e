//! Chart and overlays on a real API server: each object is accepted, and Pod Security `restricted` admits the sharder.

use std::{collections::BTreeMap, process::Command};

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, Pod, Secret, ServiceAccount},
    },
};
use kube::{
    Api, Client, Discovery, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective},
    discovery::{ApiGroup, verbs},
};
use ringside_e2e::{
    case,
    control_plane::{ControlPlane, Options},
    helm::{Chart, deploy, overlays},
    live::Group,
    manifests,
    toolchain::built,
};
use ringside_ring::{ClusterRing, cluster_ring::SHARDER_NAMESPACE};
use serde_json::json;

use crate::planes::{Keeps, plane};

/// The cases.
pub(crate) fn group() -> Group {
    let accepted = case!(each_object_of_the_chart_is_accepted).works();
    Group::new(
        "install",
        vec![
            case!(release_is_upgraded_and_rolled_back_and_leaves_nothing),
            accepted,
            case!(restricted_pod_security_admits_the_sharder),
        ],
    )
}

/// Makes the namespace for a release, with the account that its pods run as.
async fn namespace(client: &Client, name: &str, level: &str) {
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "ringside-sharder"}})).unwrap();
    Api::namespaced(client.clone(), name).create(&PostParams::default(), &account).await.unwrap();
}

/// Renders an overlay's values for a namespace.
async fn rendered(chart: &Chart, namespace: &'static str, overlay: String) -> Vec<DynamicObject> {
    let chart = chart.clone();
    let more = "--set=networkPolicy.enabled=true,injector.enabled=true,monitoring.dashboard.enabled=true";
    let render = move || chart.objects(namespace, &[&chart.values_of(&overlay), more]);
    tokio::task::spawn_blocking(render).await.unwrap().unwrap()
}

async fn each_object_of_the_chart_is_accepted() {
    let (plane, chart) = (plane(Keeps::Both).await, built(Chart::find).await.unwrap());
    let client = plane.control_plane().client();
    namespace(&client, "accepted", "restricted").await;
    // With a field that is not known it would be refused, too.
    let mut dry_run = PatchParams::apply("helm").force().dry_run();
    dry_run.field_validation = Some(ValidationDirective::Strict);
    for overlay in overlays().unwrap() {
        let objects = rendered(&chart, "accepted", overlay).await;
        assert!(objects.len() > 15, "{}", objects.len());
        for object in objects {
            let api = manifests::api_for(&client, &object).await.unwrap();
            let made = api.patch(&object.name_any(), &dry_run, &Patch::Apply(&object)).await;
            made.unwrap_or_else(|error| panic!("{:?} {}: {error}", object.types, object.name_any()));
        }
    }
    let pods: Api<Pod> = Api::namespaced(client, "accepted");
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty(), "a dry run makes nothing");
}

async fn restricted_pod_security_admits_the_sharder() {
    let (plane, chart) = (plane(Keeps::Both).await, built(Chart::find).await.unwrap());
    let client = plane.control_plane().client();
    namespace(&client, "restricted", "restricted").await;
    let pods: Api<Pod> = Api::namespaced(client, "restricted");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for overlay in overlays().unwrap() {
        let objects = rendered(&chart, "restricted", overlay.clone()).await;
        let deployment = objects.iter().find(|object| object.types.as_ref().unwrap().kind == "Deployment").unwrap();
        let spec = &deployment.data["spec"]["template"]["spec"];
        let pod = json!({"metadata": {"name": overlay}, "spec": spec});
        let made = pods.create(&dry_run, &serde_json::from_value(pod).unwrap()).await;
        if spec["hostNetwork"] == json!(true) {
            let refused = made.unwrap_err().to_string();
            assert!(refused.contains("host namespaces (hostNetwork=true)"), "{refused}");
        } else {
            made.unwrap_or_else(|error| panic!("{overlay}: {error}"));
        }
    }
}

/// A release on a control plane of its own, which runs no pods.
struct Release {
    chart: Chart,
    control_plane: ControlPlane,
    folder: tempfile::TempDir,
}

impl Release {
    /// Runs a command of Helm, which succeeds.
    async fn helm(&self, arguments: &[&str]) -> String {
        let mut helm = Command::new(self.chart.program());
        helm.args(arguments).args(["--namespace", SHARDER_NAMESPACE]);
        helm.env("KUBECONFIG", self.control_plane.kubeconfig_path()).env("HELM_CACHE_HOME", self.folder.path());
        let output = tokio::task::spawn_blocking(move || helm.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.control_plane.client(), SHARDER_NAMESPACE)
    }

    async fn certificates(&self) -> Option<BTreeMap<String, ByteString>> {
        self.secrets().get("ringside-sharder-webhook").await.unwrap().data
    }

    /// What of the chart, or of Helm's own, is in the cluster.
    async fn objects(&self) -> Vec<String> {
        let client = self.control_plane.client();
        let discovery = Discovery::new(client.clone()).run().await.unwrap();
        let mut found = Vec::new();
        for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for label in ["app.kubernetes.io/part-of=ringside", "app.kubernetes.io/managed-by=Helm", "owner=helm"] {
                let listed = api.list_metadata(&ListParams::default().labels(label)).await.unwrap().items;
                found.extend(listed.iter().map(|object| format!("{} {}", resource.kind, object.name_any())));
            }
        }
        found
    }
}

/// The sharder writes into a Secret of the chart, and rings are the users'.
async fn release_is_upgraded_and_rolled_back_and_leaves_nothing() {
    let chart = built(Chart::find).await.unwrap();
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let release = Release { chart, control_plane, folder: tempfile::tempdir().unwrap() };
    let client = release.control_plane.client();
    let chart = release.chart.folder().to_str().unwrap();
    release.helm(&["install", "ringside", chart, "--create-namespace"]).await;
    assert!(release.objects().await.len() > 15);
    manifests::served(&client, "clusterrings.sharding.timebertt.dev").await.unwrap();
    let ring = manifests::read(&deploy("example/ring.yaml")).unwrap();
    manifests::apply(&client, &ring).await.unwrap();
    let written = Patch::Apply(json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"tls.crt": "certificate"}}));
    let by_the_sharder = PatchParams::apply("ringside-sharder");
    release.secrets().patch("ringside-sharder-webhook", &by_the_sharder, &written).await.unwrap();
    let certificates = release.certificates().await;
    assert!(certificates.is_some());

    let next = release.chart.next_release(release.folder.path()).unwrap();
    release.helm(&["upgrade", "ringside", next.folder().to_str().unwrap(), "--set=sharder.replicas=3"]).await;
    assert!(release.helm(&["list"]).await.contains("ringside-0.1.1"));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), SHARDER_NAMESPACE);
    let replicas = async || deployments.get("ringside-sharder").await.unwrap().spec.unwrap().replicas;
    assert_eq!((replicas().await, release.certificates().await), (Some(3), certificates.clone()));
    release.helm(&["rollback", "ringside", "1"]).await;
    assert_eq!((replicas().await, release.certificates().await), (Some(2), certificates));

    let said = release.helm(&["uninstall", "ringside"]).await;
    assert!(said.contains("[CustomResourceDefinition] clusterrings.sharding.timebertt.dev"), "{said}");
    assert_eq!(Api::<ClusterRing>::all(client).list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(release.objects().await, ["CustomResourceDefinition clusterrings.sharding.timebertt.dev"]);
}
