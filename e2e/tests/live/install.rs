//! Manifests and chart on a real API server: each object is accepted, and Pod Security `restricted` admits the sharder.

use std::{collections::BTreeMap, path::Path, process::Command};

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Secret},
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
    toolchain::{Need, built},
};
use ringside_ring::{ClusterRing, cluster_ring::SHARDER_NAMESPACE};
use serde_json::json;

use crate::planes::{Keeps, plane};

/// The cases.
pub(crate) fn group() -> Group {
    let helm = "a build of Helm";
    Group::new(
        "install",
        vec![
            case!(each_manifest_is_accepted),
            case!(each_object_of_the_chart_is_accepted).works().needs(Need::Helm).costs(helm),
            case!(release_is_upgraded_and_rolled_back_and_leaves_nothing).needs(Need::Helm).costs(helm),
        ],
    )
}

/// Has the API server judge an object, which it does not store. With a field that is not known it is refused, too.
async fn judge(client: &Client, object: &DynamicObject) -> kube::Result<DynamicObject> {
    let mut dry_run = PatchParams::apply("helm").force().dry_run();
    dry_run.field_validation = Some(ValidationDirective::Strict);
    let api = manifests::api_for(client, object).await.unwrap();
    api.patch(&object.name_any(), &dry_run, &Patch::Apply(object)).await
}

/// Fails unless the API server takes the objects, and Pod Security the sharder's pods, but for those with the node's network.
async fn accepted(client: &Client, objects: &[DynamicObject]) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), SHARDER_NAMESPACE);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for object in objects {
        let made = judge(client, object).await;
        made.unwrap_or_else(|error| panic!("{:?} {}: {error}", object.types, object.name_any()));
        let Some(spec) = object.data.pointer("/spec/template/spec") else { continue };
        let pod = json!({"metadata": {"name": "sharder"}, "spec": spec});
        let made = pods.create(&dry_run, &serde_json::from_value(pod).unwrap()).await;
        match made {
            Err(refused) if spec["hostNetwork"] == json!(true) => {
                assert!(refused.to_string().contains("host namespaces (hostNetwork=true)"), "{refused}");
            }
            made => assert!(made.is_ok() && spec["hostNetwork"].is_null(), "{made:?}"),
        }
    }
}

/// The default overlay and the components beside it, without what their patches change. For monitoring by the definitions that
/// the Prometheus Operator has published. What the chart makes is the same (`e2e/tests/checks/deploy.rs`).
async fn each_manifest_is_accepted() {
    let plane = plane(Keeps::Both).await;
    let client = plane.control_plane().client();
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/prometheus-operator.yaml");
    manifests::apply(&client, &manifests::read(&definitions).unwrap()).await.unwrap();
    for resource in ["podmonitors", "prometheusrules"] {
        manifests::served(&client, &format!("{resource}.monitoring.coreos.com")).await.unwrap();
    }
    let components = ["controller-rings", "networkpolicy", "podmonitor", "rules"].map(|it| format!("components/{it}"));
    for folder in components.iter().map(String::as_str).chain(["overlays/default"]) {
        let objects = manifests::read_folder(&deploy(&format!("kustomize/{folder}"))).unwrap();
        assert!(!objects.is_empty(), "{folder}");
        accepted(&client, &objects).await;
        // A field that there is not, as a slip of the pen is.
        for mut wrong in objects.into_iter().filter(|object| object.data.get("spec").is_some()) {
            wrong.data["spec"]["slip"] = true.into();
            let refused = judge(&client, &wrong).await.unwrap_err().to_string();
            assert!(refused.contains("slip"), "{folder}: {refused}");
        }
    }
}

async fn each_object_of_the_chart_is_accepted() {
    let (plane, chart) = (plane(Keeps::Both).await, built(Chart::find).await.unwrap());
    for overlay in overlays().unwrap() {
        let chart = chart.clone();
        let more = "--set=networkPolicy.enabled=true,injector.enabled=true,monitoring.dashboard.enabled=true";
        let render = move || chart.objects(SHARDER_NAMESPACE, &[&chart.values_of(&overlay), more]);
        let objects = tokio::task::spawn_blocking(render).await.unwrap().unwrap();
        assert!(objects.len() > 15, "{}", objects.len());
        accepted(&plane.control_plane().client(), &objects).await;
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
        let resources = discovery.groups().flat_map(ApiGroup::recommended_resources);
        for (resource, _) in resources.filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST)) {
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
